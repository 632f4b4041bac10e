"""Preview what compilers, linkers and linters say between excerpts of code: each error once, by its place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from context_compressor.offload.previews.lines import (
    MAX_SHOWN,
    PATH,
    PLACED_CHARACTERS,
    SHAPE_CHARACTERS,
    SHOWN_CHARACTERS,
    Line,
    Show,
    choose_lines,
    counted,
    head_lines,
    looked_at,
)

MIN_DIAGNOSTICS = 3
MAX_LINES_PER_DIAGNOSTIC = 40
"""Fewer or sparser ones are a part of another text, a log of a build and its tests say."""

_LINES_AIMED_AT, _LEAST_SHOWN = 6, 60
"""Lines of a small preview are cut so that some fit, but not shorter: a path shall leave room for words."""

_MARKS = ("error", "warning", "ERROR", "WARNING", "undefined reference", "multiple definition")
"""Of these one stands in a line that tells of an error and its place."""
_PLACED = re.compile(
    rf"(?:\[(?P<shouted>ERROR|WARNING)\] |[^\s:]{{0,80}}ld: )?(?P<path>{PATH})"
    r"(?::\d+(?::\d+)?|:\[\d+,\d+\]|\(\d+(?:,\d+)?\)|:\(\.[\w.$+]{1,80}\)):?(?: -)? (?:fatal )?"
    r"(?P<level>error|warning|undefined reference|multiple definition)?"
)
"""GCC, Clang, javac, mypy and linkers; MSBuild and tsc, which put lines in brackets; Maven."""
_POINTERS = ("-->", "╭─[", "┌─")
_POINTED = re.compile(rf"[ \t]*(?:-->|╭─\[|┌─) ?(?P<place>(?P<path>{PATH}):\d+(?::\d+)?)")
"""Stands below an error of rustc, cargo or ruff, and says where it is."""
_REMARK = re.compile(r"[ \t]*(?:note|help)\b")
_HEADED = re.compile(r"[ \t]++(?P<place>\d+:\d+)[ \t]+(?P<level>error|warning)[ \t]+(?P<said>\S.*)")
"""ESLint's, below the path of the file."""
_VARYING = re.compile(r"'[^']*'|`[^`]*`|‘[^’]*’|\"[^\"]*\"|\d+")


class _Diagnostic(NamedTuple):
    line: Line
    path: str
    is_error: bool
    kind: str
    """What it says, without what differs from place to place."""


def show_diagnostics(text: str) -> Show | None:
    """Return what shows errors, then warnings, first one of each file and kind; None for another text."""
    if not any(map(text.__contains__, (*_MARKS, *_POINTERS))):
        return None
    lines = head_lines(text)
    found = list({found.line.text: found for found in _diagnostics(lines)}.values())
    if len(found) < MIN_DIAGNOSTICS or len(found) * MAX_LINES_PER_DIAGNOSTIC < len(lines):
        return None
    errors = [one for one in found if one.is_error]
    warnings = [one for one in found if not one.is_error]
    counts = ", ".join(
        counted(len(some), name) for some, name in ((errors, "error"), (warnings, "warning")) if some
    )
    files = counted(len({one.path for one in found}), "file")
    note = f"[{counts} in {files}{looked_at(text, lines)}]"
    last = next(number for number in range(len(lines) - 1, -1, -1) if lines[number].strip())
    verdict = [] if found[-1].line.number == last else [Line(last, lines[last])]
    ranked = [*verdict, *_ranked(errors), *_ranked(warnings)][:MAX_SHOWN]

    def show(characters: int) -> str:
        size = min(max(characters // _LINES_AIMED_AT, _LEAST_SHOWN), SHOWN_CHARACTERS)
        chosen = choose_lines(ranked, size, characters - len(note))
        return "\n".join((note, *(line.text for line in chosen)))

    return show


def _diagnostics(lines: Sequence[str]) -> Iterator[_Diagnostic]:
    above = heading = ""
    for number, whole in enumerate(lines):
        line = whole[:PLACED_CHARACTERS].rstrip()
        if found := _POINTED.match(line):
            if above and not _REMARK.match(above):
                said = Line(number - 1, f"{found['place']}: {above.strip()}")
                yield _diagnostic(said, found["path"], above.lstrip().startswith("error"), above)
        elif any(map(line.__contains__, _MARKS)):
            if found := _HEADED.match(line):
                said = Line(number, f"{heading}:{found['place']}: {found['level']}: {found['said']}")
                yield _diagnostic(said, heading, found["level"] == "error", found["said"])
            elif (found := _PLACED.match(line)) and (level := found["shouted"] or found["level"]):
                is_error = level.lower() != "warning"
                yield _diagnostic(Line(number, line), found["path"], is_error, line[found.end() :])
        elif " " not in line and ("/" in line or "." in line):
            heading = line
        above = line


def _diagnostic(line: Line, path: str, is_error: bool, said: str) -> _Diagnostic:
    return _Diagnostic(line, path, is_error, _VARYING.sub("", said[:SHAPE_CHARACTERS]))


def _ranked(found: Sequence[_Diagnostic]) -> Iterator[Line]:
    """Yield the first of each file, the first of each kind, then all; some of them twice."""
    files: dict[str, Line] = {}
    kinds: dict[str, Line] = {}
    for one in found:
        files.setdefault(one.path, one.line)
        kinds.setdefault(one.kind, one.line)
    yield from (*files.values(), *kinds.values(), *(one.line for one in found))
