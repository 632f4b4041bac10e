"""Mark what a model's notes say and nothing shows that it was given: ids, paths, numbers, quotes.

A value is right where it can be put together from what stands there: the same in another writing (`1,234`
and `1234`, `09:05` and `9:05`), a number rounded, a range of two numbers, a path or an id without its
beginning or ending, a quote that leaves out its middle, a name said with the folder or the class in which it
stands. Small counts, which a writer may have counted himself, and the numbers of lists are not looked at.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from context_compressor.messages.text import normalize

MARK = " (?)"
"""Stands behind what nothing shows."""
_SMALL = 100
"""Whole numbers below it a writer may have counted himself."""
_MIN_DIGITS = 3
_MAX_NUMBER_CHARS = 15
"""A longer one is an id: none is rounded."""
_MIN_NAME_CHARS = 4
"""Shorter names, such as T1, a writer may have given himself."""
_MIN_BEGINNING_CHARS = 7
"""So much of the beginning of a word tells which it is: as much as git shows of a hash."""
_MIN_QUOTE_CHARS = 4
_MIN_SAID_CHARS = 8
"""Letters and digits of each half of a quote whose middle is left out without a sign."""
_MAX_QUOTES = 200
_MAX_JOINED_WORDS = 40
"""A longer value is looked for as a whole only."""

_QUOTE = re.compile(r"(?<!\d)\"([^\"\n]+)\"|“([^”\n]+)”|「([^」\n]+)」|`([^`\n]+)`")
_TOKEN = re.compile(
    r"(?:\w+://)?[~/.\\#@$€£¥]*[A-Za-z0-9_](?:(?:[\w./\\@+#~-]|,(?=\d))*[A-Za-z0-9_])?"
    r"(?:(?<=\d):\d\d(?!\d))*%?",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\\\?[ntr]")
"""A line end or tab in text inside JSON."""
_CJK = re.compile(r"[\u3400-\u9fff]")
_LEFT_OUT = re.compile(r"\W*(?:\.{3}|…)\W*")
_OTHER = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"\d+(?:,\d{3}(?!\d))*(?:\.\d+)?")
_AMOUNT = re.compile(rf"(?!0[a-z])({_NUMBER.pattern})([a-z]{{0,3}})")
_AMOUNT_IN_TEXT = re.compile(rf"(?<![a-z0-9_]){_AMOUNT.pattern}(?![a-z0-9_])")
_RANGE = re.compile(r"(\D{0,3}\d[\d.,:]*)-(\D{0,3}\d[\d.,:]*[a-z%]{0,3})|([\d.:-]+)/([\d.:-]+)")
_TIMES = (1_000, 1_000_000)
"""Numbers are told in these, too: 12k, 32.7 KB, 3 million."""
_DATE = re.compile(r"(\d{4})\D{1,3}(\d\d?)\D{1,3}(\d\d?)(?!\d)|(?<!\d)(\d\d?)[-/.](\d\d?)[-/.](\d{4})")
_DAY_AND_YEAR = re.compile(r"(?<!\d)(\d\d?)[.,]?\s(?:[^\W\d_]+[.,]?\s)?(\d{4})(?!\d)")
_FILE = re.compile(r"[\w/\\-]{2,}\.\w{1,5}")
_REST = re.compile(r"[^\s\u3000-\u9fff\uff00-\uffef]*")
_CLOSES = ".,;:!?"
_LIST_MARK = re.compile(r"^\s*(?:[-*•]\s*)?\d{1,3}[.)、]\s", re.MULTILINE)


class Value(NamedTuple):
    """A value in a text."""

    text: str
    end: int
    """Where its mark would stand: behind what it is quoted in, or the word that it is part of."""
    is_quote: bool = False


class Shown:
    """All that a writer was shown and knew, to look for values in.

    What has a mark behind it there, in notes of before, does not count.
    """

    def __init__(self, text: str) -> None:
        *doubted, rest = text.split(MARK)
        self._text = "".join([*(part[: part.rfind(" ") + 1] for part in doubted), rest])

    # All of it is read once for each kind of value, and only for kinds that somebody looks for.

    @cached_property
    def _words(self) -> str:
        return f" {_words(self._text)} "

    @cached_property
    def _letters(self) -> str:
        return _letters(self._text)

    @cached_property
    def _folded(self) -> str:
        return normalize("NFKC", _ESCAPE.sub(" ", self._text)).casefold()

    @cached_property
    def _amounts(self) -> dict[str | None, list[float]]:
        amounts: dict[str | None, list[float]] = defaultdict(list)
        for number, unit in _AMOUNT_IN_TEXT.findall(self._folded):
            amounts[unit].append(_plain(number))
        # Within words and names, too: `251kb`, `v12`, `1,2`.
        numbers = map(_plain, _NUMBER.findall(self._folded))
        amounts[None] = [*numbers, *map(float, re.findall(r"\d+", self._folded))]
        return {unit: sorted(numbers) for unit, numbers in amounts.items()}

    @cached_property
    def _dates(self) -> set[tuple[int, int, int]]:
        return {_date(match) for match in _DATE.finditer(self._folded)}

    @cached_property
    def _days(self) -> set[tuple[int, int]]:
        return {(int(day), int(year)) for day, year in _DAY_AND_YEAR.findall(self._folded)}

    def holds(self, value: Value) -> bool:
        """Tell whether a value can be put together from what stands here."""
        if value.is_quote:
            parts = _LEFT_OUT.split(value.text)
            return all(self._is_said(part, 0) or _joins(part, r"\s", self._is_said) for part in parts)
        plain = _ESCAPE.sub(" ", value.text).casefold().strip(" $€£¥%#@~.,:;-/\\")
        if (amount := _AMOUNT.fullmatch(plain)) and len(plain) <= _MAX_NUMBER_CHARS:
            return self._counts(*amount.groups())
        return (
            not plain
            or self._stands(plain)
            or self._is_date(plain)
            or (re.search("[a-z]", plain) is not None and _joins(plain, r"[/\\.:#@]", self._stands))
            or self._is_range(plain)
            or (plain.replace("/", "").isalpha() and all(map(self._stands, plain.split("/"))))
        )

    def _stands(self, text: str) -> bool:
        """Tell whether words stand here one behind the other, but the ending of a last one that is long."""
        words = _words(text)
        last = words.rpartition(" ")[2]
        is_telling = len(last) >= _MIN_BEGINNING_CHARS and not last.isdigit()
        return (f" {words}" if is_telling else f" {words} ") in self._words

    def _is_said(self, text: str, least: int = _MIN_SAID_CHARS) -> bool:
        letters = _letters(text)
        return len(letters) >= least and letters in self._letters

    def _counts(self, number: str, unit: str) -> bool:
        """Tell whether a number, with a unit or without, stands here or is one that does, rounded or cut."""
        value, place = _plain(number), _last_place(number)
        if not unit and value < _SMALL and value.is_integer():
            return True
        units = (unit, "") if unit else (None,)
        return any(self._has(value, place, of) for of in units) or any(
            self._has(times * value, times * place, None) for times in _TIMES
        )

    def _has(self, value: float, place: float, unit: str | None) -> bool:
        numbers = self._amounts.get(unit, [])
        at = bisect_left(numbers, value - place / 2)
        return at < len(numbers) and numbers[at] < value + place

    def _is_range(self, plain: str) -> bool:
        ends = _RANGE.fullmatch(plain)
        return ends is not None and all(self.holds(Value(end, 0)) for end in ends.groups() if end)

    def _is_date(self, plain: str) -> bool:
        match = _DATE.fullmatch(plain)
        if match is None:
            return False
        year, month, day = date = _date(match)
        return date in self._dates or (year, day, month) in self._dates or (day, year) in self._days


def marked(text: str, shown: Shown) -> str:
    """Return a text with ` (?)` behind each value that nothing shows; marks in it are made anew."""
    text = text.replace(MARK, "")
    for end in sorted({value.end for value in values(text) if not shown.holds(value)}, reverse=True):
        text = f"{text[:end]}{MARK}{text[end:]}"
    return text


def unmarked(text: str, shown: Shown) -> str:
    """Return a text without the marks behind values that are shown by now."""
    parts = text.split(MARK)
    plain, kept, end = "".join(parts), "", 0
    found = list(values(plain))
    doubted = {value.end for value in found if not shown.holds(value)}
    sound = {value.end for value in found} - doubted
    for part in parts[:-1]:
        end += len(part)
        kept += part if end in sound else part + MARK
    return kept + parts[-1]


def values(text: str) -> Iterator[Value]:
    """Yield quotes of several words, and outside them what is a value by its form."""
    # The numbers of lists are blanked, so that all else stays in its place.
    text = _LIST_MARK.sub(lambda mark: " " * len(mark[0]), text)
    quotes = list(islice(_QUOTE.finditer(text), _MAX_QUOTES))
    for quote in filter(_is_phrase, quotes):
        yield Value(quote[quote.lastindex or 0], _behind(text, quote.end()), is_quote=True)
    at = 0
    for match in _TOKEN.finditer(text):
        while at < len(quotes) and quotes[at].end() <= match.start():
            at += 1
        around = quotes[at] if at < len(quotes) and quotes[at].start() <= match.start() else None
        # Nobody can tell what it was.
        is_cut = "…" in (
            text[match.start() - 1 : match.start()],
            text[match.end() : match.end() + 2].strip()[:1],
        )
        if not is_cut and not (around and _is_phrase(around)) and _is_value(match[0]):
            yield Value(match[0], _behind(text, around.end() if around else match.end()))


def _is_phrase(quote: re.Match[str]) -> bool:
    """Tell whether a quote is one of words. Code is told in part: its names are looked for one by one."""
    said = quote[quote.lastindex or 0]
    return (
        quote[4] is None
        and len(said) >= _MIN_QUOTE_CHARS
        and (len(said.split()) > 1 or bool(_CJK.search(said)))
    )


def _behind(text: str, end: int) -> int:
    rest = _REST.match(text, end)
    return end + len(rest[0].rstrip(_CLOSES) if rest else "")


def _is_value(token: str) -> bool:
    """Tell whether a token is an id, path, number, date or amount by its form, and no small count."""
    digits = sum(c.isdigit() for c in token)
    if digits:
        is_number = not any(c.isalpha() for c in token)
        return digits >= _MIN_DIGITS if is_number else len(token) >= _MIN_NAME_CHARS
    word = token.strip("/\\._-~#@$€£¥").replace("\\", "/")
    has_parts = "/" in word and (word.count("/") > 1 or "." in word or "-" in word)
    is_path = has_parts or (token[0] in "/~\\." and len(word) > 1)
    return is_path or "_" in word or "@" in word or _FILE.fullmatch(word) is not None


def _joins(text: str, between: str, stands: Callable[[str], bool]) -> bool:
    """Tell whether a text is two pieces that stand somewhere."""
    words = [word for word in re.split(between, text) if word]
    return len(words) <= _MAX_JOINED_WORDS and any(
        stands(" ".join(words[:at])) and stands(" ".join(words[at:])) for at in range(1, len(words))
    )


def _plain(number: str) -> float:
    return float(number.replace(",", ""))


def _last_place(number: str) -> float:
    """Return what one more is worth in the last place that tells: 100 for 1,500 and 1,000, .1 for 12.5."""
    whole, _, decimals = number.replace(",", "").partition(".")
    if decimals.strip("0"):
        return 10.0 ** -len(decimals)
    return 10.0 ** max(0, min(len(whole) - len(whole.rstrip("0")), len(whole) - 2))


def _date(match: re.Match[str]) -> tuple[int, int, int]:
    """Return year, month and day, as far as the order tells."""
    day, month, year = match.groups()[3:] if match[1] is None else match.groups()[2::-1]
    return int(year), int(month), int(day)


def _words(text: str) -> str:
    """Return the words and numbers of a text in ASCII, with blanks between: a name in any dress."""
    words = _OTHER.sub(" ", normalize("NFKC", _ESCAPE.sub(" ", text)).casefold()).split()
    return " ".join(word.lstrip("0") or "0" if word.isdigit() else word for word in words)


def _letters(text: str) -> str:
    """Return the letters and digits of a text alone: what a quote keeps in any dress."""
    return "".join(c for c in _ESCAPE.sub(" ", text).casefold() if c.isalnum())
