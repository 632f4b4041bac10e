"""Find the identifiers of a conversation and rank them by how likely the agent is to need them again."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

MIN_CHARS = 5
MAX_CHARS = 120

_TOKEN = re.compile(r"https?://[^\s\"'<>\\)\]}，。]+|[A-Za-z0-9_@/.#~-]+")
_TELLING = re.compile(r"[0-9_@/]|[^.]\.[^.]|[a-z][A-Z]")
"""What makes a token an identifier: a digit, underscore, slash, at sign, inner dot or camel case."""
_TRAILING = ".,:;-#/~"
_LEADING = ".-~"
_NUMBER = re.compile(r"[0-9.,:/TZ+-]+")
_WORD_BEFORE = re.compile(r"([A-Za-z\u3400-\u9fff][\w.-]{1,30})[\"'`]?\s{0,2}[:=(（：]?\s{0,2}[\"'`({\[#$]{0,3}$")
_EMPTY_WORDS = frozenset(
    "a an and are as at be by for from has have in is it its of on or self that the this to was were will with".split()
)


class Source(NamedTuple):
    """A text of the conversation, with where it came from."""

    kind: Literal["user", "assistant", "call", "result"]
    label: str
    """What to name beside an identifier found here: the call that brought it, or who said it."""
    text: str
    position: float
    """Where in the material it stands: 0 oldest, 1 newest."""


@dataclass(slots=True)
class Identifier:
    """A token that names one thing, with what is known of its use."""

    text: str
    source: int
    """Index of the newest source that holds it."""
    start: int
    """Where it first stands in that source."""
    occurrences: int = 0
    messages: int = 0
    in_calls: bool = False
    said_by_user: bool = False
    only_results: bool = True
    last_call_position: float = 0.0
    crowd: int = 1 << 30
    """How many identifiers stand in the sparsest source that holds it: one of two says more than one of 300."""
    value: float = 0.0
    """Estimated chance, 0 to 1, that the agent uses it again soon."""


def find_tokens(text: str) -> Iterator[tuple[str, int]]:
    """Yield each identifier in `text` with its offset, in order; longer than `MAX_CHARS` is data, not a name."""
    for match in _TOKEN.finditer(text):
        token = match.group()
        if len(token) < MIN_CHARS or not _TELLING.search(token, 0, MAX_CHARS):
            continue
        start = match.start()
        stripped = token.rstrip(_TRAILING)
        if stripped[:1] in _LEADING:
            short = stripped.lstrip(_LEADING)
            start += len(stripped) - len(short)
            stripped = short
        if MIN_CHARS <= len(stripped) <= MAX_CHARS and _TELLING.search(stripped) and stripped[:6] != "//ctx":
            yield stripped, start


def rank_identifiers(sources: Sequence[Source]) -> list[Identifier]:
    """Return the identifiers of `sources` with their value, most valuable first."""
    found: dict[str, Identifier] = {}
    for index, source in enumerate(sources):
        first: dict[str, int] = {}
        counts: dict[str, int] = {}
        for token, start in find_tokens(source.text):
            if token in counts:
                counts[token] += 1
            else:
                counts[token] = 1
                first[token] = start
        crowd = len(counts)
        kind = source.kind
        for token, count in counts.items():
            known = found.get(token)
            if known is None:
                known = found[token] = Identifier(token, index, first[token])
            known.source = index
            known.start = first[token]
            known.occurrences += count
            known.messages += 1
            if crowd < known.crowd:
                known.crowd = crowd
            if kind != "result":
                known.only_results = False
                if kind == "call":
                    known.in_calls = True
                    known.last_call_position = source.position
                elif kind == "user":
                    known.said_by_user = True
    ranked = list(found.values())
    for identifier in ranked:
        identifier.value = _value(identifier, sources[identifier.source].position)
    ranked.sort(key=lambda identifier: -identifier.value)
    return ranked


def _value(identifier: Identifier, position: float) -> float:
    """Estimate how likely an identifier is to be used again, from its use so far.

    A logistic model. Its weights were fitted once, then rounded, on 248 cuts through the recorded sessions of
    `data/dev` (coding, customer service, browsing, chat): what the next eight assistant messages named. Use in an
    earlier call, repetition and recency speak for an identifier; having only ever been printed by a tool, among
    many, speaks against it. What a user named is weighed above the fit: users notice when it is lost.
    """
    token = identifier.text
    score = -1.7
    if identifier.in_calls:
        score += 0.35 + 0.75 * identifier.last_call_position**2
    if identifier.only_results:
        score -= 1.5
    if identifier.said_by_user:
        score += 0.6
    score += 0.25 * math.log2(identifier.messages) + 0.15 * math.log2(identifier.occurrences)
    score += 0.25 * position + 0.4 * position**3
    score -= 0.3 * math.log(1 + min(identifier.crowd, 400))
    score -= 0.35 * len(token) / 40
    if _NUMBER.fullmatch(token):
        score -= 1.2
    return 1 / (1 + math.exp(-score))


def describe(identifier: Identifier, source: Source) -> str:
    """Return the identifier with the word before it in its source, which often says what it is.

    `order_id: #W123` for a JSON value, `def parse_date` for code, the identifier alone where no word helps.
    """
    before = source.text[max(0, identifier.start - 40) : identifier.start]
    match = _WORD_BEFORE.search(before)
    if match is None or match[1].casefold() in _EMPTY_WORDS or "\n" in match[0]:
        return identifier.text
    word = match[1].strip(".-")
    return f"{word} {identifier.text}" if word != identifier.text else identifier.text
