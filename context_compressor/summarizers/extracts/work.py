"""The work: a row for each file, record or id and each other thing done, failures, plans, and what was told.

Read from calls and what they came to, and from the lines of earlier summaries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from context_compressor.messages.parts import leaves_of
from context_compressor.messages.speech import weight_of
from context_compressor.summarizers.extracts.outcomes import (
    Outcome,
    fields_besides,
    fields_of,
    is_size,
    names_error,
    read_outcome,
)
from context_compressor.summarizers.extracts.passages import (
    CHINESE,
    ENGLISH,
    Item,
    Kind,
    Labels,
    Passage,
    flat,
    shorten,
)
from context_compressor.summarizers.extracts.reading import Call, Material, Told
from context_compressor.summarizers.extracts.words import worth_of

COUNT = re.compile(r"^\d+ × ")
"""What stands before a line that tells several calls as one."""
_NAMING_KEY = re.compile(r"(?:path|file|file_?name|url|uri|ids?)\Z", re.IGNORECASE)
_OLD_KEY = re.compile(r"old|before|original", re.IGNORECASE)
"""How the key begins under which an edit gives the text that it replaces."""
_NAME_CHARS = 200
_TEXT_CHARS = 200
"""From this length on an argument, or one of several lines, is a text that was written."""
_VALUE_CHARS = 1_500
_ACTION_SHARE = 0.02
"""What part of a call and its result the arguments are at least, where the call did something: what only
looks something up has short arguments and a long result."""
_NEWEST_WEIGHT = 2.0
"""How much longer than others the newest of several things done to a file or record may be."""
_SUBJECT_CHARS, _STEP_CHARS, _HEADING_CHARS = 200, 160, 40
_LANGUAGES = (ENGLISH, CHINESE)
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
    written: list[str]
    is_edit: bool = False
    """Whether it said what they replace: a whole file can be read again."""
    times: int = 1
    """How often a call that failed was made in a row."""

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
    leaves = [(key, str(value)) for key, value in leaves_of(call.arguments) if value is not None]
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
    return [_polled(row) for row in rows.values()]


def _polled(row: Row) -> Row:
    """Return a row of the same call again and again as one of a call: what it came to before is the past."""
    *_, newest = row.done
    same = {(done.call.name, done.subject) for done in row.done if not done.written}
    if not row.name or len(row.done) < 2 or len(same) > 1 or any(done.written for done in row.done):
        return row
    key = next(key for key, value in leaves_of(newest.call.arguments) if str(value) == row.name)
    made = replace(newest, name="", arguments=[(key, row.name), *newest.arguments])
    return Row("", [made], len(row.done))


# Plans, failures, and what earlier summaries told


def plan_in(arguments: Any) -> dict[str, list[str]]:
    """Return the steps of a plan by their status: a list of objects that each have one; empty for no plan."""
    for steps in arguments.values() if isinstance(arguments, dict) else ():
        if isinstance(steps, list) and steps and all(isinstance(s, dict) and "status" in s for s in steps):
            plan: dict[str, list[str]] = {}
            for step in steps:
                texts = [text for key, text in step.items() if key != "status" and isinstance(text, str)]
                told = shorten(flat(max(texts, key=len, default="")), _STEP_CHARS)
                plan.setdefault(str(step["status"]), []).append(told)
            return plan
    return {}


def state_items(calls: Sequence[Done], labels: Labels) -> Iterator[Item]:
    """Yield the newest plan and the calls without a result; what was asked last stays in the view."""
    plan = next((plan for done in reversed(calls) if (plan := plan_in(done.call.arguments))), {})
    for number, (status, steps) in enumerate(plan.items()):
        rank = 1.0 + (status not in ("completed", "done"))
        yield Item("state", number, Passage(steps, f"{status}: ", joint="; "), rank)
    waiting = [done for done in calls if done.call.result is None]
    for done in waiting[-3:]:
        told = f"{done.call.name}: {shorten(done.subject, _SUBJECT_CHARS)}"
        yield Item("state", 100 + done.call.place, Passage([told], f"{labels.no_result}: "), 1.5)


def failure_items(failures: Sequence[Done]) -> Iterator[Item]:
    """Yield a line for each failure that stands, with the exact error."""
    for done in failures:
        count = f"{done.times} × " if done.times > 1 else ""
        head = f"{count}{done.call.name}: {shorten(done.subject, _SUBJECT_CHARS)} → "
        place = done.call.place
        yield Item("failure", place, replace(done.outcome.told, head=head), place, 1.5)


def standing_failures(calls: Sequence[Done]) -> list[Done]:
    """Return the calls that failed, each once, where the same tool has not succeeded since.

    That is at the same name, or with the same first words.
    """
    newest: dict[tuple[str, str], Done | None] = {}
    failures = []
    for done in reversed(calls):
        if done.call.result is None:
            continue
        later = newest.get(done.key)
        if not done.outcome.failed:
            newest[done.key] = None
        elif done.key not in newest:
            newest[done.key] = done
            failures.append(done)
        elif later is not None and later.subject == done.subject:
            later.times += 1
    return failures[::-1]


def carried_items(material: Material, calls: Sequence[Done]) -> Iterator[Item]:
    """Yield the lines of earlier summaries as the oldest of the lists that they belong to.

    A line never becomes a user's new words. What failed and has succeeded since is told with the rest, and of
    the state only what nothing newer says.
    """
    count = len(material.told)
    said = [number for number, told in enumerate(material.told) if _kind_of(told) == "user"]
    is_over = any(words.closing or words.speaker != "agent" for words in material.words)
    over = set(said if is_over else said[:-1])
    again = {done.name for done in calls if done.name}
    seen: set[Kind] = set()
    for number, told in enumerate(material.told):
        kind = _kind_of(told)
        if kind == "state" and not _still_holds(told, material, calls):
            continue
        if kind == "failure" and any(_mends(done, told.line) for done in calls):
            kind = "work"
        line = told.line
        if kind == "earlier" and told.heading not in {labels.earlier for labels in _LANGUAGES}:
            heading = told.heading[:_HEADING_CHARS]
            line = f"{heading}: {line}" if heading else line
        if number in over:
            line = _answered(line)
        rank = (number + 1) / count + (kind not in seen) - (line.partition(" (")[0] in again)
        rank += worth_of(weight_of(line)) * (kind == "user")
        seen.add(kind)
        is_row = kind in ("agent", "work") and " · " in line
        passage = Passage(line.split(" · ")) if is_row else Passage([line], is_quote=True)
        yield Item(kind, number - count, passage, rank, carried=True)


def _answered(line: str) -> str:
    """Return a user's words with the mark of what was answered: the agent closed, or the user went on."""
    if any(line.endswith(f"({labels.answered})") for labels in _LANGUAGES):
        return line
    labels = CHINESE if line.startswith((f"{CHINESE.user}: ", f"{CHINESE.user} ")) else ENGLISH
    return f"{line} ({labels.answered})"


def _kind_of(told: Told) -> Kind:
    for labels in _LANGUAGES:
        if told.heading == labels.log:
            is_user = told.line.startswith((f"{labels.user}: ", f"{labels.user} ", f"{labels.system}: "))
            return "user" if is_user else "agent" if told.line.startswith(f"{labels.agent}: ") else "work"
        if told.heading == labels.failures:
            return "failure"
        if told.heading == labels.state:
            return "state"
    return "earlier"


def _still_holds(told: Told, material: Material, calls: Sequence[Done]) -> bool:
    """Tell whether a line on the state of the work is the newest of its kind."""
    states = [other for other in material.told if _kind_of(other) == "state"]
    newest = max(other.summary for other in states)
    if told.summary != newest:
        return False
    if told.line.startswith(tuple(labels.no_result for labels in _LANGUAGES)):
        return not calls
    return not any(plan_in(done.call.arguments) for done in calls)


def _mends(done: Done, line: str) -> bool:
    """Tell whether a call has succeeded at what a line tells as a failure."""
    tool, first = done.key
    line = COUNT.sub("", line)
    subject = line.removeprefix(f"{tool}: ").partition(" → ")[0]
    has_succeeded = done.call.result is not None and not done.outcome.failed
    return has_succeeded and line.startswith(f"{tool}: ") and first in subject
