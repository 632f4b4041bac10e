"""Preview plain text: its head, its tail, and the lines that speak of errors, each under its line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from context_compressor.offload.previews.lines import Show, line_numbers

PIECE_CHARACTERS = 160
"""A line is shown in pieces of this length, so that one long line does not take the room of all others."""

MIN_PIECE_CHARACTERS = 20
"""In a small preview the pieces are shorter, down to this: head and tail shall both have one."""

FEW_LINES = 8
"""Up to so many lines, the pieces of one line follow each other (prose, minified code); with more lines, each
line shows its first piece only (logs, tables, records)."""

HEAD_SHARE, TAIL_SHARE, ERROR_SHARE = 0.4, 0.3, 0.3
"""How the characters of a preview are shared out; what one part leaves goes to the others."""

_NUMBERS_CHARACTERS = 20
"""What the line above a run of lines costs, in characters of text."""

_LINES_LOOKED_AT = 10_000
"""From either end: after so many blank lines nothing is worth the time."""

_ERROR_WORDS = (
    *("error", "exception", "traceback", "failed", "failure", "fatal", "panic", "denied"),
    *("segmentation fault", "received signal", "not ok ", "npm err!"),
    *("loopbackoff", "pullbackoff", "oomkilled", "unhealthy", "exited (1", "exited (2"),  # rows of tables
    *("错误", "失败", "异常", "报错"),
)
_ENGLISH_ERROR_WORDS = tuple(word for word in _ERROR_WORDS if word.isascii())
_SHOUTED = "FAIL"
"""Marks a failed test in capitals (`--- FAIL: TestX`, `[FAIL]`); in small letters it is a word of prose."""
_NO_ERROR = re.compile(
    r"\b(?:0|no|without) (?:errors?|failures?|exceptions?|fail(?:ed)?)\b"
    r"|\b(?:errors?|fail(?:ed)?)[=:] {0,2}0\b"
)
_HITS_PER_WORD = 25
"""Looked at from either end of the text: more is never shown, and a log of errors would take seconds."""


class _Piece(NamedTuple):
    """Part of a line: both numbers from 0, `part` counting pieces within the line."""

    line: int
    part: int


def show_text(text: str, *, errors: bool = True) -> Show:
    """Return what shows head and tail of `text`, and its error lines, in about so many characters.

    Without `errors`, head and tail take it all.
    """
    lines = text.split("\n")
    # The Turkish dotted capital I is the one letter that becomes longer, and would move what follows it.
    folded = text.replace("İ", "i").lower() if errors else ""
    offsets = _error_offsets(folded, text) if errors else []

    def show(characters: int) -> str:
        sized = _Lines(lines, characters)
        pieces = sized.choose(_error_places(folded, offsets), characters)
        if pieces:
            return sized.render(pieces)
        return next((line for line in lines[:_LINES_LOOKED_AT] if line.strip()), "")[: max(characters, 0)]

    return show


class _Lines:
    """The lines of a text, in pieces sized for a preview of so many characters."""

    def __init__(self, lines: Sequence[str], characters: int) -> None:
        self._lines = lines
        self._are_few = len(lines) <= FEW_LINES
        share = characters // (6 if self._are_few else 3)
        self._size = min(max(share, MIN_PIECE_CHARACTERS), PIECE_CHARACTERS)

    def choose(self, error_places: Iterator[tuple[int, int]], characters: int) -> list[_Piece]:
        """Return pieces of about `characters` together; what one part leaves goes to the others."""
        chosen: set[_Piece] = set()
        left = characters - self._take(self._errors(error_places), characters * ERROR_SHARE, 0, chosen)
        head = left * HEAD_SHARE / (HEAD_SHARE + TAIL_SHARE)
        from_head = self._from_head()
        left -= self._take(from_head, head, left, chosen)
        left -= self._take(self._from_tail(), left, left, chosen)
        self._take(from_head, left, 0, chosen)
        return sorted(chosen)

    def _take(self, pieces: Iterator[_Piece], room: float, most: float, chosen: set[_Piece]) -> float:
        """Add pieces to `chosen` up to `room` characters, the first one up to `most`; return their size."""
        taken, last = 0.0, -2
        for piece in pieces:
            if piece in chosen:
                continue
            line, part = piece
            size = min(len(self._lines[line]) - part * self._size, self._size) + 1
            if not -1 <= line - last <= 1:
                size += _NUMBERS_CHARACTERS
            if taken + size / 2 > room and (taken or size > most):
                break
            chosen.add(piece)
            taken += size
            last = line
        return taken

    def _parts(self, line: int) -> range:
        text = self._lines[line]
        if not text or text.isspace():
            return range(0)
        return range(-(-len(text) // self._size) if self._are_few else 1)

    def _from_head(self) -> Iterator[_Piece]:
        for line in range(min(len(self._lines), _LINES_LOOKED_AT)):
            for part in self._parts(line):
                yield _Piece(line, part)

    def _from_tail(self) -> Iterator[_Piece]:
        last = len(self._lines) - 1
        for line in range(last, max(last - _LINES_LOOKED_AT, -1), -1):
            for part in reversed(self._parts(line)):
                yield _Piece(line, part)

    def _errors(self, places: Iterator[tuple[int, int]]) -> Iterator[_Piece]:
        """Yield the pieces with error words, each before its neighbours."""
        for line, column in places:
            yield _Piece(line, column // self._size)
            for neighbour in (line + 1, line - 1):
                if 0 <= neighbour < len(self._lines) and self._lines[neighbour].strip():
                    yield _Piece(neighbour, 0)

    def render(self, pieces: Sequence[_Piece]) -> str:
        """Return the pieces in the order of the text; each run of lines stands under its numbers.

        A line that goes on after its piece ends in "…"; a piece from within a line names its columns.
        """
        output: list[str] = []
        run: list[str] = []
        run_start = 0

        def close_run() -> None:
            if run:
                output.append(line_numbers(run_start, run_start + len(run) - 1))
                output.extend(run)
                run.clear()

        for line, first_index, last_index in _stretches(pieces):
            whole = self._lines[line]
            begin, end = first_index * self._size, min((last_index + 1) * self._size, len(whole))
            shown = whole[begin:end] + ("…" if end < len(whole) else "")
            if begin:
                close_run()
                output += [f"[line {line + 1}, columns {begin + 1}-{end}]", shown]
                continue
            if line != run_start + len(run):
                close_run()
            if not run:
                run_start = line
            run.append(shown)
        close_run()
        return "\n".join(output)


def _stretches(pieces: Sequence[_Piece]) -> list[tuple[int, int, int]]:
    """Return `(line, first index, last index)` of each unbroken stretch within a line, in order."""
    stretches: list[tuple[int, int, int]] = []
    for line, index in sorted(pieces):
        if stretches and stretches[-1][0] == line and stretches[-1][2] == index - 1:
            stretches[-1] = (line, stretches[-1][1], index)
        else:
            stretches.append((line, index, index))
    return stretches


def _error_offsets(folded: str, text: str) -> list[int]:
    """Return where the first and the last error words stand, in order."""
    words = _ENGLISH_ERROR_WORDS if folded.isascii() else _ERROR_WORDS
    offsets = {offset for word in words for offset in _occurrences(folded, word)}
    return sorted(offsets.union(_occurrences(text, _SHOUTED)))


def _error_places(folded: str, offsets: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield `(line, column)` of error words, from 0, the last and the first by turns, one per line."""
    seen = set()
    for i in range(len(offsets)):
        offset = offsets[-1 - i // 2] if i % 2 == 0 else offsets[i // 2]
        start = folded.rfind("\n", 0, offset) + 1
        if start not in seen and not _NO_ERROR.search(folded, max(offset - 20, 0), offset + 20):
            seen.add(start)
            yield folded.count("\n", 0, start), offset - start


def _occurrences(folded: str, word: str) -> Iterator[int]:
    offset = -1
    for _ in range(_HITS_PER_WORD):
        offset = folded.find(word, offset + 1)
        if offset < 0:
            return
        yield offset
    seen, offset = offset, len(folded)
    for _ in range(_HITS_PER_WORD):
        offset = folded.rfind(word, seen, offset)
        if offset < 0:
            return
        yield offset
