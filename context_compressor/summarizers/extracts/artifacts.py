"""A row for each file, record or id that calls name, and for each other thing that was done."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from context_compressor.summarizers.extracts.items import Item, Kind, Labels
from context_compressor.summarizers.extracts.outcomes import Outcome, fields_besides, fields_of
from context_compressor.summarizers.extracts.passages import Passage, flat, shorten
from context_compressor.summarizers.extracts.reading import Call

_NAMING_KEY = re.compile(r"(?:path|file|filename|url|uri|ids?)\Z", re.IGNORECASE)
_OLD_KEY = re.compile(r"old|before|original", re.IGNORECASE)
"""Begins the key of the side of an edit that is there no more."""
_NAME_CHARS = 200
_TEXT_CHARS = 200
"""From this length on an argument, or one of several lines, is a text that was written."""
_VALUE_CHARS = 300
_ACTION_SHARE = 0.04
"""What part of a call and its result the arguments are at least, where the call did something: what only looks
something up has short arguments and a long result."""


@dataclass(slots=True, eq=False)
class Done:
    """A call, read."""

    call: Call
    outcome: Outcome
    name: str
    """The file, record or id that it names first; "" for none."""
    arguments: list[tuple[str, str]]
    """The others, by key."""
    written: list[str]
    """The lines that it wrote."""

    @property
    def subject(self) -> str:
        """What the call was about, on one line."""
        said = [value if len(self.arguments) == 1 else f"{key}: {value}" for key, value in self.arguments]
        return ", ".join([self.name, *said] if self.name else said)

    @property
    def action(self) -> float:
        """From 0 to 1, how far it did something rather than look something up."""
        given = sum(len(value) for _, value in self.arguments) + sum(map(len, self.written))
        return given / (given + self.outcome.chars + 40)

    @property
    def key(self) -> tuple[str, str]:
        """What a later call has in common that does the same."""
        if self.name:
            return self.call.name, self.name
        last = re.split(r"&&|;|\n", self.subject.strip("; \n"))[-1]
        return self.call.name, " ".join(last.split()[:3])


def read_call(call: Call, outcome: Outcome) -> Done:
    """Read what a call names, gives and writes."""
    leaves = list(_leaves(call.arguments))
    name = next((value for key, value in leaves if _names(key, value)), "")
    written: list[str] = []
    old: set[str] = set()
    arguments = []
    is_edit = any(_OLD_KEY.match(key) for key, _ in leaves)
    for key, value in leaves:
        if _OLD_KEY.match(key):
            old.update(map(str.strip, value.splitlines()))
        elif value == name:
            continue
        elif name and (is_edit and re.match("new", key, re.IGNORECASE) or "\n" in value.strip() or len(value) > _TEXT_CHARS):
            written += map(flat, value.splitlines())
        elif value:
            arguments.append((key, flat(value)))
    added = [line for line in written if line not in old and any(map(str.isalnum, line))]
    return Done(call, outcome, name, arguments, list(dict.fromkeys(added or written[:3])))


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, str(name))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, key)
    elif value is not None:
        yield key, str(value)


def _names(key: str, value: str) -> bool:
    return bool(_NAMING_KEY.search(key)) and 3 <= len(value) <= _NAME_CHARS and not re.search(r"\s", value)


@dataclass(slots=True, eq=False)
class Row:
    """What was done to one file, record or id, or by one command."""

    name: str
    done: list[Done] = field(default_factory=list)

    def item(self, labels: Labels, total: int) -> Item:
        """Return the line that tells it."""
        facts = list(self._facts(labels))
        kind: Kind = "work"
        if not facts:
            facts = [self.done[-1].outcome.told]
        newest = self.done[-1]
        counts: dict[str, int] = {}
        for done in self.done:
            counts[done.call.name] = counts.get(done.call.name, 0) + 1
        tools = ", ".join(f"{name} ×{times}" if times > 1 else name for name, times in counts.items())
        if all(done.action < _ACTION_SHARE and not done.outcome.is_record and not done.outcome.failed for done in self.done):
            kind = "spare"
        head = f"{self.name} ({tools}): " if len(facts) != len(self.done) or len(facts) > 1 else f"{self.name}: "
        rank = max(done.action + 0.3 * done.outcome.is_record + 0.2 * done.outcome.failed for done in self.done)
        rank += 0.5 * newest.call.place / max(1, total) + min(len(self.done), 10) / 20
        weight = 0.5 + max(bool(done.written) + 0.5 * done.outcome.is_record for done in self.done)
        passage = Passage(facts, head if self.name else "", keeps="last")
        return Item(kind, newest.call.place, passage, rank, weight)

    def _facts(self, labels: Labels) -> Iterator[str | Passage]:
        """Yield what there is to tell, oldest first; of later data what is new in them."""
        known: set[str] = set()
        for done in self.done:
            outcome, told = done.outcome, done.outcome.told
            if outcome.is_record:
                given = {f"{key}: {value}" for key, value in done.arguments}
                told = fields_besides(told, known | given, self.name)
                known.update(fields_of(outcome.told))
            call = self._call_of(done)
            if outcome.failed:
                yield Passage([call or done.call.name, replace(told, head=f"→ {labels.failed}: ")], joint=" ")
            elif done.written:
                yield Passage(done.written, f"{done.call.name} → " if len(self.done) > 1 else "", joint=" | ")
            elif call:
                yield Passage([call, replace(told, head="→ ")], joint=" ")
            elif outcome.is_record:
                yield told

    def _call_of(self, done: Done) -> Passage | None:
        """Return a call with its arguments; None for one that only looked something up under a name."""
        is_told = not self.name or done.action >= _ACTION_SHARE or done.outcome.failed
        if done.written or not is_told or not done.arguments:
            return None if self.name else Passage([done.call.name])
        if len(done.arguments) == 1 and not self.name:
            return Passage([shorten(done.arguments[0][1], _TEXT_CHARS * 4)], f"{done.call.name}: ")
        given = [f"{key}: {shorten(value, _VALUE_CHARS)}" for key, value in done.arguments]
        return Passage(given, f"{done.call.name} (", ")", ", ", keeps="first")


def rows_of(calls: list[Done]) -> list[Row]:
    """Return a row for each name that calls have, and for each other call, made again or not."""
    rows: dict[object, Row] = {}
    for done in calls:
        row = rows.setdefault(done.name or (done.call.name, done.subject), Row(done.name))
        if not done.name:
            row.done.clear()  # made again: what it came to before is the past
        row.done.append(done)
    return list(rows.values())
