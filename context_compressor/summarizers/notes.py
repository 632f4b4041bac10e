"""Notes: the one text that stands for all that left a view, as lines that have numbers, and edits of them.

A writer is shown the lines with their numbers and answers with edits. `Notes` never changes; each method
returns others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Literal, NamedTuple

from context_compressor.summarizers.rules.choice import Candidate
from context_compressor.summarizers.rules.lines import GAP, Stretch
from context_compressor.summarizers.sections import (
    LEAST_FIRST,
    SECTIONS,
    SectionKey,
    is_chinese,
    is_placeholder,
    section_of_heading,
)

By = Literal["model", "rules"]
"""Who wrote a line."""

EDIT_FORMS = """\
## Heading
+ a new line under that heading, behind those that are there
12+ a new line, right behind line 12
~12 what line 12 says from now on
~12 "old words" => "new words"
-12"""
"""The edits that a writer may answer with: two ways to add, two to change, one to drop."""

_Kind = Literal["drop", "behind", "change", "add", "stray"]
_FORMS: tuple[tuple[_Kind, re.Pattern[str]], ...] = (
    ("drop", re.compile(r"-\s*(?P<number>\d{1,6})\.?(?P<said>)")),
    ("behind", re.compile(r"(?P<number>\d{1,6})\s?\+\s+(?P<said>\S.*)")),
    ("change", re.compile(r"~\s*(?P<number>\d{1,6})[:.]?\s+(?P<said>\S.*)")),
    ("change", re.compile(r"(?P<number>\d{1,6}):\s+(?P<said>\S.*)")),  # as it was shown: said again, or anew
    ("add", re.compile(r"(?:[+*•-]|\d{1,2}[.)、])(?P<number>)\s+(?P<said>\S.*)")),
)
_TORN = re.compile(r"~|-\d")
"""How a line begins that was to be an edit and has none of the forms."""
_HEADING = re.compile(r"#{1,6}\s+(\S.*)")
_MARKS = "\"'`´“”„‟‘’‚«»‹›「」『』"
_QUOTE = rf"\\?[{_MARKS}]"
_QUOTED = re.compile(rf"[{_MARKS}](.+)[{_MARKS}][.,;]?", re.DOTALL)
_ARROW = re.compile(rf"[{_MARKS}]\s*(?:=>|->|→)\s*[{_MARKS}]")
"""What stands between the old words and the new ones. Either may hold quotes of any kind, and this, too."""
_MOST_WAYS = 8
_ESCAPED = re.compile(rf"\\([{_MARKS}])")
_LOOSE = re.compile(rf"(\s+|{_QUOTE})")
_GOES_ON = "\n  "
"""What stands before each further line of a text."""


class Line(NamedTuple):
    """A line of notes."""

    number: int
    """In the order of first addition; never given to another text."""
    section: SectionKey
    text: str
    by: By = "model"
    topic: str = ""
    """The sub-heading that it stands under: a customer, a file, a question."""

    @property
    def words(self) -> tuple[SectionKey, str, str]:
        """What it says, and where: no two lines say the same."""
        return self.section, self.topic, self.text


class Faulty(NamedTuple):
    """An edit that could not be made, and why."""

    edit: str
    """All of it, as it was written."""
    why: str
    is_edit: bool = True
    """Whether it has the form of one: what has not says nothing that could be made after all."""

    def __str__(self) -> str:
        return f"{self.edit}: {self.why}"


@dataclass(frozen=True, slots=True)
class Notes:
    """Lines in the order in which they stand, and the number of the next; and what rules have at hand."""

    lines: tuple[Line, ...] = ()
    next_number: int = 1
    candidates: tuple[Candidate, ...] = ()
    """What rules may choose from at the next event."""
    stretches: tuple[Stretch, ...] = ()
    """Which messages these are of, by which rules tell gaps."""

    # What they say

    def text(self, *, numbered: bool = False) -> str:
        """Return the lines under their headings, as a view shows them or, with numbers, as a writer does."""
        chinese = is_chinese(line.text for line in self.lines)
        parts: list[str] = []
        for section in SECTIONS:
            of_section = [line for line in self.lines if line.section == section.key]
            if not of_section:
                continue
            shown = [f"## {section.chinese if chinese else section.english}"]
            for topic in sorted(dict.fromkeys(line.topic for line in of_section), key=bool):
                shown += [f"### {topic}"] if topic else []
                for line in of_section:
                    if line.topic == topic:
                        shown.append((f"{line.number}: " if numbered else "- ") + line.text)
            parts.append("\n".join(shown))
        return "\n\n".join(parts)

    def changed_since(self, earlier: Notes) -> list[Line]:
        """Return the lines that are new or say something else."""
        before = {line.number: line.text for line in earlier.lines}
        return [line for line in self.lines if before.get(line.number) != line.text]

    # Others

    def edited(self, answer: str) -> tuple[Notes, list[Faulty]]:
        """Return the notes after the edits of an answer, and those that could not be made.

        What stands under a heading and is no edit is a new line. Elsewhere it is passed over, and a fault
        only where the answer holds nothing else.
        """
        editing = _Editing(self)
        for edit in _edits_in(answer):
            editing.make(edit)
        notes = editing.notes()
        return notes, editing.faults or (editing.strays[:1] if notes == self else [])

    def added(self, text: str, by: By = "model") -> Notes:
        """Return the notes with the lines of a text behind them; without headings it tells what was done."""
        return self._with(_lines_of(text), by)

    def joined(self, other: Notes) -> Notes:
        """Return the notes with the lines of others behind them, which get new numbers."""
        said = {line.words for line in self.lines}
        lines = tuple(
            line._replace(number=self.next_number - 1 + line.number)
            for line in other.lines
            if line.words not in said
        )
        return Notes(
            self.lines + lines,
            self.next_number - 1 + other.next_number,
            self.candidates + other.candidates,
            self.stretches + other.stretches,
        )

    def replaced(self, text: str) -> Notes:
        """Return notes that say what a model's text says, and nothing else."""
        return replace(self, lines=())._with(_lines_of(text), "model", known=self.lines)

    def by_rules(
        self,
        told: Iterable[tuple[SectionKey, str]],
        candidates: Iterable[Candidate],
        stretches: Iterable[Stretch],
    ) -> Notes:
        """Return notes in which rules say this in place of what they said; what others wrote stays."""
        kept = replace(self, lines=tuple(line for line in self.lines if line.by != "rules"))
        new = kept._with(((section, "", said) for section, said in told), "rules", known=self.lines)
        return replace(new, candidates=tuple(candidates), stretches=tuple(stretches))

    def taken_over(self) -> Notes:
        """Return notes that are all a model's: it let stand what rules wrote, who choose from it no more."""
        return Notes(tuple(line._replace(by="model") for line in self.lines), self.next_number)

    def _with(
        self, told: Iterable[tuple[SectionKey, str, str]], by: By, *, known: Iterable[Line] = ()
    ) -> Notes:
        """Return the notes and new lines; one that says what a known one said gets its number."""
        numbers: defaultdict[tuple[SectionKey, str, str], list[int]] = defaultdict(list)
        for line in known:
            numbers[line.words].append(line.number)
        said = {line.words for line in self.lines}
        lines, number = list(self.lines), self.next_number
        for section, topic, text in told:
            words = section, topic, text
            if words in said and not text.startswith(GAP):
                continue
            said.add(words)
            earlier = numbers[words].pop(0) if numbers[words] else None
            lines.append(Line(earlier or number, section, text, by, topic))
            number += earlier is None
        return replace(self, lines=tuple(lines), next_number=number)

    def with_texts(self, texts: dict[int, str]) -> Notes:
        """Return the notes with other texts in the lines of these numbers; of two that are alike now one."""
        return self._once(line._replace(text=texts.get(line.number, line.text)) for line in self.lines)

    def moved(self, numbers: Container[int], section: SectionKey) -> Notes:
        """Return the notes with the lines of these numbers in another section."""
        return self._once(
            line._replace(section=section) if line.number in numbers else line for line in self.lines
        )

    def _once(self, lines: Iterable[Line]) -> Notes:
        return replace(self, lines=tuple({line.words: line for line in reversed([*lines])}.values())[::-1])

    def fitted(self, fits: Callable[[Notes], bool], *, newest: int | None = None) -> Notes:
        """Return as many lines as fit: whole ones go, by their section and there the oldest first.

        Lines from the number `newest` on go last.
        """
        order = sorted(
            self.lines,
            key=lambda line: (
                newest is not None and line.number >= newest,
                LEAST_FIRST.index(line.section),
                line.number,
            ),
        )
        low, high = 0, len(order)
        while low < high:  # how many have to go
            middle = (low + high) // 2
            if fits(self._without(order[:middle])):
                high = middle
            else:
                low = middle + 1
        return self._without(order[:low])

    def _without(self, lines: Iterable[Line]) -> Notes:
        gone = {line.number for line in lines}
        return replace(self, lines=tuple(line for line in self.lines if line.number not in gone))


class _Edit(NamedTuple):
    """What a line of an answer says, with those that go on with it."""

    kind: _Kind
    number: int
    """Of the line that it names; a line that is added names the last one that was, if no heading followed: it
    belongs where that stands. 0 for none."""
    said: str
    section: SectionKey
    topic: str
    raw: str
    """As it was written, without the lines that go on with it."""

    @property
    def whole(self) -> str:
        """As it was written."""
        return self.raw + "".join(self.said.partition(_GOES_ON)[1:])


def _edits_in(answer: str, *, plain: bool = False) -> Iterator[_Edit]:
    """Yield what an answer says, edit by edit; plain text holds new lines alone.

    What is indented deeper goes on with an edit, and so does what stands right below and is none.
    """
    section: SectionKey = "done" if plain else "state"
    topic, opened, is_below, indent, named = "", plain, False, 0, 0
    edit: _Edit | None = None
    for raw in answer.splitlines():
        line, depth = raw.strip(), len(raw) - len(raw.lstrip())
        if not line or line.startswith("```"):
            is_below = is_below and bool(line)
            continue
        kind, number, said = _form_of(line, plain=plain)
        title = said if kind == "add" and _HEADING.fullmatch(said) else line  # a heading said as a line
        key, heading = section_of_heading(title), _HEADING.fullmatch(title)
        is_more = kind == "stray" and not (key or heading) and (plain or not _TORN.match(line))
        if is_more and depth <= indent and is_placeholder(line):
            is_below = False
            continue
        if edit and (depth > indent or (is_more and is_below)):
            more = raw[min(depth, indent + len(_GOES_ON) - 1) :].rstrip()
            edit = edit._replace(said=f"{edit.said}{_GOES_ON}{more}")
            continue
        if edit:
            yield edit
        edit, is_below, indent = None, True, depth
        if key or heading:
            section, topic, named = (key, "", 0) if key else (section, heading[1] if heading else "", named)
            opened = True
        else:
            kind = "add" if is_more and opened else kind
            if kind in ("change", "behind"):
                named, topic = number, ""
            edit = _Edit(kind, number or named, said, section, topic, line)
            if kind == "drop":
                yield edit
                edit = None
    if edit:
        yield edit


def _form_of(line: str, *, plain: bool) -> tuple[_Kind, int, str]:
    """Return what a line does, to which line, and its words."""
    for kind, form in _FORMS[-1:] if plain else _FORMS:
        if found := form.fullmatch(line):
            return kind, int(found["number"] or 0), found["said"]
    return "stray", 0, line


def _lines_of(text: str) -> Iterator[tuple[SectionKey, str, str]]:
    """Yield the lines of a text with headings: section, sub-heading, words."""
    for edit in _edits_in(text, plain=True):
        if not is_placeholder(edit.said):
            yield edit.section, edit.topic, edit.said


class _Editing:
    """Make edits, one after the other."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._next = notes.next_number
        self._lines = {line.number: line for line in notes.lines}
        self._shown = dict(self._lines)
        """What edits can name, dropped ones among them: what is added behind one stands where it stood."""
        self._order = list(self._lines)
        self._last_behind: dict[int, int] = {}
        self.faults: list[Faulty] = []
        self.strays: list[Faulty] = []

    def notes(self) -> Notes:
        """Return the notes as they are by now."""
        lines = tuple(self._lines[number] for number in self._order if number in self._lines)
        return replace(self._notes, lines=lines, next_number=self._next)

    def make(self, edit: _Edit) -> None:
        """Make an edit, or note what is wrong with it."""
        line = self._lines.get(edit.number) if edit.number in self._shown else None
        if edit.kind == "stray":
            found = self.faults if _TORN.match(edit.raw) else self.strays
            found.append(Faulty(edit.whole, "this is no edit", is_edit=found is self.faults))
        elif edit.kind == "add":
            beside = self._shown.get(edit.number)
            section, topic = (
                (beside.section, edit.topic or beside.topic) if beside else (edit.section, edit.topic)
            )
            self._add(edit.said, section, topic)
        elif edit.kind == "behind" and edit.number in self._shown:
            self._add_behind(self._shown[edit.number], edit.said)
        elif line is None:
            self.faults.append(Faulty(edit.whole, f"there is no line {edit.number}"))
        elif edit.kind == "drop":
            del self._lines[line.number]
        else:
            self._change(line, edit)

    def _add(self, said: str, section: SectionKey, topic: str, place: int | None = None) -> bool:
        line = Line(self._next, section, said, "model", topic)
        if is_placeholder(said) or self._has(line):
            return False
        self._lines[self._next] = line
        self._order.insert(len(self._order) if place is None else place, self._next)
        self._next += 1
        return True

    def _add_behind(self, line: Line, said: str) -> None:
        after = self._last_behind.get(line.number, line.number)
        if self._add(said, line.section, line.topic, self._order.index(after) + 1):
            self._last_behind[line.number] = self._next - 1

    def _change(self, line: Line, edit: _Edit) -> None:
        said = edit.said
        arrow = _ARROW.search(said) if said[0] in _MARKS else None
        ways = _exchanges(said, line.text) if arrow else []
        # Another arrow may be the line's own, where it holds no such words.
        is_meant = "=>" in (arrow[0] if arrow else said) and (arrow is not None or said[0] == '"')
        if is_meant or any(times for _, times in ways):
            once = [text for text, times in ways if times == 1]
            if not once:
                why = f"line {line.number} does not hold these words" if ways else "this is no edit"
                why = "they stand there twice" if any(times for _, times in ways) else why
                self.faults.append(Faulty(edit.whole, why))
                return
            said = "\n".join(one for one in once[0].strip().splitlines() if one.strip())
        if said == line.text:
            return
        changed = line._replace(text=said, by="model")
        del self._lines[line.number]
        if not is_placeholder(said) and not self._has(changed):
            self._lines[line.number] = changed

    def _has(self, line: Line) -> bool:
        return any(line.words == other.words for other in self._lines.values())


def _exchanges(said: str, text: str) -> list[tuple[str, int]]:
    """Return what a line says after the exchange of words that an edit asks for, and how often it held them.

    Where a quoted piece holds an arrow between quotes itself, there are several ways to read the edit, those
    with an arrow between quotes such as stand around it all first.
    """
    ways: list[tuple[str, int]] = []
    if quoted := _QUOTED.fullmatch(said):
        around = said[quoted.end(1)] + said[0]
        arrows = [*islice(_ARROW.finditer(said, 1, quoted.end(1)), _MOST_WAYS)]
        for arrow in sorted(arrows, key=lambda one: one[0][0] + one[0][-1] != around):
            old, new = said[1 : arrow.start()], said[arrow.end() : quoted.end(1)]
            if not _ESCAPED.search(text):  # nothing there needs an escape
                new = _ESCAPED.sub(r"\1", new)
            places = [*re.finditer(re.escape(old), text)] or [*re.finditer(_loosely(old), text)]
            start, end = places[0].span() if places else (0, 0)
            ways.append((text[:start] + new + text[end:], len(places)))
    return ways


def _loosely(words: str) -> str:
    """Return a pattern that finds words with quotes of another kind, escaped or not, and other blanks."""
    pieces = _LOOSE.split(words)
    for at in range(1, len(pieces), 2):
        pieces[at] = r"\s+" if pieces[at].isspace() else _QUOTE
    return "".join(piece if at % 2 else re.escape(piece) for at, piece in enumerate(pieces))


def begins_with_edit(text: str) -> bool:
    """Tell whether the first line of a text changes, drops or adds a line."""
    first = text.lstrip().partition("\n")[0].strip()
    kind, _, _ = _form_of(first, plain=False)  # "404: Not Found" is none
    return first.startswith("+ ") or kind == "behind" or (kind in ("drop", "change") and first[0] in "-~")
