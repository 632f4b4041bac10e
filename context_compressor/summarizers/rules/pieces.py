"""Pieces of a text: sentences and lines that a reader can take by themselves, and the words in them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PIECE_CHARS = 280
"""A longer sentence or line is told in several pieces, each of which may be left out."""
_LEAST_CHARS = 80
"""Sentences are put together until they have so many characters: a shorter one says little by itself."""
_MARKUP = re.compile(
    r"^\s{0,9}```.*$|\*\*|`|^\s{0,9}(?:#{1,6}|>|[-*•+])\s+|\|?(?:\s{0,9}:?-{3,}:?\s{0,9}\|)+", re.MULTILINE
)
_SENTENCE = re.compile(r"[^\n]+?(?:[.!?][\"')\]]*(?=\s|\Z)|[。！？]|(?=\n)|\Z)")
_CLAUSE = re.compile(r"[,;:|](?=\s)|[，；：、。]|\s")
_WORD = re.compile(r"[^\W_]+|_")
_ASCII_WORD = re.compile(r"[a-z0-9]{2,}")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff]")


def flat(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())


def pieces_of(text: str, *, prose: bool = True) -> list[str]:
    """Return the sentences and lines of a text, each on one line; prose without marks of Markdown and rules.

    A heading, and what ends with a colon, stands with what follows it.
    """
    if not prose:
        lines = [line for raw in text.splitlines() if any(map(str.isalnum, line := flat(raw)))]
        return [part for line in lines for part in split(line)]
    pieces: list[str] = []
    opening = ""
    for raw in text.splitlines():
        line = flat(_MARKUP.sub("", raw))
        if 2 * sum(map(str.isalnum, line)) < len(line) - line.count(" "):
            continue
        start = len(pieces)
        for found in _SENTENCE.finditer(line):
            sentence = f"{opening} {found[0].strip()}".strip()
            opening = ""
            if len(pieces) > start and len(pieces[-1]) < _LEAST_CHARS:
                pieces[-1] += f" {sentence}"
            else:
                pieces.append(sentence)
        is_heading = raw.lstrip().startswith("#") or line.endswith((":", "："))
        if is_heading and len(pieces) > start and len(pieces[-1]) <= _LEAST_CHARS:
            opening = pieces.pop()
    if opening:
        pieces.append(opening)
    return [part for piece in pieces if any(map(str.isalnum, piece)) for part in split(piece)]


def split(line: str, most: int = PIECE_CHARS) -> Iterator[str]:
    """Yield a line in parts of at most so many characters, cut behind a clause where there is one.

    It is never cut within a word, a name or a number: one that is longer is left out.
    """
    while len(line) > most:
        ends = [found.end() for found in _CLAUSE.finditer(line, 0, most)]
        cjk = [found.end() for found in _CJK.finditer(line, 0, most)] if not ends else []
        marks = [end for end in ends if not line[end - 1].isspace()]
        end = (marks or [0])[-1]
        if end < most // 2:
            end = (ends or cjk or [0])[-1]
        if end:
            yield line[:end].rstrip()
            line = line[end:].lstrip()
        else:
            line = line.partition(" ")[2].lstrip()
    if line:
        yield line


def head_of(line: str, most: int) -> str:
    """Return the beginning of a line in at most so many characters, with an ellipsis where it goes on."""
    if len(line) <= most:
        return line
    return f"{next(split(line, most - 2), '')[: most - 2].rstrip(' ,;:|，；：、')} …".strip()


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text in lower case; of scripts without blanks each two characters."""
    if text.isascii():  # the same, in less time
        return frozenset(_ASCII_WORD.findall(text.lower()))
    words: set[str] = set()
    folded = map(str.casefold, _WORD.findall(text))
    if not _CJK.search(text):
        return frozenset(word for word in folded if len(word) > 1)
    for word in folded:
        if _CJK.search(word):
            words.update(word[n : n + 2] for n in range(max(1, len(word) - 1)))
        elif len(word) > 1:
            words.add(word)
    return frozenset(words)


_VALUE = re.compile(
    r"(?<!\w)(?:(?<=[./])\w+|(?<=\w[ ,(\"'])[A-Z]\w+"
    r"|(?:[^\W\d_a-z]++|[a-z]++(?![A-Z]))*+\w+|\w++(?=[./]\w))"
)
"""A part of a path, a name amid a sentence, what is more than letters (a number, an identifier), or the first
part of a path."""


def values_of(text: str) -> frozenset[str]:
    """Return the words of a text, as `words_of`, that are names, numbers or parts of paths by their form."""
    return words_of(" ".join(_VALUE.findall(text)))


def packed(lines: Iterable[str], most: int) -> Iterator[str]:
    """Yield lines, neighbours of which are put together up to so many characters."""
    pack = ""
    for line in lines:
        if pack and len(pack) + len(line) + 3 > most:
            yield pack
            pack = ""
        pack = f"{pack} | {line}" if pack else line
    if pack:
        yield pack
