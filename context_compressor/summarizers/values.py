"""Mark what a model's summary says and its material does not hold: ids, paths, numbers, quotes, negations.

A value is compared by what it means and not by how it is written: `1,234` and `1234`, `$12.50` and `12.5`,
`09:05` and `9:05`, a path and its last parts are the same. Small counts, which a summary may have counted
itself, and the numbers of lists are not looked at.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import islice
from typing import NamedTuple

MARK = " (?)"
"""Stands behind what the material does not hold."""
_SMALL = 10
_MAX_QUOTES, _MIN_QUOTE_CHARS = 200, 4
"""Each is looked for in all of the material."""
_MAX_RUN_PARTS = 12
_MAX_PLACES = 40
"""So many clauses of a value are compared, the newest: a log has it in each line."""
_SAME = 0.4
"""A clause of the material is what a sentence tells of, when they share this part of the words of either."""

_QUOTE = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|「([^」\n]+)」|`([^`\n]+)`")
_TOKEN = re.compile(
    r"(?:\w+://)?[~/.\\#@$€£¥]*[A-Za-z0-9_](?:(?:[\w./\\@+#~-]|,(?=\d))*[A-Za-z0-9_])?(?:(?<=\d):\d\d)*%?",
    re.ASCII,
)
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_WITH_UNIT = re.compile(r"(\d+(?:[.,]\d+)*)([a-z]{1,3})")
_DATE = re.compile(r"(\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d?[-/.]\d\d?[-/.]\d{4})")
_CLOSING = re.compile(r"[*_)`\"”」]{0,8}")
"""What closes around a value stays with it."""
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
    r"|lack|stop|cancel|statt|außer|nur|verweiger|失败|拒绝|避免|保持|保留|只|仅|缺|除[了非]|取消|停",
    re.IGNORECASE,
)
"""Other ways to say no, with which a summary may tell a negation of the material."""


class Checked(NamedTuple):
    """A summary with its marks, how many of its values were looked for, and how many have a mark."""

    text: str
    values: int
    marked: int


def mark_values(summary: str, material: str) -> Checked:
    """Return a summary with ` (?)` behind each value that its material does not hold, or holds negated.

    What the material itself has such a mark behind it does not hold. Marks of the summary are made anew.

    Args:
        summary: a model's answer.
        material: all that it was shown.
    """
    summary = summary.replace(MARK, "")
    *doubted, rest = material.split(MARK)
    known = _Material(" ".join([*(part[: part.rfind(" ") + 1] for part in doubted), rest]))
    # The numbers of lists are blanked, so that all else stays in its place.
    found = list(_values(_LIST_MARK.sub(lambda mark: " " * len(mark[0]), summary)))
    doubts = {value.end for value in found if not known.holds(value)}
    sure = sorted((value for value in found if value.end not in doubts), key=lambda value: value.start)
    doubts |= _lost_negations(summary, sure, known)
    pieces, at = [], 0
    for end in sorted(doubts):
        closing = _CLOSING.match(summary, end)
        behind = closing.end() if closing else end
        pieces.append(summary[at:behind] + MARK)
        at = behind
    return Checked("".join([*pieces, summary[at:]]), len(found), len(doubts))


class _Value(NamedTuple):
    text: str
    start: int
    end: int
    is_quote: bool = False


def _values(text: str) -> Iterator[_Value]:
    """Yield quotes of several words, and outside them what is a value by its form."""
    outside = text
    for match in islice(_QUOTE.finditer(text), _MAX_QUOTES):
        quote = match[match.lastindex or 0]
        is_phrase = len(quote.split()) > 1 or _CJK.search(quote) is not None
        if is_phrase and len(quote) >= _MIN_QUOTE_CHARS:
            yield _Value(quote, match.start(), match.end(), is_quote=True)
            outside = outside[: match.start()] + " " * len(match[0]) + outside[match.end() :]
    for match in _TOKEN.finditer(outside):
        is_cut = text[match.end() : match.end() + 2].lstrip().startswith("…")  # nobody can tell what it was
        if not is_cut and _is_value(match[0]):
            yield _Value(match[0], match.start(), match.end())


def _is_value(token: str) -> bool:
    """Tell whether a token is an id, path, number, date or amount by its form, and no small count."""
    if any(c.isdigit() for c in token):
        number = _NUMBER.fullmatch(token)
        return number is None or len(token) > 1 or int(token) >= _SMALL
    word = token.strip("/\\._-~#@$€£¥")
    is_path = word.count("/") + word.count("\\") > 1 or (token[0] in "/~\\" and len(word) > 1)
    return is_path or "_" in word or "@" in word or re.fullmatch(r"[\w/\\-]{2,}\.\w{1,5}", word) is not None


class _Material:
    """What the material holds, each value in its plain form."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._plain: set[str] = set()
        self._numbers: set[str] = set()
        self.stems = cache(_stems)  # a clause is asked for with each of its values
        for token in set(_TOKEN.findall(text)):
            self._add(token)
        # Numbers within words of other scripts, and beside what is no part of a token.
        self._numbers.update(map(_plain_number, set(_NUMBER.findall(_DATE.sub(" ", text)))))

    def _add(self, token: str) -> None:
        plain = _plain(token)
        self._plain.add(plain)
        if "/" in plain:
            parts = plain.split("/")[-_MAX_RUN_PARTS:]
            for start in range(len(parts)):
                self._plain.update("/".join(parts[start:end]) for end in range(start + 1, len(parts) + 1))
        elif "," in plain:
            self._plain.update(plain.split(","))

    def holds(self, value: _Value) -> bool:
        """Tell whether the material has a value, in whatever writing."""
        if value.is_quote:
            parts = [_letters(part) for part in re.split(r"\.{3}|…", value.text)]
            return all(part in self._letters for part in parts)
        plain = _plain(value.text)
        if self._has(plain):
            return True
        parts = plain.split("/")  # a path may be made of a folder and of a path in it
        is_short = value.text[0] in "/~" and len(parts) <= _MAX_RUN_PARTS
        return is_short and any(
            "/".join(parts[:at]) in self._plain and "/".join(parts[at:]) in self._plain
            for at in range(1, len(parts))
        )

    def _has(self, plain: str) -> bool:
        if not plain or plain in self._plain:
            return True
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
        are_numbers = len(pieces) > 1 and all(map(_NUMBER.fullmatch, pieces))
        if are_numbers or ("/" in plain and len(pieces) == 2 and "." not in plain):
            return all(map(self._has, pieces))
        return False

    @cached_property
    def _letters(self) -> str:
        return _letters(self._text)

    @cached_property
    def _dates(self) -> set[tuple[int, ...]]:
        return {_date_key(date) for date in _DATE.findall(self._text)}

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
    at = start = 0
    for match in _SENTENCE_END.finditer(f"{summary}\n"):
        sentence, inside, start = summary[start : match.end()], [], match.end()
        while at < len(values) and values[at].start < start:
            inside.append(values[at])
            at += 1
        if not inside or _NOT.search(sentence) or _ALSO_NOT.search(sentence):
            continue
        stems = _stems(sentence)
        for value in inside:
            plain = _plain(value.text)
            told = material.clauses.get(plain) or material.clauses.get(plain.rpartition("/")[2], [])
            shared = {clause: len(stems & material.stems(clause)) for clause in told[-_MAX_PLACES:]}
            most = max(shared.values(), default=0)
            same = [clause for clause, words in shared.items() if words == most]
            least = _SAME * max(1, len(stems), *(len(material.stems(clause)) for clause in same))
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
    return re.sub(r"(?<![\w.])0+(?=\d)", "", plain) if ":" in plain else plain


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


def _letters(text: str) -> str:
    """Return the letters and digits of a text alone: what a quote keeps in any dress."""
    return "".join(c for c in text.casefold().replace("\\n", " ").replace("\\t", " ") if c.isalnum())
