"""A query, as a model writes it, as the terms that are looked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

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
    " after again all also am an and ani are as at be been befor but by can"
    " could did do doe done for from get got ha had have he her here him hi how i if in into"
    " is it just know let like mani me might mine more most much my no not now of off on onc"
    " onli or other our out over pleas s same shall she should show so some still such t tell"
    " than that the their them then there these thei thi those to too under up us veri wa we"
    " were what when where which while who whom whose why will with would you your".split()
)
"""English words, as their stems, by which nothing is found; they count where a query has no others."""


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
        names = [term.name for term in self.terms if term.name is not None]
        return self.bare_name is not None or not all(map(_COMPOUND.fullmatch, names))

    @property
    def bare_name(self) -> str | None:
        """The name, folded, when it is one and nothing else."""
        names = [term.name for term in self.terms if term.name is not None]
        return names[0] if len(names) == 1 and len({term.run for term in self.terms}) == 1 else None


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
        elif wholes:
            whole = name_in(run)
            # What is one name here may be one word there: `foo_bar`, `foobar`.
            either = code_of(whole), reader.stem(joined(whole))
            terms.setdefault(wholes, QueryTerm(either, number, name=fold(whole), beginning=beginning))
            for word in words:
                terms.setdefault(word, QueryTerm((word,), number))
        elif len(words) > 1:
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
