"""A query, as a model writes it, as the terms that are looked for."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from context_compressor.recall.terms import PAIR, RUN, UNSPACED_RUN, TermReader, code_of, fold, joined

MAX_QUERY_CHARACTERS = 2_000
"""What comes after is not looked for: a question has no more."""

MAX_QUERY_TERMS = 64
"""Each term costs a lookup, some 0.1 ms in the index of a million tokens."""

STOP_WORDS = frozenset(
    "a about"  # noqa: SIM905 (a word a line would be two pages)
    " after again all also am an and any are as at be because been befor before but by can"
    " could did do does doe done for from get got had has have he her here him hi his how i if in into"
    " is it its just know let like may me might mine more most much my no not now of off on onc once"
    " onli only or other our out over pleas s same shall she should show so some still such t tell"
    " than that the their them then there these they thi this those to too under up us veri was wa we"
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

    @property
    def is_beginning(self) -> bool:
        """Whether its code is what codes begin with: those of the pairs that begin with one character."""
        return self.characters is not None and len(self.characters) == 1


@dataclass(frozen=True, slots=True)
class Query:
    """The terms of a query, in its order."""

    terms: tuple[QueryTerm, ...]

    @property
    def has_names(self) -> bool:
        """Whether it asks for a name: a path, an id, a word with an underscore or a hump."""
        return any(term.name is not None for term in self.terms)

    @property
    def bare_name(self) -> str | None:
        """The name, folded, when it is one and nothing else."""
        names = [term.name for term in self.terms if term.name is not None]
        return names[0] if len(names) == 1 and len({term.run for term in self.terms}) == 1 else None


def read_query(text: str, reader: TermReader) -> Query:
    """Return what a query looks for: nothing where it holds no letter and no digit."""
    terms: dict[object, QueryTerm] = {}
    # Some characters stand for several words, as `⑴⑵` for `(1)(2)`.
    text = unicodedata.normalize("NFKC", text[:MAX_QUERY_CHARACTERS])
    for number, match in enumerate(RUN.finditer(text)):
        run = match[0]
        words, wholes = reader[run]
        if not words:
            continue
        if UNSPACED_RUN.match(run):
            characters = fold(run)
            # The last character alone says nothing that its pair with the one before does not.
            for at, word in enumerate(words[:-1] or words):
                pair = characters[at : at + 2]
                terms.setdefault((PAIR, pair), QueryTerm((word,), number, characters=pair))
        elif wholes:
            name = fold(run)
            # What is one name here may be one word there: `foo_bar`, `foobar`.
            found = QueryTerm((code_of(run), reader.stem(joined(run))), number, name=name)
            terms.setdefault(wholes, found)
            for word in words:
                terms.setdefault(word, QueryTerm((word,), number))
        else:
            terms.setdefault(words[0], QueryTerm((words[0], code_of(run)), number))
    telling = [term for term in terms.values() if term.name or term.terms[0] not in STOP_WORDS]
    return Query(tuple((telling or list(terms.values()))[:MAX_QUERY_TERMS]))
