"""Find the identifiers in texts: names of one thing, and values, as they stand."""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache

from context_compressor.messages.escapes import without_escapes
from context_compressor.messages.file_names import take_asian_files, take_windows_paths
from context_compressor.summarizers.identifiers.values import is_english_date, take_values

MIN_CHARS = 5
MAX_CHARS = 120
"""Lengths of an identifier in characters: below, it is a word or a small number; above, it is data."""

_REMEMBERED_CHARS = 2 * MAX_CHARS

LETTERS = r"A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0300-\u052f\u1e00-\u1fff"
"""Latin, Greek and Cyrillic letters, between which words have blanks, and accents that stand by themselves,
as in names of files; the signs × and ÷ are none."""
_TOKEN = re.compile(rf"<?https?://[^\s\"'`<>\\)\]}}，。]++|[<\\]?[{LETTERS}0-9_@/.#~+-]{{5,}}+")
"""With what stands before it, where that is `<` or a backslash: a lookbehind takes four times as long."""
_WORD = re.compile(rf"[{LETTERS}0-9_@/.#~+<\\-]{{5,}}+")
"""Holds every token that is no URL; to find one class of characters takes half the time of alternatives."""
_SPLITTING = "".join(chr(i) if re.fullmatch(r"[\w@/.#~+<\\-]", chr(i), re.ASCII) else " " for i in range(128))
"""Leaves of ASCII the words alone; to divide by it takes half the time again."""
_TELLING = re.compile(r"[0-9_@/]|[^.]\.[^.]|[a-z][A-Z]|[A-Z]{2}[a-z]{2}")
"""A digit, underscore, slash, at sign, inner dot or camel case makes a token an identifier."""
_TORN = re.compile(rf"(?<![{LETTERS}0-9_@/.:#~+\\-])[{LETTERS}0-9_@/.:#~+\\-]++\Z")
"""What is left of a word that was cut, before its ellipsis."""
_ESCAPES = ("\\n", "\\r", "\\t", "\\b", "\\f", "\\v")
_LEADING = "-~+"
_TRAILING = ".,:;-#/~+"
_RULES = "_./@#~+-"
"""Of these alone consist the lines that divide a text."""
_DATA_CHARS = 60
_DATA = re.compile(r"(?=(?:[^0-9]*[0-9]){3})(?=.*[a-z])(?=.*[A-Z])[A-Za-z0-9+/]*")
"""A line of base64, as keys and certificates have many, is so long at least; a path has other signs, too."""
_COUNTED = re.compile(r"[0-9]+-[a-z]+")
"""A word behind a number: a line that `grep` shows beside a match (`33-from`), or a measure (`2-digit`)."""
_NUMBER = re.compile(
    r"[0-9.,:/TZ+-]+|\+[0-9 ()-]+|[0-9.,年月日号년월일 \u00a0\u202f€₽₺₫zł万億亿만円元원]+"
    r"|[0-9.]+(?:[nµ]s|min)|(?:[0-9.]+(?:ms|[dhms]))+|[0-9.]+(?:[KMGT]i?B?|kB)",
    re.ASCII,
)
"""Numbers, dates and times, durations (`5m20s`) and sizes (`512Mi`)."""


def count_identifiers(text: str) -> dict[str, int]:
    """Return how often each identifier stands in `text`, in the order of their first appearance."""
    counts: dict[str, int] = {}
    # Distinct words are few, so all but `findall` and `Counter`, which run in C, works on those.
    whole, text = _take_whole(text)
    for word, count in Counter(_words(text)).items():
        if len(word) < MIN_CHARS:
            continue
        for name in _names_in(word) if len(word) <= _REMEMBERED_CHARS else _read_word(word):
            counts[name] = counts.get(name, 0) + count
    for name in whole:
        counts[name] = counts.get(name, 0) + 1
    return counts


def find_identifiers(text: str) -> frozenset[str]:
    """Return the identifiers that stand in `text`."""
    return frozenset(count_identifiers(text))


def _take_whole(text: str) -> tuple[list[str], str]:
    """Return the identifiers that hold more than the characters of a word, and the text without them."""
    paths, text = take_windows_paths(without_escapes(text))
    if "…" in text:
        *parts, last = text.split("…")
        text = " ".join([_without_torn_end(part) for part in parts] + [last])
    files, text = take_asian_files(text)
    values, text = take_values(text)
    whole = [name for name in paths + values if MIN_CHARS <= len(name) <= MAX_CHARS]
    return [name for file in files for name in _read_word(file)] + whole, text


def _without_torn_end(text: str) -> str:
    torn = _TORN.search(text, max(0, len(text) - _REMEMBERED_CHARS))
    return text[: torn.start()] if torn else text


def _words(text: str) -> list[str]:
    """Return the words that may hold identifiers, and shorter ones."""
    if "http" in text:
        return _TOKEN.findall(text)
    return text.translate(_SPLITTING).split() if text.isascii() else _WORD.findall(text)


def _read_word(word: str) -> tuple[str, ...]:
    """Return the identifiers in a word."""
    tokens = _TOKEN.findall(word) if "<" in word or "\\" in word else (word,)
    return tuple(name for name in map(_name_in, tokens) if name is not None)


_names_in = lru_cache(maxsize=1 << 15)(_read_word)
"""Conversations repeat their words, so these are remembered; but not long ones, which are data, and would
stay in memory for as long as the process."""


def _name_in(token: str) -> str | None:
    """Return the identifier that a token holds, or None."""
    if token[0] in "<\\":
        # `List<OrderLine>` holds a name, `</output>` is a tag, and `\nNext` begins with the end of an escape.
        token = token[2 if token.startswith(("</", *_ESCAPES)) else 1 :]
    if (token.isalpha() and (token.islower() or token.istitle())) or not _TELLING.search(token, 0, MAX_CHARS):
        return None
    name = token.rstrip(_TRAILING).lstrip("./" if token.startswith(".") else _LEADING)
    if not MIN_CHARS <= len(name) <= MAX_CHARS or name.startswith("//") or not name.strip(_RULES):
        return None
    if len(name) >= _DATA_CHARS and _DATA.fullmatch(name) and not name.startswith("/"):
        return None
    if _COUNTED.fullmatch(name) or "..." in (token if "://" in token else name):  # cut, or a placeholder
        return None
    return name if _TELLING.search(name) else None


def is_number(token: str) -> bool:
    """Tell whether an identifier is a number, that of a phone too, a date, a time, a duration or a size."""
    return _NUMBER.fullmatch(token) is not None or (" " in token and is_english_date(token))
