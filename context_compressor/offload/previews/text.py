"""Preview plain text: its head, its tail, and the lines that speak of errors, each under its line number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from context_compressor.offload.fitting import CHARS_PER_TOKEN_BOUND, largest_fitting
from context_compressor.offload.pages import split_lines
from context_compressor.tokens.protocol import TokenCounter

PIECE_CHARACTERS = 160
"""A line is shown in pieces of this length, so that one long line does not take the room of all others."""

FEW_LINES = 8
"""Up to so many lines, the pieces of one line follow each other (prose, minified code); with more lines, each
line shows its first piece only (logs, tables, records)."""

HEAD_SHARE, TAIL_SHARE, ERROR_SHARE = 0.4, 0.3, 0.3
"""How the characters of a preview are shared out; what one part leaves goes to the others."""

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


@dataclass(frozen=True, slots=True, order=True)
class _Piece:
    """Part of a line: `line` and `index` from 0, `index` counting pieces of `PIECE_CHARACTERS`."""

    line: int
    index: int


def preview_text(text: str, max_tokens: int, counter: TokenCounter, *, errors: bool = True) -> str:
    """Return head and tail of `text`, and its error lines, in at most `max_tokens`; "" when nothing fits.

    Args:
        text: any text.
        max_tokens: what the preview may cost.
        counter: what it is counted by.
        errors: whether lines that speak of errors have a share; without, head and tail take it all.
    """
    lines = split_lines(text)
    pieces = _choose(lines, text if errors else "", max_tokens * CHARS_PER_TOKEN_BOUND)
    if max_tokens <= 0 or not pieces:
        return ""

    def shown(count: int) -> str:
        return _render(lines, pieces[:count])

    guess = _pieces_within(lines, pieces, max_tokens * 3)
    count = largest_fitting(lambda n: counter.count_text(shown(n)), len(pieces), max_tokens, guess)
    if count:
        return shown(count)
    beginning = lines[pieces[0].line][:PIECE_CHARACTERS]
    length = largest_fitting(
        lambda n: counter.count_text(beginning[:n]), len(beginning), max_tokens, max_tokens * 3
    )
    return beginning[:length]


def _choose(lines: Sequence[str], searched: str, most_characters: int) -> list[_Piece]:
    """Return pieces in the order in which they deserve a place, up to `most_characters`."""
    parts = [(HEAD_SHARE, _from_head(lines)), (TAIL_SHARE, _from_tail(lines))]
    if searched:
        parts.append((ERROR_SHARE, _error_pieces(lines, searched)))
    spent = [0.0] * len(parts)
    chosen: dict[_Piece, None] = {}
    total = 0
    while parts and total < most_characters:
        place = min(range(len(parts)), key=lambda i: spent[i] / parts[i][0])
        piece = next(parts[place][1], None)
        if piece is None:
            del parts[place], spent[place]
            continue
        if piece in chosen:
            continue
        chosen[piece] = None
        size = min(len(lines[piece.line]) - piece.index * PIECE_CHARACTERS, PIECE_CHARACTERS) + 1
        spent[place] += size
        total += size
    return list(chosen)


def _pieces_of(lines: Sequence[str], line: int) -> range:
    if not lines[line].strip():
        return range(0)
    count = -(-len(lines[line]) // PIECE_CHARACTERS)
    return range(count if len(lines) <= FEW_LINES else 1)


def _from_head(lines: Sequence[str]) -> Iterator[_Piece]:
    return (_Piece(line, index) for line in range(len(lines)) for index in _pieces_of(lines, line))


def _from_tail(lines: Sequence[str]) -> Iterator[_Piece]:
    numbers = range(len(lines) - 1, -1, -1)
    return (_Piece(line, index) for line in numbers for index in reversed(_pieces_of(lines, line)))


def _error_pieces(lines: Sequence[str], text: str) -> Iterator[_Piece]:
    """Yield lines that speak of errors, the last and the first by turns, each followed by its neighbours."""
    hits = _error_hits(text)
    ordered = [hits[-1 - i // 2] if i % 2 == 0 else hits[i // 2] for i in range(len(hits))]
    for line, column in ordered:
        if line >= len(lines):
            continue
        yield _Piece(line, min(column, max(len(lines[line]) - 1, 0)) // PIECE_CHARACTERS)
        for neighbour in (line + 1, line - 1):
            if 0 <= neighbour < len(lines) and lines[neighbour].strip():
                yield _Piece(neighbour, 0)


def _error_hits(text: str) -> list[tuple[int, int]]:
    """Return `(line, column)` of the first and last error words, from 0, at most one per line."""
    folded = text.lower()
    offsets = sorted({offset for word in _ERROR_WORDS for offset in _occurrences(folded, word)})
    hits: list[tuple[int, int]] = []
    line, counted_to, done = 0, 0, -1
    for offset in offsets:
        start = folded.rfind("\n", 0, offset) + 1
        line += folded.count("\n", counted_to, start)
        counted_to = start
        end = folded.find("\n", offset)
        context = folded[max(start, offset - 40) : min(end if end >= 0 else len(folded), offset + 40)]
        if line != done and not _NO_ERROR.search(context):
            hits.append((line, offset - start))
            done = line
    return hits


def _occurrences(folded: str, word: str) -> Iterator[int]:
    offset = -1
    for _ in range(_HITS_PER_WORD):
        offset = folded.find(word, offset + 1)
        if offset < 0:
            return
        yield offset
    first_seen, offset = offset, len(folded)
    for _ in range(_HITS_PER_WORD):
        offset = folded.rfind(word, first_seen, offset)
        if offset < 0:
            return
        yield offset


def _pieces_within(lines: Sequence[str], pieces: Sequence[_Piece], characters: int) -> int:
    for count, piece in enumerate(pieces):
        characters -= min(len(lines[piece.line]), PIECE_CHARACTERS) + 4
        if characters < 0:
            return count
    return len(pieces)


def _render(lines: Sequence[str], pieces: Sequence[_Piece]) -> str:
    """Return the pieces in the order of the text; each run of lines stands under its numbers.

    A line that goes on after its piece ends in "…"; a piece from within a line names its columns.
    """
    output: list[str] = []
    run: list[str] = []
    run_first = previous = -2

    def close() -> None:
        if run:
            last = run_first + len(run) - 1
            numbers = f"line {run_first + 1}" if len(run) == 1 else f"lines {run_first + 1}-{last + 1}"
            output.append(f"[{numbers}]")
            output.extend(run)
            run.clear()

    for line, first, last in _joined(pieces):
        whole = lines[line]
        begin, end = first * PIECE_CHARACTERS, (last + 1) * PIECE_CHARACTERS
        body = whole[begin:end] + ("…" if end < len(whole) else "")
        if begin:
            close()
            output.append(f"[line {line + 1}, columns {begin + 1}-{min(end, len(whole))}]")
            output.append(body)
            previous = -2
            continue
        if line != previous + 1:
            close()
        if not run:
            run_first = line
        run.append(body)
        previous = line
    close()
    return "\n".join(output)


def _joined(pieces: Sequence[_Piece]) -> list[tuple[int, int, int]]:
    """Return `(line, first piece, last piece)` of each unbroken stretch within a line, in order."""
    stretches: list[tuple[int, int, int]] = []
    for piece in sorted(pieces):
        if stretches and stretches[-1][0] == piece.line and stretches[-1][2] == piece.index - 1:
            stretches[-1] = (piece.line, stretches[-1][1], piece.index)
        else:
            stretches.append((piece.line, piece.index, piece.index))
    return stretches
