"""What recognisers share: a bounded sample of a text, and chosen lines shown under their numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

SAMPLE_CHARACTERS = 1500
"""Read at the head and in the middle: enough to tell a kind, and a small part of what a preview takes."""

HEAD_LINES, MIDDLE_LINES = 6, 22
"""In the sample: the head is often a command, a header or a warning around the text itself."""

MAX_LINE_CHARACTERS = 200
"""Of each line in the sample, so that no pattern meets a long one."""

CHARACTERS_LOOKED_AT, LINES_LOOKED_AT = 200_000, 10_000
"""By what collects lines of a kind; the rest of a longer text is left to the names."""

SHOWN_CHARACTERS = 160
"""Of one line."""

MAX_SHOWN = 1000
"""Lines ranked for a preview: more never fit."""

NUMBERS = re.compile(r"^\[lines? \d[^\]]*\][ \n]", re.MULTILINE)
"""What stands above shown lines, for previews whose lines are not those of the text."""

_NUMBER_CHARACTERS = 16
"""What a line number costs, in characters of text."""


Show = Callable[[int], str]
"""Returns a preview of about so many characters, the longer the more it is given; "" when nothing fits."""

PATH = r"(?:[A-Za-z]:\\)?[^\s:()\[\]{}'\"<>]{1,300}"
"""What may be a path before a line number, in the output of compilers and grep."""
PLACED_CHARACTERS = 400
"""Read of a line that names such a place."""
SHAPE_CHARACTERS = 40
"""Of what it says, compared to tell one kind from another."""


class Line(NamedTuple):
    """What is shown for a line; its number is from 0."""

    number: int
    text: str


def sample_lines(text: str) -> list[str]:
    """Return lines from the head and the middle of `text`, shortened, without blank ones."""
    if len(text) <= 2 * SAMPLE_CHARACTERS:
        return _window(text, HEAD_LINES + MIDDLE_LINES)
    middle = len(text) // 2
    head, inner = text[:SAMPLE_CHARACTERS], text[middle : middle + SAMPLE_CHARACTERS]
    # What a window cuts is left out: its last line, and the first of the one from the middle.
    return [
        *_window(head[: head.rfind("\n") + 1] or head, HEAD_LINES),
        *_window(inner[inner.find("\n") + 1 : inner.rfind("\n") + 1], MIDDLE_LINES),
    ]


def share(flags: Iterable[bool]) -> float:
    """Return the part of `flags` that is true; 0 for none."""
    known = list(flags)
    return sum(known) / len(known) if known else 0.0


def head_lines(text: str) -> list[str]:
    """Return the lines that are looked at from the beginning of `text`."""
    if len(text) > CHARACTERS_LOOKED_AT:
        # Without the line that is cut, unless it is the only one: it may end in half a name.
        end = text.rfind("\n", 0, CHARACTERS_LOOKED_AT + 1)
        text = text[: end if end > 0 else CHARACTERS_LOOKED_AT]
    return text.split("\n")[:LINES_LOOKED_AT]


def looked_at(text: str, lines: Sequence[str]) -> str:
    """Return what says that a count is of `lines` only; "" where they are the whole text."""
    cut = len(text) > CHARACTERS_LOOKED_AT or len(lines) == LINES_LOOKED_AT
    return f" in the first {len(lines)} lines" if cut else ""


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('ch') else 's'}"


def first_line(lines: Sequence[str], characters: int) -> str:
    """Return the first line that is not blank, under its number: it often says what the text is."""
    number = next(number for number, line in enumerate(lines) if line.strip())
    shown = shorten(lines[number], max(20, min(SHOWN_CHARACTERS, characters // 2)))
    return f"[line {number + 1}]\n{shown}"


def shorten(line: str, characters: int) -> str:
    """Return `line` without the blanks at its end, cut and marked with "…" where it is longer."""
    return line[:characters].rstrip() + ("…" if len(line) > characters else "")


def show_lines(ranked: Iterable[Line], note: str = "") -> Show:
    """Return what shows a note, and the first of `ranked` that fit, in the order of the text."""
    lines = list(islice(ranked, MAX_SHOWN))

    def show(characters: int) -> str:
        size = min(max(characters // 3, 20), SHOWN_CHARACTERS)
        # Every fourth line follows the one before, more or less: it needs no number of its own.
        chosen = choose_lines(lines, size, characters - len(note), _NUMBER_CHARACTERS * 3 // 4)
        return "\n".join(filter(None, (note, *_under_numbers(chosen))))

    return show


def choose_lines(ranked: Iterable[Line], size: int, room: int, frame: int = 0) -> list[Line]:
    """Return the first of `ranked` that fit into `room` characters, at least one, in the order of the text.

    Each is cut to `size` characters, and costs `frame` more than it has.
    """
    chosen: dict[int, str] = {}
    for number, text in ranked:
        if number not in chosen:
            shown = shorten(text, size)
            room -= len(shown) + 1 + frame
            if room < 0 and chosen:
                break
            chosen[number] = shown
    return [Line(number, shown) for number, shown in sorted(chosen.items())]


def _under_numbers(lines: Sequence[Line]) -> list[str]:
    """Return the lines, each unbroken run of them under its numbers."""
    output: list[str] = []
    run: list[str] = []
    for i, (number, text) in enumerate(lines):
        run.append(text)
        if i + 1 == len(lines) or lines[i + 1][0] != number + 1:
            output += [line_numbers(number + 1 - len(run), number), *run]
            run = []
    return output


def line_numbers(first: int, last: int) -> str:
    """Return what stands above lines, whose numbers are from 0 as they come, from 1 as they are shown."""
    return f"[line {first + 1}]" if first == last else f"[lines {first + 1}-{last + 1}]"


def _window(text: str, most: int) -> list[str]:
    lines = text.split("\n", most)[:most]
    shortened = (line[:MAX_LINE_CHARACTERS].rstrip() for line in lines)
    return [line for line in shortened if line]
