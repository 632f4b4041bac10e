"""A recorded session, read once for all replays: its turns, and the evidence that each of them used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from context_compressor.measure.chats import (
    INSTRUCTION_ROLES,
    SOURCE_ROLES,
    CachedCounter,
    Chat,
    MessageReader,
    content_text,
    said_text,
)
from context_compressor.measure.identifiers import Near, Span, identifier_spans, near, near_in, tokens
from context_compressor.tokens.protocol import TokenCounter

FAR_MESSAGES = 12
"""Evidence that no message of the last so many names is far: the rest every system still shows."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """An identifier that the recorded assistant used, and that it can only have from what it was given."""

    identifier: str
    source: int
    """Index of the latest message of a user, an instruction or a tool in which it is a token."""
    source_text: int
    """That message's text, the name of its tool in front, as `TextIndex` numbers it."""
    source_content: int
    """Its content alone, which is what a store may hold."""
    tool: str | None
    """The tool that brought that message, if one did."""
    distance: int
    """How many messages before the turn any message, the assistant's own included, named it last; 1 is the
    message right before the turn."""


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """A recorded assistant message before which the system under test is asked for a view."""

    index: int
    """Index of the assistant message; the history is what stands before it."""
    evidence: tuple[Evidence, ...]


class TextIndex:
    """Number texts, and tell which of them hold an identifier. Each text is read once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._texts: list[str] = []
        self._spans: list[dict[str, list[Span]]] = []
        self._holders: dict[str, set[int]] = {}
        self._near: dict[tuple[int, str], Near] = {}

    def add(self, text: str) -> int:
        """Return a text's number; equal texts have one."""
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self._texts)
            spans = identifier_spans(text)
            self._texts.append(text)
            self._spans.append(spans)
            for identifier in spans:
                self._holders.setdefault(identifier, set()).add(number)
        return number

    def text(self, number: int) -> str:
        """Return a text by its number."""
        return self._texts[number]

    def identifiers(self, number: int) -> Iterable[str]:
        """Return the identifiers of a text."""
        return self._spans[number].keys()

    def is_known(self, evidence: Evidence, among: AbstractSet[int]) -> bool:
        """Tell whether an agent that reads the texts `among` knows what an identifier is.

        It does where the identifier's latest source is among them, word for word, or where it stands in one
        of them as a token with something within 200 characters that also stands next to it in that source:
        an ordinary word, or the name of the tool that brought it.
        """
        if evidence.source_text in among:
            return True
        holders = self._holders.get(evidence.identifier, set()) & among
        return any(self._explains(evidence, self._beside(number, evidence.identifier)) for number in holders)

    def telling(self, evidence: Evidence, stored: AbstractSet[int]) -> list[int]:
        """Return those of some stored texts from each of which alone the identifier is known, ascending.

        Known as in a view; or because all of the source stands in it, word for word, as in a transcript.
        """
        holders = self._holders.get(evidence.identifier, set()) & stored
        content = self._texts[evidence.source_content]
        return [
            number
            for number in sorted(holders)
            if self.is_known(evidence, {number}) or content in self._texts[number]
        ]

    def is_answered(self, evidence: Evidence, answer: str) -> bool:
        """Tell whether what a tool answers, which is not kept, makes an identifier known.

        As in a view; where no word stands beside it in its source, in a list of paths say, there is none that
        an answer could show.
        """
        beside = near_in(answer, evidence.identifier)
        if beside is None:
            return False
        there = self._beside(evidence.source_text, evidence.identifier)
        return not there.words or self._explains(evidence, beside)

    def _explains(self, evidence: Evidence, beside: Near) -> bool:
        there = self._beside(evidence.source_text, evidence.identifier)
        if not there.words.isdisjoint(beside.words):
            return True
        names = {token for token, _ in tokens(evidence.tool or "")}
        return bool(names) and names <= beside.tokens

    def _beside(self, number: int, identifier: str) -> Near:
        key = number, identifier
        found = self._near.get(key)
        if found is None:
            found = self._near[key] = near(self._texts[number], self._spans[number][identifier])
        return found


class Recording:
    """A recorded session, prepared for replays.

    A turn is an assistant message before which something other than instructions stands; the histories before
    the others are no requests.

    Args:
        messages: the session as chat dicts; not to be changed while replays use it.
        counter: what tokens are counted by; a `TiktokenCounter` when None.
        name: what to call it in results.
    """

    def __init__(self, messages: Sequence[Chat], counter: TokenCounter | None = None, name: str = "") -> None:
        self.messages = list(messages)
        self.name = name
        self.counter = CachedCounter(counter)
        self.counter.keep(self.messages)
        self.texts = TextIndex()
        self.reader = MessageReader()
        self.tokens = [self.counter.count(message) for message in self.messages]
        self.turns: list[RecordedTurn] = []
        self.text_numbers: list[int] = []
        self._tools: list[str | None] = []
        """The tool that brought each message: ids of calls may repeat, and then name another later."""
        self._read()

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole session."""
        return sum(self.tokens)

    def _read(self) -> None:
        latest_source: dict[str, int] = {}
        latest: dict[str, int] = {}
        begun = False
        for index, message in enumerate(self.messages):
            role = message.get("role")
            if role == "assistant" and begun:
                found = (
                    self._evidence(identifier, latest_source[identifier], index - latest[identifier])
                    for identifier in identifier_spans(said_text(message))
                    if identifier in latest_source
                )
                self.turns.append(RecordedTurn(index, tuple(found)))
            number = self.texts.add(self.reader.text_of(message))
            tool = self.reader.tool_of(message)
            self.text_numbers.append(number)
            self._tools.append(tool)
            for identifier in self.texts.identifiers(number):
                # The name of its tool stands before a result, but the result does not say it.
                if identifier == tool and near_in(content_text(message), identifier) is None:
                    continue
                latest[identifier] = index
                if role in SOURCE_ROLES:
                    latest_source[identifier] = index
            begun = begun or role not in INSTRUCTION_ROLES

    def _evidence(self, identifier: str, source: int, distance: int) -> Evidence:
        content = self.texts.add(content_text(self.messages[source]))
        number, tool = self.text_numbers[source], self._tools[source]
        return Evidence(identifier, source, number, content, tool, distance)
