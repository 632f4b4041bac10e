"""A recorded session, read once for all replays: its messages as chat dicts, its turns, its probes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from context_compressor.errors import ContextCompressorError
from context_compressor.lab.measure.probes import Probe
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tokens.tiktoken import TiktokenCounter

Chat = dict[str, Any]
"""A message as chat completions take it."""

INSTRUCTION_ROLES = frozenset({"system", "developer"})
RESULT_ROLES = frozenset({"tool", "function"})


def content_text(message: Chat) -> str:
    """Return the text of a message's content: of a list of parts by line, a picture by its kind."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        part.get("text", f"[{part.get('type')}]") if isinstance(part, dict) else part for part in content
    ]
    return "\n".join(part for part in parts if isinstance(part, str))


def first_request(messages: Sequence[Chat], most: int = 100) -> str:
    """Return the first that a user says, on a line of at most `most` characters."""
    said = (content_text(message).split() for message in messages if message.get("role") == "user")
    line = " ".join(next(filter(None, said), ()))
    return line if len(line) <= most else f"{line[: most - 1].rstrip()}…"


def calls_of(message: Chat) -> list[tuple[str, str]]:
    """Return the calls of an assistant message: the name of the tool, and its arguments as text."""
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    found = [call.get("function") or call.get("custom") or {} for call in calls]
    if isinstance(message.get("function_call"), dict):
        found.append(message["function_call"])
    return [(str(one.get("name")), _plain(one.get("arguments", one.get("input")))) for one in found]


def _plain(arguments: object) -> str:
    """Return arguments as text in which no character outside ASCII is escaped."""
    if not isinstance(arguments, str):
        return "" if arguments is None else json.dumps(arguments, ensure_ascii=False, default=str)
    if "\\u" not in arguments:
        return arguments
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def message_text(message: Chat) -> str:
    """Return all that a message says: reasoning, content, calls."""
    reasoning = message.get("reasoning_content")
    lines = [reasoning if isinstance(reasoning, str) else "", content_text(message)]
    lines += [f"    CALL {name} {arguments}" for name, arguments in calls_of(message)]
    return "\n".join(line for line in lines if line)


def readable(messages: Sequence[Chat]) -> str:
    """Return messages as one text, numbered from 0: what a reader is given, and where keys are looked for."""
    return "\n".join(
        f"--- [{number}] {message.get('role')}\n{message_text(message)}"
        for number, message in enumerate(messages)
    )


class CachedCounter:
    """Count messages in tokens, the same message once; by a `TiktokenCounter` where no counter is given."""

    def __init__(self, counter: TokenCounter | None = None) -> None:
        self.counter: TokenCounter = TiktokenCounter() if counter is None else counter
        self._counts: dict[str, int] = {}
        self._kept: dict[int, tuple[Chat, int]] = {}

    def keep(self, messages: Iterable[Chat]) -> None:
        """Count messages that stay as they are, so that these very objects are known at once from now on."""
        for message in messages:
            self._kept[id(message)] = message, self.count(message)

    def count(self, message: Chat) -> int:
        """Return the tokens of a message; one that the counter cannot read counts as its JSON text."""
        kept = self._kept.get(id(message))
        if kept is not None:
            return kept[1]
        key = json.dumps(message, ensure_ascii=False, sort_keys=True, default=str)
        tokens = self._counts.get(key)
        if tokens is None:
            try:
                tokens = self.counter.count_messages([message])
            except ContextCompressorError:
                tokens = self.counter.count_text(key)
            self._counts[key] = tokens
        return tokens

    def count_all(self, messages: Sequence[Chat]) -> int:
        """Return the tokens of messages together."""
        return sum(map(self.count, messages))


class Recording:
    """A recorded session, prepared for replays.

    A turn is an assistant message before which something other than instructions stands: the histories before
    the others are no requests. A log of requests says itself which there were (`turns`). Where its program
    compacted the history, requests held what came from there.
    """

    def __init__(
        self,
        messages: Sequence[Chat],
        counter: TokenCounter | None = None,
        name: str = "",
        probes: Sequence[Probe] = (),
        compacted_at: Sequence[int] = (),
        turns: Sequence[int] | None = None,
    ) -> None:
        self.messages = list(messages)
        self.name = name
        self.probes = tuple(probes)
        self.counter = CachedCounter(counter)
        self.counter.keep(self.messages)
        self.tokens = [self.counter.count(message) for message in self.messages]
        roles = [message.get("role") for message in self.messages]
        begun = next((n for n, role in enumerate(roles) if role not in INSTRUCTION_ROLES), len(roles))
        answers = [n for n, role in enumerate(roles) if role == "assistant" and n > begun]
        self.turns = answers if turns is None else list(turns)
        """How many messages stood in each request: indexes of assistant messages, unless they were given."""

        self._compacted_at = sorted(compacted_at)
        self._begun = begun
        self.instruction_tokens = sum(self.tokens[:begun])

    def sent_from(self, place: int) -> int:
        """Return where that began, instructions apart, which the request before a message held."""
        return max((at for at in self._compacted_at if at < place), default=0)

    def sent(self, place: int) -> list[Chat]:
        """Return what the request before a message held."""
        start = self.sent_from(place)
        return self.messages[: min(self._begun, start)] + self.messages[start:place]

    def sent_tokens(self, place: int) -> int:
        """Return the tokens of that."""
        start = self.sent_from(place)
        return sum(self.tokens[: min(self._begun, start)]) + sum(self.tokens[start:place])

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole session."""
        return sum(self.tokens)
