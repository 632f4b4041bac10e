"""What a text is found by: words in their stems, names whole and in parts, pairs of characters."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from string import ascii_lowercase, digits
from typing import NamedTuple
from zlib import crc32

import snowballstemmer

from context_compressor.messages.text import normalize

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character beyond U+FFFF
    r"|\\u[0-9a-fA-F]{4}"
    r'|\\[\\"/bfnrt]'
)
_CONTROLS = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_DEPTH = 2
"""JSON that stands in JSON, as what a tool printed does in its result, is escaped twice."""


def readings(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    r"""Yield a text as it is, then with its escapes resolved, as often as there may be some.

    Whether `\n` is a line feed or stands in a path of Windows cannot be told, so that both are read.

    With each comes the place in `text` of every character, and of the end.
    """
    origins: Sequence[int] = range(len(text) + 1)
    yield text, origins
    for _ in range(_DEPTH):
        pieces: list[str] = []
        places: list[int] = []
        end = 0
        for match in _ESCAPE.finditer(text) if "\\" in text else ():
            start = match.start()
            pieces += text[end:start], _character(match[0])
            places += (*origins[end:start], origins[start])
            end = match.end()
        if not pieces:
            return
        text = "".join((*pieces, text[end:]))
        origins = (*places, *origins[end:])
        yield text, origins


def _character(escape: str) -> str:
    if escape[1] == "u":
        return bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
    return _CONTROLS.get(escape[1], escape[1])


UNSPACED = (
    "\u0e00-\u0e7f\u0e80-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u1100-\u11ff\u3005-\u3007\u3040-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3100-\u318f\u31a0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
"""Characters of scripts that write words without spaces, or, as Korean, with endings joined to them."""

_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u0900-\u0963\u0966-\u0dff"
)
"""Vowel signs and accents, which stand within words but are no letters to Python."""

_LETTER = rf"(?:(?![{UNSPACED}_])[\w{_MARKS}])"
# A name begins at the first of several underscores: tried at each, a line of them would take the square.
RUN = re.compile(
    rf"[{UNSPACED}]+"
    rf"|(?<!_)_*+{_LETTER}+(?:(?:_{{0,2}}(?:[-./\\:@'’]|::|:/|://)_{{0,2}}|_{{1,2}}){_LETTER}+)*(?:_++(?!{_LETTER}))?"
)
"""A run of characters without spaces between words, or a word or name with what joins its parts, and with the
underscores around them: `pkg/__init__.py`, `self._meta`."""

UNSPACED_RUN = re.compile(rf"[{UNSPACED}]+")
"""Matches a run of characters, as `RUN` matches it, where its terms are pairs of them."""

OUTSIDE = re.compile(rf"[^\w{UNSPACED}{_MARKS}\-./\\:@'’]")
"""A character that stands in no run."""

PAIR, WHOLE = "·", "¸"
"""What the codes of pairs of characters and of whole names begin with, and no word does."""

_DIGITS_36 = digits + ascii_lowercase
_PLAIN = re.compile(r"[A-Z]?[a-z]+")
_FOLDED = re.compile(rf"[{UNSPACED}]+|{_LETTER}+")
_JOINT = re.compile(r"[^\w" + _MARKS + r"]+|_+")
_OUTER_JOINT = re.compile(r"[/\\:@]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_DIGITS = re.compile(r"(?<=\D)(?=\d)|(?<=\d)(?=\D)")
_ACCENT = re.compile(r"[\u0300-\u036f]+")
_POSSESSIVE = re.compile(r"['’]s?$", re.IGNORECASE)

MAX_TERM_CHARACTERS = 64
"""Longer words are known by their beginning: a SHA-256 in hexadecimal digits has 64."""

MAX_PARTS = 24
"""Names of more parts are data (a list without spaces, an encoded image), whose whole nobody asks for."""

_KEPT_RUNS = 10_000
"""Runs whose terms are remembered: some 5 MB; ten times as many take three times the room, and save a tenth
of the time that indexing takes."""


class RunTerms(NamedTuple):
    """What one run of a text is found by."""

    words: tuple[str, ...]
    """Stems of its words and parts of its names, or pairs of characters."""
    wholes: tuple[str, ...]
    """Its whole name, and wholes that stand in it, such as the file name in a path; each a code."""


class TermReader(dict[str, RunTerms]):
    """Read the terms of texts, remembering those of runs seen before. For one thread at a time.

    English words are found by their stems, other words of ASCII letters are cut by the same rules: M. F.
    Porter, "An algorithm for suffix stripping", Program 14 (1980).
    """

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def __missing__(self, run: str) -> RunTerms:
        if len(self) >= _KEPT_RUNS:
            self.clear()
        terms = self._terms_of_run(run)
        if len(run) <= MAX_TERM_CHARACTERS:
            self[run] = terms
        return terms

    def clear(self) -> None:
        """Forget every word read so far."""
        super().clear()
        # Anew: a stemmer itself holds words, be it the last one or more in a cache of its own.
        self._stem = lru_cache(_KEPT_RUNS)(snowballstemmer.stemmer("porter").stemWord)

    def terms(self, text: str) -> set[str]:
        """Return all terms of `text`."""
        found: set[str] = set()
        for run in set(RUN.findall(text)):
            words, wholes = self[run]
            found.update(words)
            found.update(wholes)
        return found

    def _terms_of_run(self, run: str) -> RunTerms:
        """Return the terms of a run as `RUN` matches it."""
        if _PLAIN.fullmatch(run):
            return RunTerms((self.stem(run.lower()[:MAX_TERM_CHARACTERS]),), ())
        if UNSPACED_RUN.match(run):
            return RunTerms(_pairs(fold(run)), ())
        run = _POSSESSIVE.sub("", run)
        parts = [part for piece in _pieces(run) for part in _parts(piece)]
        words = tuple(word for part in parts for word in self._words(part))
        return RunTerms(words, _wholes(name_in(run)) if len(parts) > 1 else ())

    def _words(self, part: str) -> Iterator[str]:
        """Yield the terms of a part of a run: letters and digits alone, or FTS5 would split them again.

        It is one word but for characters that stand for several, as `⑴` for `(1)`, or for an accent alone.
        """
        for folded in _FOLDED.findall(fold(part)):
            if UNSPACED_RUN.match(folded):
                yield from _pairs(folded)
            else:
                yield self.stem(folded[:MAX_TERM_CHARACTERS])

    def stem(self, word: str) -> str:
        """Return the term of a folded word."""
        is_cut = len(word) > 2 and word.isascii() and word.isalpha()
        return self._stem(word) if is_cut else word


def fold(text: str) -> str:
    """Return a text without case, accents and forms of width, as terms are compared."""
    if text.isascii():
        return text.lower()
    decomposed = normalize("NFKD", text)
    return normalize("NFKC", _ACCENT.sub("", decomposed)).casefold()


def code_of(name: str) -> str:
    """Return the code under which a whole name is found, however its parts are joined and cased.

    Four digits to the base 36 of a checksum: what two names share by chance, reading their texts tells apart.
    """
    return WHOLE + _digits(joined(name), 4)


def joined(name: str) -> str:
    """Return a name as one word, folded: `fileName` and `file_name` are `filename`."""
    return _JOINT.sub("", fold(name))[: 4 * MAX_TERM_CHARACTERS]


def name_in(run: str) -> str:
    """Return the name that a run is: all of it or, of a path with too many parts, the file; else nothing."""
    for name in (run, _OUTER_JOINT.split(run)[-1]):
        if len(_pieces(name)) <= MAX_PARTS:
            return name
    return ""


def _wholes(run: str) -> tuple[str, ...]:
    """Return codes of the run, of what stands between slashes and colons, and of what between dots in it.

    Also of each of its words with humps, without digits behind: of `PostgreSQL15-based` that is `PostgreSQL`.
    """
    names = {run, *(piece.rstrip("0123456789") for piece in _pieces(run))}
    for outer in _OUTER_JOINT.split(run):
        names.add(outer)
        names.update(outer.split("."))
    return tuple(dict.fromkeys(code_of(name) for name in names if _is_name(name)))


def _is_name(name: str) -> bool:
    pieces = _pieces(name)
    return len(pieces) > 1 or any(len(_parts(piece)) > 1 for piece in pieces)


def _pieces(run: str) -> list[str]:
    """Return what stands between the joints of a run."""
    return [piece for piece in _JOINT.split(run) if piece]


def _parts(piece: str) -> list[str]:
    """Return the parts of a word without joints: at humps, and where letters meet digits just once.

    `HTTPServer2` is http, server and 2; where they meet more often, as in `2a18e2`, there is nothing to find.
    """
    parts: list[str] = []
    for part in _HUMP.split(piece):
        halves = _DIGITS.split(part)
        parts += halves if len(halves) == 2 else [part]
    return parts if len(parts) <= MAX_PARTS else [piece]


def _pairs(run: str) -> tuple[str, ...]:
    """Return a code of each two neighbouring characters, and one of the last character.

    All that begin with a character begin with its code, so that one character is found by the beginning. As
    codes of few letters pairs take half the room, which for a short history of Chinese is most of its index.
    """
    first = [_digits(character, 2) for character in run]
    return (*(f"{PAIR}{one}{other[0]}" for one, other in pairwise(first)), f"{PAIR}{first[-1]}")


def _digits(text: str, number: int) -> str:
    """Return a checksum of a text as so many digits to the base 36."""
    checksum = crc32(text.encode("utf-8", "surrogatepass"))
    found = ""
    for _ in range(number):
        checksum, digit = divmod(checksum, 36)
        found += _DIGITS_36[digit]
    return found
