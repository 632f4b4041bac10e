"""Pages of stored texts, read back: what each line is, and whether it stands in its source."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_N = r"([1-9][0-9]{0,11})"
_REF = r"(ctx://[0-9a-f]{16})"
_LINES_HEADER = re.compile(rf"\[{_REF} lines {_N}-{_N} of {_N}(?:, from column {_N})?(?:, to column {_N})?\]")
_LINES_CLOSING = re.compile(
    rf"\[end\]|\[more: (?:limit reached; |page full at {_N} tokens; )?read_offloaded\(ref, offset={_N}"
    rf"(?:\)|, column={_N}\); line {_N} has {_N} characters)\]"
)
"""Last lines as earlier releases wrote them, without a reason; histories still hold them."""
_FOUND_HEADER = re.compile(
    rf"\[{_REF} matches: {_N}, lines: {_N}(?:, (?:now|(?:(?:0|{_N}) to )?{_N} messages? ago))?\]"
)
_FOUND_LINE = re.compile(rf"{_N}(?::{_N}-{_N})?(?: x{_N})?[|-] (.*)", re.DOTALL)
_FOUND_CLOSING = re.compile(
    r"\[(?:end(?:; what stands in view was not searched)?"
    rf"|more: {_N} of {_N} matches shown; raise limit, name a ref or narrow the pattern"
    rf"|stopped after {_N} s, {_N} of {_N} matches found are shown; simplify the pattern or name a ref)"
    rf"(?:; room for context: (?:1 line|(?:0|{_N}) lines))?(?:; texts that could not be read: {_N})?\]"
)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A line as a page claims it: whole where `column` is None, else from there on."""

    ref: str
    total_lines: int
    number: int
    column: int | None
    text: str

    def stands_in(self, lines: Sequence[str]) -> bool:
        if len(lines) != self.total_lines or self.number > len(lines):
            return False
        line = lines[self.number - 1]
        if self.column is None:
            return line == self.text
        return line[self.column - 1 : self.column - 1 + len(self.text)] == self.text


def parse_page(text: str) -> list[tuple[int, int | None, str]] | None:
    """Return the number, the column and the text of each line that a page shows.

    None unless the whole text is a page by its grammar.
    """
    shown = _parse(text)
    return None if shown is None else [(line.number, line.column, line.text) for line in shown]


def page_matches(text: str, sources: Mapping[str, str]) -> bool:
    """Tell whether `text` is a page of which every line stands in `sources` (texts by ref) where it says."""
    shown = _parse(text)
    if shown is None or any(line.ref not in sources for line in shown):
        return False
    lines = {ref: sources[ref].split("\n") for ref in {line.ref for line in shown}}
    return all(line.stands_in(lines[line.ref]) for line in shown)


def _parse(text: str) -> list[_Shown] | None:
    if not text.startswith("[ctx://"):
        return None
    lines = text.split("\n")
    header = _LINES_HEADER.fullmatch(lines[0])
    return _parse_lines(lines, header) if header else _parse_found(lines)


def _parse_lines(lines: list[str], header: re.Match[str]) -> list[_Shown] | None:
    ref = header[1]
    first, last, total = int(header[2]), int(header[3]), int(header[4])
    from_column, to_column = (int(column) if column else None for column in header.group(5, 6))
    body = lines[1:-1]
    if not (first <= last <= total and len(body) == last - first + 1 and _LINES_CLOSING.fullmatch(lines[-1])):
        return None
    columns: list[int | None] = [None] * len(body)
    if to_column is not None:
        columns[-1] = 1
    if from_column is not None:
        columns[0] = from_column
    if to_column is not None and to_column - (columns[-1] or 1) + 1 != len(body[-1]):
        return None
    if any(column is not None and not text for column, text in zip(columns, body, strict=True)):
        return None
    return [
        _Shown(ref, total, number, column, text)
        for number, column, text in zip(range(first, last + 1), columns, body, strict=True)
    ]


def _parse_found(lines: list[str]) -> list[_Shown] | None:
    shown: list[_Shown] = []
    ref, total, is_empty = "", 0, False
    for line in lines[:-1]:
        if header := _FOUND_HEADER.fullmatch(line):
            if is_empty:
                return None
            ref, total, is_empty = header[1], int(header[3]), True
            continue
        found = _FOUND_LINE.fullmatch(line)
        if found is None or not ref:
            return None
        column = int(found[2]) if found[2] else None
        if column is not None and (not found[5] or int(found[3]) - column + 1 != len(found[5])):
            return None
        shown.append(_Shown(ref, total, int(found[1]), column, found[5]))
        is_empty = False
    return shown if shown and not is_empty and _FOUND_CLOSING.fullmatch(lines[-1]) else None
