"""Logs of adapters that only look on: sizes of messages, of which sessions as large are made."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeGuard

from context_compressor.integrations.observed import KEY, VERSION
from context_compressor.lab.readers.documents import Document
from context_compressor.lab.readers.reader import Reader
from context_compressor.lab.readers.session import Format, Session, UnreadableError
from context_compressor.tokens.tiktoken import TiktokenCounter

_WORDS = (
    "time year people way day man thing world life hand part child eye place work week case point company "
    "number group problem fact water room mother area money story month right study book job word business "
    "issue side kind head house service friend power hour game line end member law car city name team"
)
_ROLES = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
_MOST_TOKENS = 10_000_000
"""Of a message: a log that says more is damaged."""
_LEAST, _MOST = 6, 24
"""Tokens of a line."""
_VALUED = 12
"""A line of more tokens may have values."""
_VALUE_TOKENS = 4
"""Of a value: each of its three digits, and the sign before them."""


class _Message(NamedTuple):
    """A message that the log tells of."""

    before: str
    """The number of the one that it follows; empty: it begins a list."""
    depth: int
    row: dict[str, Any]


class _Log:
    """The messages and requests of a log, joined to lists."""

    def __init__(self) -> None:
        self.messages: dict[str, _Message] = {}
        self.requests: dict[str, int] = {}
        """Tokens of the instructions, by the number of the last message; what is sent again counts once."""

    def take(self, line: dict[str, Any]) -> None:
        """Take in a line.

        Raises:
            UnreadableError: it is malformed, or goes on from what the log does not have.
        """
        before, new, instructions = line.get("follows"), line.get("new"), line.get("instructions")
        if not isinstance(before, str) or not isinstance(new, list) or not _is_size(instructions):
            raise UnreadableError("is no line of a log: expected follows, new and instructions")
        if before and before not in self.messages:
            raise UnreadableError(f"goes on from a message that the log does not have ({before:.20})")
        taken: dict[str, _Message] = {}
        for row in new:
            if not _is_row(row) or row["id"] in taken:
                raise UnreadableError("holds what is no message: expected id, role and tokens")
            depth = self._depth(before, taken) + 1
            taken[row["id"]] = _Message(before, depth, row)
            before = row["id"]
        if not before:
            raise UnreadableError("holds no message")
        for number, message in taken.items():
            self.messages.setdefault(number, message)
        self.requests[before] = instructions

    def _depth(self, number: str, taken: dict[str, _Message]) -> int:
        found = taken.get(number) or self.messages.get(number)
        return 0 if found is None else found.depth

    def lists(self) -> Iterator[tuple[list[dict[str, Any]], list[int], int]]:
        """Yield each list that was said, the longest first: its messages, how many stood in each request that
        no list before it had, and the tokens of its instructions.

        A request belongs to a list that goes on without its last message, as well: programs put reminders at
        the end that the next request does not have.
        """
        left = dict(sorted(self.requests.items(), key=lambda one: -self.messages[one[0]].depth))
        behind: dict[str, list[str]] = {}
        for last in left:
            behind.setdefault(self.messages[last].before, []).append(last)
        while left:
            number = next(iter(left))
            rows, turns, instructions = list[dict[str, Any]](), set[int](), left[number]
            while number:
                message = self.messages[number]
                if [one for one in (number, *behind.get(number, ())) if left.pop(one, None) is not None]:
                    turns.add(message.depth)
                rows.append(message.row)
                number = message.before
            yield rows[::-1], sorted(turns), instructions


def _is_size(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST_TOKENS


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or not (isinstance(row.get("id"), str) and row["id"]):
        return False
    calls = row.get("calls", {})
    is_told = (
        row.get("role") in _ROLES and isinstance(row.get("answers", ""), str) and isinstance(calls, dict)
    )
    return is_told and all(map(_is_size, (row.get("tokens"), *calls.values())))


class _Filler:
    """Make messages of so many tokens, whose words mean nothing."""

    @cached_property
    def _counter(self) -> TiktokenCounter:
        return TiktokenCounter()

    @cached_property
    def _words(self) -> list[str]:
        """Words of one token each, with the blank before them."""
        return [f" {word}" for word in _WORDS.split() if self._counter.count_text(f" {word}") == 1]

    def text(self, tokens: int, chance: random.Random) -> str:
        """Return lines of words, some with a value, as tools print them: notes by rules keep such lines."""
        lines = list[str]()
        while tokens > 0:
            length = min(tokens, chance.randint(_LEAST, _MOST))
            tokens -= length
            length -= tokens > 0  # for the line break
            values = chance.randint(0, 2) if length > _VALUED else 0
            words = chance.choices(self._words, k=length - _VALUE_TOKENS * values)
            for place in chance.sample(range(len(words)), values):
                words[place] += f"={chance.randint(100, 999)}"
            lines.append("".join(words))
        return "\n".join(lines)

    def message(self, row: dict[str, Any], number: int) -> dict[str, Any]:
        """Return the message in a place of a list; the same every time."""
        chance = random.Random(number)
        made: dict[str, Any] = {"role": row["role"], "content": ""}
        calls = row.get("calls") if row["role"] == "assistant" else None
        if row["role"] == "tool":
            made["tool_call_id"] = row.get("answers", "")
        elif row["role"] == "function":
            made["name"] = "tool"
        if calls:
            made["tool_calls"] = [
                {"id": id, "type": "function", "function": {"name": "tool", "arguments": "{}"}}
                for id in calls
            ]
            for call, tokens in zip(made["tool_calls"], calls.values(), strict=True):
                if text := self.text(tokens - 6, chance):
                    call["function"]["arguments"] = json.dumps({"of": text})
            made["content"] = None
        left = row["tokens"] - self._counter.count_messages([made])
        if left > 0:
            made["content"] = self.text(left, chance)
        return made


class Observed(Reader):
    """Read what adapters with `observe=` wrote: messages as large as those that were sent."""

    format = Format.OBSERVED

    def claims(self, sample: Sequence[Any]) -> int:
        """Return how many of the first values of a file are of this format."""
        return sum(isinstance(value, dict) and KEY in value for value in sample)

    def read(self, document: Document) -> Iterator[Session]:
        """Yield a session for each list; what cannot be read goes to `document.reject`."""
        log, filler = _Log(), _Filler()
        for number, line in document.values():
            with document.rejecting(number):
                if not isinstance(line, dict) or KEY not in line:
                    raise UnreadableError("is no line of a log of requests")
                if line[KEY] != VERSION:
                    raise UnreadableError(f"is of version {line[KEY]!r}; a newer release reads it")
                if "salt" not in line:
                    log.take(line)
                document.taken.count += 1
        for rows, turns, instructions in log.lists():
            before = [{"role": "system", "tokens": instructions}] if instructions else []
            yield Session(
                [filler.message(row, place) for place, row in enumerate([*before, *rows])],
                document.name,
                self.format,
                id=rows[-1]["id"],
                turns=tuple(turn + len(before) for turn in turns),
            )


READER = Observed()
