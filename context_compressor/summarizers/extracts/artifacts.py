"""A row for each file, record or id that calls name, and for each other thing that was done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from context_compressor.summarizers.extracts.outcomes import (
    Outcome,
    fields_besides,
    fields_of,
    is_size,
    names_error,
    read_outcome,
)
from context_compressor.summarizers.extracts.passages import Item, Labels, Passage, flat, shorten
from context_compressor.summarizers.extracts.reading import Call, leaves_of

_NAMING_KEY = re.compile(r"(?:path|file|file_?name|url|uri|ids?)\Z", re.IGNORECASE)
_OLD_KEY = re.compile(r"old|before|original", re.IGNORECASE)
"""Begins the key of the side of an edit that is there no more."""
_NAME_CHARS = 200
_TEXT_CHARS = 200
"""From this length on an argument, or one of several lines, is a text that was written."""
_VALUE_CHARS = 1_500
_ACTION_SHARE = 0.02
"""What part of a call and its result the arguments are at least, where the call did something: what only
looks something up has short arguments and a long result."""
_NEWEST_WEIGHT = 2.0
"""How much longer than others the newest of several things done to a file or record may be."""
_COMMON = 4
"""What so many calls give, or so many results print, says nothing of one of them."""


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
    is_edit: bool = False
    """Whether it said what they replace: a whole file can be read again."""

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
    def weight(self) -> float:
        """How much there is to tell of it beyond its name."""
        return bool(self.written) + 0.5 * self.outcome.is_record + self.action

    @property
    def key(self) -> tuple[str, str]:
        """What a later call has in common that does the same."""
        if self.name:
            return self.call.name, self.name
        last = re.split(r"&&|;|\n", self.subject.strip("; \n"))[-1]
        return self.call.name, " ".join(last.split()[:3])


def read_calls(calls: Sequence[Call]) -> list[Done]:
    """Read what calls name, give, write and came to; without what so many of them have alike."""
    read = [_read_call(call, read_outcome(call)) for call in calls]
    arguments = Counter(pair for done in read for pair in done.arguments)
    lines = Counter(line for done in read for line in dict.fromkeys(done.outcome.told.parts))
    for done in read:
        done.arguments.sort(key=lambda pair: arguments[pair] >= _COMMON)
        if not done.outcome.failed and not done.outcome.is_record:
            given = {value for _, value in done.arguments}
            told = done.outcome.told
            tells = [
                lines[part] < _COMMON or is_size(str(part)) or names_error(str(part)) for part in told.parts
            ]
            kept = [n for n, part in enumerate(told.parts) if tells[n] and part not in given]
            done.outcome.told = told.only(kept or range(len(told.parts))[-1:])
    return read


def _read_call(call: Call, outcome: Outcome) -> Done:
    leaves = list(leaves_of(call.arguments))
    name = next((value for key, value in leaves if _names(key, value)), "")
    has_old = any(_OLD_KEY.match(key) for key, _ in leaves)
    written: list[str] = []
    old: set[str] = set()
    arguments = []
    for key, value in leaves:
        if _OLD_KEY.match(key):
            old.update(map(flat, value.splitlines()))
        elif value == name:
            continue
        elif name and _is_written(key, value, has_old):
            written += map(flat, value.splitlines())
        elif value:
            arguments.append((key, flat(value)))
    added = [line for line in written if line not in old and any(map(str.isalnum, line))]
    return Done(call, outcome, name, arguments, list(dict.fromkeys(added or written[:3])), has_old)


def _is_written(key: str, value: str, has_old: bool) -> bool:
    """Tell whether an argument is what a call writes: the new side of an edit, or a text."""
    is_new = has_old and key.casefold().startswith("new")
    return is_new or "\n" in value.strip() or len(value) > _TEXT_CHARS


def _names(key: str, value: str) -> bool:
    is_name = 3 <= len(value) <= _NAME_CHARS and not re.search(r"\s", value)
    return is_name and _NAMING_KEY.search(key) is not None


@dataclass(slots=True, eq=False)
class Row:
    """What was done to one file, record or id, or by one command."""

    name: str
    done: list[Done] = field(default_factory=list)
    times: int = 0
    """How often the call was made, where it has no name."""

    def item(self, labels: Labels, total: int) -> Item:
        """Return the line that tells it."""
        newest = self.done[-1]
        facts = list(self._facts(labels)) or [newest.outcome.told]
        did_something = any(
            done.action >= _ACTION_SHARE or done.outcome.is_record or done.outcome.failed
            for done in self.done
        )
        head = f"{self.times} × " if self.times > 1 else ""
        if self.name and len(self.done) > 1:
            counts = Counter(done.call.name for done in self.done)
            tools = [f"{name} ×{times}" if times > 1 else name for name, times in counts.items()]
            head = f"{self.name} ({', '.join(tools)}): "
        elif self.name:
            head = f"{self.name}: "
        worth = [done.action + 0.3 * done.outcome.is_record + 0.2 * done.outcome.failed for done in self.done]
        rank = max(worth) + 0.5 * newest.call.place / max(1, total) + min(len(self.done), 10) / 20
        weight = 0.5 + max(
            (done.is_edit or not done.written) * done.action + 0.5 * done.outcome.is_record + done.is_edit
            for done in self.done
        )
        weights = (1.0,) * (len(facts) - 1) + (_NEWEST_WEIGHT,)
        passage = Passage(facts, head, keeps="last", weights=weights)
        return Item("work" if did_something else "spare", newest.call.place, passage, rank, weight)

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
                yield Passage([call, replace(told, head="→ ")] if told.parts else [call], joint=" ")
            elif outcome.is_record:
                yield told

    def _call_of(self, done: Done) -> Passage | None:
        """Return a call with its arguments; None for one that only looked something up under a name."""
        is_told = not self.name or done.action >= _ACTION_SHARE or done.outcome.failed
        if done.written or not is_told or not done.arguments:
            return None if self.name else Passage([done.call.name])
        if len(done.arguments) == 1 and not self.name:
            return Passage([shorten(done.arguments[0][1], _VALUE_CHARS)], f"{done.call.name}: ")
        given = [f"{key}: {shorten(value, _VALUE_CHARS)}" for key, value in done.arguments]
        return Passage(given, f"{done.call.name} (", ")", ", ", keeps="first")


def rows_of(calls: list[Done]) -> list[Row]:
    """Return a row for each name that calls have, and for each other call, made again or not."""
    rows: dict[object, Row] = {}
    for done in calls:
        row = rows.setdefault(done.name or (done.call.name, done.subject), Row(done.name))
        if not done.name:
            row.done.clear()  # made again: what it came to before is the past
            row.times += 1
        row.done.append(done)
    return list(rows.values())
