"""Find identifiers in texts, and the ordinary words near them. Nothing here asks how views are made.

A *token* is a maximal run of letters (Latin, Greek, Cyrillic), digits and ``_ @ / . ~ + -``, or a URL. What
only surrounds it is taken off: dots, slashes and signs at its end, signs and ``./`` or ``../`` at its start.
The escapes of a JSON text (a backslash and ``n``, say) and the ``</`` of a closing tag part tokens, so that
the same name is found in a result, in the JSON that quotes it and in a call's arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

MIN_CHARACTERS = 5
MAX_CHARACTERS = 120
"""Lengths of an identifier in characters: below, it is a word or a small number; above, it is data."""

NEAR_CHARACTERS = 200
"""How far from an identifier a word still stands next to it, in characters."""

MIN_WORD_CHARACTERS = 3

_LETTERS = r"A-Za-z\u00c0-\u024f\u0370-\u052f"
_TOKEN_CHARACTERS = rf"{_LETTERS}0-9_@/.~+\-"
_TOKEN = re.compile(
    r"\\(?:[nrtbf]|u[0-9a-fA-F]{4})"
    r"|</"
    r"|(?P<url>https?://[^\s\"'`<>\\()\[\]{}|，。；）】]+)"
    rf"|(?P<token>[{_TOKEN_CHARACTERS}]+)"
)
_EDGE = re.compile(rf"[{_TOKEN_CHARACTERS}]*")
_EDGE_CHARACTER = re.compile(rf"[{_TOKEN_CHARACTERS}]")
_TELLING = re.compile(r"[0-9_@/]|[^.]\.[^.]|[a-z\u00df-\u00ff][A-Z]")
"""A digit, underscore, slash, at sign, inner dot or camel case makes a token an identifier."""
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]{2,}")
_HANGUL = re.compile(r"[\uac00-\ud7a3]{2,}")

_FUNCTION_WORDS = (
    "all and any are but can did does for from had has have her him his how into its may not off our out own "
    "she some such than that the their them then there these they this those too was were what when where "
    "which who whom why will with would you your"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""English words of three letters and more that say nothing about what they stand next to."""


class Near(NamedTuple):
    """What stands next to an identifier in one text."""

    words: frozenset[str]
    """The ordinary words, case folded."""
    tokens: frozenset[str]
    """Every token, as it stands: among them the names of tools."""


Span = tuple[int, int]
"""Where a token stands: offsets of its first character and behind its last."""


def tokens(text: str, start: int = 0, end: int | None = None) -> Iterator[tuple[str, int]]:
    """Yield the tokens of a text, each with the offset of its first character."""
    for match in _TOKEN.finditer(text, start, len(text) if end is None else end):
        kind = match.lastgroup
        if kind is None:
            continue
        found = match[0]
        token = found.rstrip(".,:;!?~+-/") if kind == "url" else _bare(found)
        if token:
            yield token, match.start() + found.index(token)


def _bare(found: str) -> str:
    token = found.rstrip("./~+-").lstrip("~+-")
    if token.startswith("."):
        token = token.lstrip("./")
    elif token.startswith("//"):
        token = token.lstrip("/")
    return token


def is_identifier(token: str) -> bool:
    """Tell whether a token names one thing: 5-120 characters, and more than letters (see `_TELLING`)."""
    return (
        MIN_CHARACTERS <= len(token) <= MAX_CHARACTERS
        and _TELLING.search(token) is not None
        and any(map(str.isalnum, token))
    )


def identifier_spans(text: str) -> dict[str, list[Span]]:
    """Return where each identifier of a text stands, in the order of their first appearance."""
    spans: dict[str, list[Span]] = {}
    verdicts: dict[str, bool] = {}
    for token, start in tokens(text):
        verdict = verdicts.get(token)
        if verdict is None:
            verdict = verdicts[token] = is_identifier(token)
        if verdict:
            spans.setdefault(token, []).append((start, start + len(token)))
    return spans


def is_word(token: str) -> bool:
    """Tell whether a token is an ordinary word: three letters or more, nothing else, no camel case.

    Function words of English are none. Chinese and Japanese have no spaces: there each two characters that
    follow each other are a word (see `near`). A name in snake case, a path or a number is never one.
    """
    return (
        len(token) >= MIN_WORD_CHARACTERS
        and token.isalpha()
        and not _TELLING.search(token)
        and token.casefold() not in FUNCTION_WORDS
    )


def near(text: str, spans: Sequence[Span], distance: int = NEAR_CHARACTERS) -> Near:
    """Return what stands whole within `distance` characters of any of the places `spans`."""
    words: set[str] = set()
    found: set[str] = set()
    for start, end in _windows(spans, distance, len(text)):
        first, last = _whole(text, start, end)
        found.update(token for token, _ in tokens(text, first, last))
        for run in _HAN.findall(text, start, end):
            words.update(run[at : at + 2] for at in range(len(run) - 1))
        words.update(_HANGUL.findall(text, start, end))
    words.update(token.casefold() for token in found if is_word(token))
    return Near(frozenset(words), frozenset(found))


def near_in(text: str, identifier: str) -> Near | None:
    """Return what stands next to an identifier in a text; None where it is no token of it."""
    if identifier not in text:
        return None
    spans = identifier_spans(text).get(identifier)
    return None if spans is None else near(text, spans)


def _windows(spans: Iterable[Span], distance: int, length: int) -> list[Span]:
    """Return the stretches within reach of the spans, those that meet joined."""
    joined: list[Span] = []
    for start, end in spans:
        window = max(0, start - distance), min(length, end + distance)
        if joined and window[0] <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(window[1], joined[-1][1])
        else:
            joined.append(window)
    return joined


def _whole(text: str, start: int, end: int) -> Span:
    """Move both ends inwards, past a token that they would cut."""
    if start > 0 and (cut := _EDGE.match(text, start - 1)) and cut.end() > start:
        start = cut.end()
    if end < len(text) and _EDGE_CHARACTER.match(text, end):
        while end > start and _EDGE_CHARACTER.match(text, end - 1):
            end -= 1
    return start, end
