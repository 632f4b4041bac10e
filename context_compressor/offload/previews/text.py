"""Preview plain text: its head, its tail, and the lines that speak of errors, each under its line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from context_compressor.offload.fitting import CHARS_PER_TOKEN_BOUND, largest_fitting
from context_compressor.offload.pages import split_lines
from context_compressor.tokens.protocol import TokenCounter

PIECE_CHARACTERS = 160
"""A line is shown in pieces of this length, so that one long line does not take the room of all others."""

MIN_PIECE_CHARACTERS = 20
"""In a small preview of few lines the pieces are shorter, down to this: head and tail shall both have one."""

FEW_LINES = 8
"""Up to so many lines, the pieces of one line follow each other (prose, minified code); with more lines, each
line shows its first piece only (logs, tables, records)."""

HEAD_SHARE, TAIL_SHARE, ERROR_SHARE = 0.4, 0.3, 0.3
"""How the characters of a preview are shared out; what one part leaves goes to the others."""

_LINES_LOOKED_AT = 10_000
"""From either end: after so many blank lines nothing is worth the time."""

_ERROR_WORDS = (
    "error",
    "exception",
    "traceback",
    "failed",
    "failure",
    "fatal",
    "panic",
    "denied",
    "错误",
    "失败",
    "异常",
    "报错",
)
_NO_ERROR = re.compile(
    r"\b(?:0|no|without) (?:errors?|failures?|exceptions?|failed)\b|\b(?:errors?|failed)[=:] ?0\b"
)
_HITS_PER_WORD = 25
"""Looked at from either end of the text: more is never shown, and a log of errors would take seconds."""


class _Piece(NamedTuple):
    """Part of a line: both numbers from 0, `part` counting pieces within the line."""

    line: int
    part: int


def preview_text(text: str, max_tokens: int, counter: TokenCounter, *, errors: bool = True) -> str:
    """Return head and tail of `text`, and its error lines, in at most `max_tokens`; "" when nothing fits.

    Args:
        text: any text.
        max_tokens: what the preview may cost.
        counter: what it is counted by.
        errors: whether lines that speak of errors have a share; without, head and tail take it all.
    """
    if max_tokens <= 0:
        return ""
    lines = _Lines(split_lines(text), max_tokens)
    pieces = lines.choose(_error_hits(text) if errors else [], max_tokens * CHARS_PER_TOKEN_BOUND)
    if not pieces:
        return ""

    def cost(count: int) -> int:
        return counter.count_text(lines.render(pieces[:count]))

    count = largest_fitting(cost, len(pieces), max_tokens, lines.pieces_within(pieces, max_tokens * 3))
    if count:
        return lines.render(pieces[:count])
    beginning = lines.piece(pieces[0])
    length = largest_fitting(
        lambda n: counter.count_text(beginning[:n]), len(beginning), max_tokens, max_tokens * 3
    )
    return beginning[:length]


class _Lines:
    """The lines of a text, in pieces sized for a preview of `max_tokens`."""

    def __init__(self, lines: Sequence[str], max_tokens: int) -> None:
        self._lines = lines
        self._are_few = len(lines) <= FEW_LINES
        self._size = PIECE_CHARACTERS
        if self._are_few:
            self._size = min(max(max_tokens // 2, MIN_PIECE_CHARACTERS), PIECE_CHARACTERS)

    def piece(self, piece: _Piece) -> str:
        return self._lines[piece.line][piece.part * self._size : (piece.part + 1) * self._size]

    def pieces_within(self, pieces: Sequence[_Piece], characters: int) -> int:
        """Return how many of the first pieces hold about `characters`, line numbers included."""
        for count, piece in enumerate(pieces):
            characters -= len(self.piece(piece)) + 4
            if characters < 0:
                return count
        return len(pieces)

    def choose(self, error_hits: Sequence[tuple[int, int]], most_characters: int) -> list[_Piece]:
        """Return pieces in the order in which they deserve a place, up to `most_characters`."""
        parts = [
            (HEAD_SHARE, self._from_head()),
            (TAIL_SHARE, self._from_tail()),
            (ERROR_SHARE, self._errors(error_hits)),
        ]
        spent = [0.0] * len(parts)
        chosen: dict[_Piece, None] = {}
        total = 0
        while parts and total < most_characters:
            place = min(range(len(parts)), key=lambda i: spent[i] / parts[i][0])
            piece = next(parts[place][1], None)
            if piece is None:
                del parts[place], spent[place]
            elif piece not in chosen:
                chosen[piece] = None
                size = len(self.piece(piece)) + 1
                spent[place] += size
                total += size
        return list(chosen)

    def _indexes(self, line: int) -> range:
        if not self._lines[line].strip():
            return range(0)
        return range(-(-len(self._lines[line]) // self._size) if self._are_few else 1)

    def _from_head(self) -> Iterator[_Piece]:
        numbers = range(min(len(self._lines), _LINES_LOOKED_AT))
        return (_Piece(line, index) for line in numbers for index in self._indexes(line))

    def _from_tail(self) -> Iterator[_Piece]:
        last = len(self._lines) - 1
        numbers = range(last, max(last - _LINES_LOOKED_AT, -1), -1)
        return (_Piece(line, index) for line in numbers for index in reversed(self._indexes(line)))

    def _errors(self, hits: Sequence[tuple[int, int]]) -> Iterator[_Piece]:
        """Yield the pieces with error words, the last and the first by turns, each before its neighbours."""
        for i in range(len(hits)):
            line, column = hits[-1 - i // 2] if i % 2 == 0 else hits[i // 2]
            # Folding case can move columns by a few characters in a text with a Turkish dotted capital I.
            yield _Piece(line, min(column, len(self._lines[line]) - 1) // self._size)
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
                first, last = run_start + 1, run_start + len(run)
                output.append(f"[line {first}]" if first == last else f"[lines {first}-{last}]")
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


def _error_hits(text: str) -> list[tuple[int, int]]:
    """Return `(line, column)` of the first and last error words, from 0, one per line."""
    folded = text.lower()
    offsets = sorted({offset for word in _ERROR_WORDS for offset in _occurrences(folded, word)})
    hits: list[tuple[int, int]] = []
    line, counted_to, seen = 0, 0, -1
    for offset in offsets:
        line += folded.count("\n", counted_to, offset)
        counted_to = offset
        if line == seen:
            continue
        nearby = folded[max(offset - 20, 0) : offset + 20]
        if not _NO_ERROR.search(nearby):
            hits.append((line, offset - folded.rfind("\n", 0, offset) - 1))
            seen = line
    return hits


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
