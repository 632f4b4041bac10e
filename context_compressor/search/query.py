"""A query, as a model writes it, as the terms that are looked for, and where a text holds them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from context_compressor.messages.text import normalize
from context_compressor.search.terms import (
    PAIR,
    RUN,
    UNSPACED_RUN,
    TermReader,
    code_of,
    fold,
    joined,
    name_in,
    readings,
)

MAX_QUERY_CHARACTERS = 2_000
"""A question has no more; of what has, the beginning and the end are looked for."""

MAX_QUERY_TERMS = 64
"""Each term costs a lookup, some 0.1 ms in the index of a million tokens."""

_SHORT_HASH = re.compile(r"(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,}")
"""How much of a commit's hash is written, which is known by its beginning: seven digits are git's default."""

_SIGN = re.compile(r"(?:^|(?<=[\s'\"`(]))(?:--?|[/@$#.])$")
"""What makes a name of the word behind it: an option, a command, a variable, a hidden file."""

_COMPOUND = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)+")
"""Words joined by hyphens or apostrophes: `file-store` alone is a name, `self-cleaning` in a question not."""

_CONTRACTION = re.compile(r"(?<=[a-z])(?:n['’]t|['’](?:d|ll|m|re|t|ve))$", re.IGNORECASE)
"""What is short for another word and makes no name of the word before it: `I've`, `doesn't`."""

STOP_WORDS = frozenset(
    "a about"  # noqa: SIM905 (a word a line would be two pages)
    " after again all also am an and ani ar as at be been befor but by can"
    " could did do doe done for from get got ha had have he her here him hi how i if in into"
    " is it just know let like mani me might mine more most much my no not now of off on onc"
    " onli or other our out over pleas s same shall she should show so some still such t tell"
    " than that the their them then there these thei thi those to too under up veri wa we"
    " were what when where which while who whom whose why will with would you your".split()
)
"""English words, as their stems, by which nothing is found; they count where a query has no others.

`us` is none: it is the stem of `use`."""

_LONG_CHARACTERS = 60
"""Of a longer run only the part that is asked for has to be shown, with so many characters."""
_CHARACTER = re.compile(
    ".[\u0300-\u036f\u1160-\u11ff\u3099\u309a\u314f-\u3163\uff9e\uff9f\uffc2-\uffdc]*", re.DOTALL
)
"""A character with the marks, or letters of a Korean syllable, that follow it and fold into one with it."""


@dataclass(frozen=True, slots=True)
class QueryTerm:
    """What is looked for: any of some terms of the index."""

    terms: tuple[str, ...]
    run: int
    """Number of the run of the query that it comes from."""
    name: str | None = None
    """The whole name, folded, for which its terms stand."""
    characters: str | None = None
    """The one or two characters of an unspaced script for which its term stands, a code that others share."""
    beginning: str | None = None
    """What a word may begin with instead of being one of the terms: the first digits of a hash."""

    @property
    def is_beginning(self) -> bool:
        """Whether terms are looked for that begin so: a hash, or the pairs that begin with one character."""
        return self.beginning is not None or (self.characters is not None and len(self.characters) == 1)

    @property
    def is_telling(self) -> bool:
        """Whether few texts hold it: a name, or what has a digit."""
        return self.name is not None or any(map(str.isdigit, self.characters or self.terms[0]))


@dataclass(frozen=True, slots=True)
class Query:
    """The terms of a query, in its order."""

    terms: tuple[QueryTerm, ...]

    @property
    def has_names(self) -> bool:
        """Whether it asks for a name: a path, an id, a word with an underscore or a hump.

        Words with hyphens are one where nothing else is asked for.
        """
        return self.bare_name is not None or not all(map(_COMPOUND.fullmatch, self._names))

    @property
    def bare_name(self) -> str | None:
        """The name, folded, when it is one and nothing else."""
        is_all = len({term.run for term in self.terms}) == 1
        return self._names[0] if is_all and len(self._names) == 1 else None

    @property
    def _names(self) -> list[str]:
        return [term.name for term in self.terms if term.name is not None]


def read_query(text: str, reader: TermReader) -> Query:
    """Return what a query looks for: nothing where it holds no letter and no digit."""
    terms: dict[object, QueryTerm] = {}
    if len(text) > MAX_QUERY_CHARACTERS:
        half = MAX_QUERY_CHARACTERS // 2
        text = f"{text[:half]}\n{text[-half:]}"
    text = normalize("NFKC", text)  # one character may stand for several words, as `⑴⑵` for `(1)(2)`
    for number, match in enumerate(RUN.finditer(text)):
        run: str = _CONTRACTION.sub("", match[0])
        words, wholes = reader[run]
        if not words:
            continue
        beginning = fold(run) if _SHORT_HASH.fullmatch(fold(run)) else None
        if UNSPACED_RUN.match(run):
            characters = fold(run)
            # The last character alone says nothing that its pair with the one before does not.
            for at, word in enumerate(words[:-1] or words):
                pair = characters[at : at + 2]
                terms.setdefault((PAIR, pair), QueryTerm((word,), number, characters=pair))
        elif wholes or len(words) > 1:
            if wholes:
                whole = name_in(run)
                # What is one name here may be one word there: `foo_bar`, `foobar`.
                either = code_of(whole), reader.stem(joined(whole))
                terms.setdefault(wholes, QueryTerm(either, number, name=fold(whole), beginning=beginning))
            for word in words:
                terms.setdefault(word, QueryTerm((word,), number))
        else:
            sign = _SIGN.search(text, max(0, match.start() - 2), match.start()) if run[0].isalpha() else None
            written = f"{sign[0]}{run}" if sign else run
            name = fold(written) if sign or "_" in run else None
            found = QueryTerm((words[0], code_of(run)), number, name=name, beginning=beginning)
            terms.setdefault(words[0], found)
    telling = [term for term in terms.values() if term.name or term.terms[0] not in STOP_WORDS]
    return Query(tuple(_most_telling(telling or list(terms.values()))))


def _most_telling(terms: Sequence[QueryTerm]) -> list[QueryTerm]:
    """Return as many terms as are looked up, in their order: names and numbers, then the longest words."""
    ranked = sorted(terms, key=lambda term: (term.is_telling, len(term.terms[0])), reverse=True)
    kept = {id(term) for term in ranked[:MAX_QUERY_TERMS]}
    return [term for term in terms if id(term) in kept]


class Place(NamedTuple):
    """Where a term of a query stands in a text: characters, the end not included."""

    start: int
    end: int
    term: int
    """Its number in the query."""


def places_in(text: str, query: str) -> list[Place]:
    """Return where terms of what was asked stand in a text, in order."""
    reader = TermReader()
    return find_places(text, read_query(query, reader), reader)


def find_places(text: str, query: Query, reader: TermReader, *, by_run: bool = False) -> list[Place]:
    """Return where terms of a query stand in a text, in order; escapes in the text are read, too.

    `by_run`: whether a place is that of a run which has the term, rather than what of it is to be shown. Then
    a name does not count that stands inside a longer word, as `test_id` in `my_test_ids`.
    """
    found: set[Place] = set()
    for said, origins in readings(text):
        for place in (*_places_in_runs(said, query, reader, by_run), *_unspaced_places(said, query)):
            found.add(Place(origins[place.start], origins[place.end], place.term))
    return sorted(found)


def _places_in_runs(text: str, query: Query, reader: TermReader, by_run: bool) -> Iterator[Place]:
    terms = [(number, sought) for number, sought in enumerate(query.terms) if sought.characters is None]
    numbers = {one: number for number, sought in terms for one in sought.terms}
    beginnings = [(number, sought.beginning) for number, sought in terms if sought.beginning]
    names = [(number, sought.name) for number, sought in terms if sought.name and not by_run]
    for match in RUN.finditer(text):
        run, start, end = match[0], match.start(), match.end()
        words, wholes = reader[run]
        held = [numbers[one] for one in words + wholes if one in numbers]
        for number, beginning in beginnings:
            if any(word.startswith(beginning) for word in words):
                held.append(number)
        if by_run or not (held or names):
            yield from (Place(start, end, number) for number in held)
            continue
        folded = fold(run)
        held += [number for number, name in names if name in folded]
        for number in held:
            sought = query.terms[number]
            # Of a long path the part that is asked for; a name that is written otherwise begins with its run.
            at = folded.find(sought.name or sought.terms[0]) if end - start > _LONG_CHARACTERS else -1
            if at < 0:
                yield Place(start, end, number)
            else:
                yield Place(start + at, min(start + at + _LONG_CHARACTERS, end), number)


def _unspaced_places(text: str, query: Query) -> Iterator[Place]:
    unspaced = [(number, sought.characters) for number, sought in enumerate(query.terms) if sought.characters]
    if not unspaced:
        return
    folded, origins = _fold_each(text)
    for number, characters in unspaced:
        for match in re.finditer(f"(?={re.escape(characters)})", folded):  # they may overlap
            yield Place(origins[match.start()], origins[match.start() + len(characters)], number)


def _fold_each(text: str) -> tuple[str, Sequence[int]]:
    """Return a text folded character by character, and where each of these and the end come from."""
    folded = fold(text)
    if len(folded) == len(text):  # then each character has folded into one, but for odd mixtures
        return folded, range(len(text) + 1)
    matches = list(_CHARACTER.finditer(text))
    pieces = [fold(match[0]) for match in matches]
    origins = [match.start() for match, piece in zip(matches, pieces, strict=True) for _ in piece]
    return "".join(pieces), [*origins, len(text)]
