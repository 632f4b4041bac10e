"""Mark what a model's summary says and its material does not hold: ids, paths, numbers, quotes, negations.

A value is compared by what it means and not by how it is written: `1,234` and `1234`, `$12.50` and `12.5`,
`09:05` and `9:05`, a path and its last parts are the same. Small counts, which a summary may have counted
itself, and the numbers of lists are not looked at.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from context_compressor.messages.text import normalize

MARK = " (?)"
"""Stands behind what the material does not hold."""
_SMALL = 100
"""Whole numbers below it a summary may have counted itself."""
_MIN_NAME_CHARS = 4
"""Shorter names, such as T1, a summary may have given itself."""
_MAX_QUOTES = 200
_MIN_QUOTE_CHARS = 4
_MAX_RUN_PARTS = 12
_MAX_PLACES = 40
"""So many clauses of a value are compared, the newest: a log has it in each line."""
_SAME = 0.4
"""A clause of the material is what a sentence tells of, when they share this part of the words of either."""

_QUOTE = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|「([^」\n]+)」|`([^`\n]+)`")
_TOKEN = re.compile(
    r"(?:\w+://)?[~/.\\#@$€£¥]*[A-Za-z0-9_](?:(?:[\w./\\@+#~-]|,(?=\d))*[A-Za-z0-9_])?"
    r"(?:(?<=\d):\d\d(?!\d))*%?",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\\\?[ntr]")
"""A line end or tab in text inside JSON."""
_NAME_MARK = re.compile(r"[._\\]")
_OTHER = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WITH_UNIT = re.compile(r"(\d+(?:[.,]\d+)*)([a-z]{1,3})")
_DATE = re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})")
_REST = re.compile(r"[^\s\u3000-\u9fff\uff00-\uffef]*")
_CLOSES = ".,;:!?"
_LIST_MARK = re.compile(r"^\s*(?:[-*•]\s*)?(?:\d{1,3}[.)、]\s|#+\s.*$)", re.MULTILINE)
_CLAUSE_END = re.compile(r"[.!?;,:](?=\s|$)|[。！？；，：、\n]|\s(?:but|and|aber|und)\s|(?:但是?|而且?)")
_SENTENCE_END = re.compile(r"[.!?;](?=\s|$)|[。！？；\n]")
_WORD = re.compile(r"[^\W\d_]{3,}")
_CJK = re.compile(r"[\u3400-\u9fff]+")
_NOT = re.compile(
    r"\b(?:not|never|no|none|nothing|cannot|without|neither|nor|nicht|kein\w{0,2}|nie|niemals|ohne)\b|n['’]t\b"
    r"|(?<!差)(?:不(?![但仅过同断少])|没|未(?![来])|无(?![论])|勿|莫|禁止|(?<![特区分级类])别(?![的人名]))",
    re.IGNORECASE,
)
_ALSO_NOT = re.compile(
    r"fail|refus|denied|declin|reject|unable|unchanged|untouched|missing|instead|avoid|forbid|only|except|keep|leave"
    r"|zero|lack|stop|cancel|statt|außer|nur|verweiger|失败|拒绝|避免|保持|保留|只|仅|缺|除[了非]|取消|停",
    re.IGNORECASE,
)
"""Other ways to say no, with which a summary may tell a negation of the material."""


class Checked(NamedTuple):
    """A summary with its marks."""

    text: str
    values: int
    marked: int
    made_up: tuple[str, ...]
    """The values marked, each once, but for whole numbers: a summary may have counted or added."""


def mark_values(summary: str, material: str) -> Checked:
    """Return a summary with ` (?)` behind each value that its material does not hold, or holds negated.

    What the material itself has such a mark behind it does not hold. Marks of the summary are made anew.
    """
    summary = summary.replace(MARK, "")
    *doubted, rest = material.split(MARK)
    known = _Material(" ".join([*(part[: part.rfind(" ") + 1] for part in doubted), rest]))
    # The numbers of lists are blanked, so that all else stays in its place.
    found = list(_values(_LIST_MARK.sub(lambda mark: " " * len(mark[0]), summary)))
    doubts = {value.end for value in found if not known.holds(value)}
    sure = sorted((value for value in found if value.end not in doubts), key=lambda value: value.start)
    doubts |= _lost_negations(summary, sure, known)
    spans = [match.span() for match in _QUOTE.finditer(summary)]
    text = summary
    for behind in sorted({_behind(summary, end, spans) for end in doubts}, reverse=True):
        text = f"{text[:behind]}{MARK}{text[behind:]}"
    marked = {value.text for value in found if value.end in doubts}
    made_up = tuple(sorted(text for text in marked if not text.isdigit()))
    return Checked(text, len({value.text for value in found}), len(marked), made_up)


def _behind(text: str, end: int, spans: list[tuple[int, int]]) -> int:
    """Return where a mark stands behind a value: behind what it is quoted in, or the word it is part of."""
    end = next((stop for start, stop in spans if start < end <= stop), end)
    rest = _REST.match(text, end)
    return end + len(rest[0].rstrip(_CLOSES) if rest else "")


class _Value(NamedTuple):
    text: str
    start: int
    end: int
    is_quote: bool = False


def _values(text: str) -> Iterator[_Value]:
    """Yield quotes of several words, and outside them what is a value by its form."""
    taken: list[tuple[int, int]] = []
    for match in _QUOTE.finditer(text):
        quote = match[match.lastindex or 0]
        # Code is told in part, as a call without its arguments: its names are looked for, each by itself.
        is_phrase = match[4] is None and (len(quote.split()) > 1 or _CJK.search(quote) is not None)
        if is_phrase and len(quote) >= _MIN_QUOTE_CHARS and len(taken) < _MAX_QUOTES:
            taken.append(match.span())
            yield _Value(quote, match.start(), match.end(), is_quote=True)
    at = 0
    for match in _TOKEN.finditer(text):
        while at < len(taken) and taken[at][1] <= match.start():
            at += 1
        in_quote = at < len(taken) and taken[at][0] <= match.start()
        is_cut = text[match.end() : match.end() + 2].strip()[:1] == "…"  # nobody can tell what it was
        if not in_quote and not is_cut and _is_value(match[0]):
            yield _Value(match[0], match.start(), match.end())


def _is_value(token: str) -> bool:
    """Tell whether a token is an id, path, number, date or amount by its form, and no small count."""
    if any(c.isdigit() for c in token):
        number = _NUMBER.fullmatch(token)
        return len(token) >= _MIN_NAME_CHARS if number is None else len(token) > 1 or int(token) >= _SMALL
    word = token.strip("/\\._-~#@$€£¥")
    is_path = word.count("/") + word.count("\\") > 1 or (token[0] in "/~\\" and len(word) > 1)
    return is_path or "_" in word or "@" in word or re.fullmatch(r"[\w/\\-]{2,}\.\w{1,5}", word) is not None


class _Material:
    """What the material holds, in whatever writing."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words = f" {_words(text)} "
        self._numbers = set(map(_plain_number, _NUMBER.findall(_DATE.sub(" ", text))))
        self._numbers.update(map(_plain_number, _NUMBER.findall(self._words)))
        self._stems: dict[str, set[str]] = {}

    def holds(self, value: _Value) -> bool:
        """Tell whether the material has a value."""
        if value.is_quote:
            parts = [_letters(part) for part in re.split(r"\.{3}|…", value.text)]
            return all(part in self._letters for part in parts)
        is_path = value.text[0] in "/~"
        return self._has(_plain(value.text)) or (is_path and self._has_joined(_words(value.text).split()))

    def _has(self, plain: str) -> bool:
        if _DATE.fullmatch(plain):
            return _date_key(plain) in self._dates
        if _NUMBER.fullmatch(plain):
            return _is_small(plain) or _plain_number(plain) in self._numbers
        if unit := _WITH_UNIT.fullmatch(plain):
            number, times = _plain_number(unit[1]), {"k": 1_000, "m": 1_000_000}.get(unit[2], 0)
            if unit[2] in ("st", "nd", "rd", "th") and _is_small(number):
                return True
            is_times = times > 0 and number.replace(".", "", 1).isdigit()
            return number in self._numbers or (is_times and f"{float(number) * times:.0f}" in self._numbers)
        pieces = re.split(r"[-,+/]", plain)
        if len(pieces) > 1 and all(map(_NUMBER.fullmatch, pieces)):
            return all(map(self._has, pieces))
        words = _words(plain)
        if not _NAME_MARK.search(plain):  # `keep/donate`, `$30-40/night`: words that somebody joined
            return all(f" {word} " in self._words for word in words.split())
        return f" {words} " in self._words

    def _has_joined(self, words: list[str]) -> bool:
        """Tell whether a path is made of a folder and of a path in it."""
        return len(words) <= _MAX_RUN_PARTS and any(
            f" {' '.join(words[:at])} " in self._words and f" {' '.join(words[at:])} " in self._words
            for at in range(1, len(words))
        )

    @cached_property
    def _letters(self) -> str:
        return _letters(self._text)

    @cached_property
    def _dates(self) -> set[tuple[int, ...]]:
        return {_date_key(date) for date in _DATE.findall(self._text)}

    def stems(self, clause: str) -> set[str]:
        """Return what tells a clause; the same one is asked for with each of its values."""
        if clause not in self._stems:
            self._stems[clause] = _stems(clause)
        return self._stems[clause]

    @cached_property
    def clauses(self) -> dict[str, list[str]]:
        """By value, the clauses that have it."""
        found: dict[str, list[str]] = defaultdict(list)
        for clause in dict.fromkeys(_CLAUSE_END.split(self._text)):
            if clause and len(clause) < 1_000:
                for token in {_plain(token) for token in _TOKEN.findall(clause) if _is_value(token)}:
                    found[token].append(clause)
                    if "/" in token:
                        found[token.rpartition("/")[2]].append(clause)
        return found


def _lost_negations(summary: str, values: list[_Value], material: _Material) -> set[int]:
    """Return the ends of values which the material has in negated clauses only, and the summary in none."""
    doubts: set[int] = set()
    ends = [0, *(match.end() for match in _SENTENCE_END.finditer(summary)), len(summary)]
    for start, end in pairwise(ends):
        sentence = summary[start:end]
        inside = [value for value in values if start <= value.start < end]
        if not inside or _NOT.search(sentence) or _ALSO_NOT.search(sentence):
            continue
        stems = _stems(sentence)
        for value in inside:
            plain = _plain(value.text)
            told = material.clauses.get(plain) or material.clauses.get(plain.rpartition("/")[2], [])
            shared = {clause: len(stems & material.stems(clause)) for clause in told[-_MAX_PLACES:]}
            most = max(shared.values(), default=0)
            same = [clause for clause, words in shared.items() if words == most]
            least = _SAME * max(len(stems), *(len(material.stems(clause)) for clause in same), 1)
            if most >= least and all(_NOT.search(clause) for clause in same):
                doubts.add(value.end)
    return doubts


def _stems(text: str) -> set[str]:
    """Return the beginnings of words, and pairs of ideographs, without values and what negates."""
    bare = _TOKEN.sub(lambda token: " " if _is_value(token[0]) else token[0], _NOT.sub(" ", text.casefold()))
    pairs = {run[at : at + 2] for run in _CJK.findall(bare) for at in range(len(run) - 1)}
    return pairs | {word[:4] for word in _WORD.findall(_CJK.sub(" ", bare))}


def _plain(token: str) -> str:
    """Return a token in the form in which two that mean the same are equal."""
    plain = token.casefold().replace("\\", "/").strip("$€£¥%#@~.,:;-/")
    plain = plain.removeprefix("./")
    if _NUMBER.fullmatch(plain) and not plain.count(".") > 1:
        return _plain_number(plain)
    return re.sub(r"(?<![\w.])0+(?=\d+\b)", "", plain) if ":" in plain else plain


def _plain_number(number: str) -> str:
    """Return a number without separators of thousands and without zeros that say nothing."""
    number = re.sub(r"[,](?=\d{3}(?:\D|$))", "", number)
    number = number.rstrip("0").rstrip(".") if "." in number and number.count(".") == 1 else number
    number = number.lstrip("0")
    return number if number[:1].isdigit() else f"0{number}"


def _is_small(number: str) -> bool:
    return number.isdigit() and int(number) < _SMALL


def _date_key(date: str) -> tuple[int, ...]:
    return tuple(sorted(map(int, re.split(r"[-/.]", date))))


def _words(text: str) -> str:
    """Return the words and numbers of a text in ASCII, with blanks between: a name in any dress."""
    words = _OTHER.sub(" ", normalize("NFKC", _ESCAPE.sub(" ", text)).casefold()).split()
    return " ".join(word.lstrip("0") or "0" if word.isdigit() else word for word in words)


def _letters(text: str) -> str:
    """Return the letters and digits of a text alone: what a quote keeps in any dress."""
    return "".join(c for c in _ESCAPE.sub(" ", text).casefold() if c.isalnum())
