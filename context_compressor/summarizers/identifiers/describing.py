"""Describe an identifier by what stands beside it in its source, which often says what it is."""

from __future__ import annotations

import re
from typing import NamedTuple

from context_compressor.summarizers.identifiers.finding import LETTERS, is_number
from context_compressor.summarizers.identifiers.ranking import Source

_LOWER = r"a-z\u00df-\u00f6\u00f8-\u024f\u0300-\u036f\u03ac-\u03ce\u0430-\u045f\u1e00-\u1fff"
_OTHER_LETTERS = r"\u0531-\u0605\u0610-\u061a\u0620-\u065f\u066e-\u06ef\u06fa-\u0963\u0970-\u0dff"
"""Of Hebrew, Arabic, Hindi and their like: names are seldom written in them, but what says what these are."""
_SCRIPT = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3"
"""Chinese, Japanese and Korean."""
_KEY_BEFORE = re.compile(
    rf"(?:(?<![\w.@/-])([{LETTERS}{_OTHER_LETTERS}]{{3,24}}+|[{_SCRIPT}]{{2,8}}+)[ \"'`]{{0,3}}[:=(（：]?"
    rf"|(?<![{LETTERS}{_OTHER_LETTERS}])([{LETTERS}{_OTHER_LETTERS}][\w{_OTHER_LETTERS}-]{{1,30}}+)[\"'`]?[:：]"
    rf"|(?<![{_SCRIPT}])([{_SCRIPT}]{{1,12}}+[A-Z]{{2,8}})[\"'`]?[:：]"
    r"|<(?!(?:code|div|font|item|li|pre|small|span|string|strong|td|value)>)([^\W\d][\w.-]{1,30}+)>)"
    r"[ \"'`({\[#$]{0,3}\Z"
)
"""On one line: `$` would match before a line feed, and let the end of a line name what begins the next."""
_WORDS_BEFORE = re.compile(
    rf"(?:(?<![{LETTERS}{_OTHER_LETTERS}0-9_.,@/$€£¥'’-])"
    rf"(?:[{LETTERS}{_OTHER_LETTERS}][{_LOWER}{_OTHER_LETTERS}'’]{{0,15}}|[A-Z]{{2,6}}|\d{{1,3}}(?:,\d{{3}}){{0,3}}(?:\.\d{{1,4}})?)"
    rf"[ ,:;(\"'`*]{{1,3}}){{1,3}}\Z|[{_SCRIPT}]{{1,8}}[ ：:“\"]?\Z",
    re.ASCII,
)
_QUOTING = str.maketrans(dict.fromkeys('"`*(“'))
"""What opens a quotation before a token, or closes one that began before the words."""
_SEPARATOR = re.compile(r"[,;] ")
"""Divides the items of an index: within one it would divide this, and what precedes it is another clause."""
_WORDS_AFTER = re.compile(rf"[\"'`*)]{{0,3}}((?: [{LETTERS}][{_LOWER}']{{0,15}}){{1,2}})(?![\w.@/+-])")
_AROUND = {
    2: (
        re.compile(r"(?<![\w,.:-])(?:\d{4}-\d\d-\d\dT)?(?:\d\d?:){1,2}$", re.ASCII),
        re.compile(r"(?<=\d)(?::\d\d(?!\d)){1,2}"),
    ),
    3: (
        re.compile(r"(?<![\w,.])\d{1,3}(?:,\d{3}){0,2},$", re.ASCII),
        re.compile(r"(?<=\d)(?:,\d{3}(?!\d))+"),
    ),
}
"""What stands before and after a part of a time or of a number, by how many digits it begins with."""
_CLOCK = re.compile(r"(?::\d\d){1,2}(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?", re.ASCII)
"""The rest of a time behind its hour."""
_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3})+", re.ASCII)
_CENTS = re.compile(r",\d\d(?!\d)", re.ASCII)
_JOINED = re.compile(
    r"(?<![\w:/.@-])(?:(?:arn|urn):[\w:/.*-]*[\w*]"
    r"|(?:[\w-]+\.)+[\w-]+(?::\d{2,5})?(?:/[\w.-]+)+:\w[\w.-]{0,60}(?:@sha256:[0-9a-f]{12,64})?"
    r"|[\w.+-]+@[\w.-]+:[\w~][\w~./-]*\w"
    r"|[\w./-]*\w(?:::[A-Za-z_]\w*(?:\[[^\]\s]{1,60}\])?)+"
    r"|[\w./-]*[A-Za-z][\w./-]*(?::\d{1,5}(?![\w.])){1,3}|\d{1,3}(?:\.\d{1,3}){3}:\d{2,5}(?![\w.]))",
    re.ASCII,
)
"""Names that colons join: of Amazon's resources, URNs, images, repositories over SSH, tests and what has a
scope, places in files, hosts with a port. Where names are counted, these are several."""
_JOINED_CHARS = 120
_SIGNS = "$€£¥"
_MINUS = re.compile(r"(?:\A|[\s\"'`(\[{:=,|])[-−]\Z")
"""Before a number, the sign of one below zero, and no hyphen."""
_EMPTY_WORDS = frozenset(
    {
        *("a", "an", "and", "are", "as", "at", "be", "by", "for", "from", "has", "have", "in", "is", "it"),
        *("its", "of", "on", "or", "self", "that", "the", "this", "to", "was", "were", "with"),
    }
)


class Described(NamedTuple):
    """An identifier with the words that stand before it."""

    words: str
    """What it is; "" where no word says so."""
    name: str

    def __str__(self) -> str:
        return f"{self.words} {self.name}" if self.words else self.name


def describe(token: str, source: Source, start: int = 0) -> Described:
    """Return an identifier with the words beside it in its source, which often say what it is.

    `order_id #W123` for a JSON value, `def parse_date` for code, `cancel reservation 5BGGWZ` for speech; the
    identifier alone where no word helps. It stands nowhere before `start`.
    """
    text = source.text
    start = _find_whole(text, token, start)
    if start == 0 and not text.startswith(token):
        return Described("", token)  # it stands there in another form: the path `C:\new` as `C:\\new`
    start, token = _whole(text, start, token)
    if start and text[start - 1] in _SIGNS:
        start, token = start - 1, text[start - 1] + token
    elif _MINUS.search(text, max(0, start - 2), start) and is_number(token):
        start, token = start - 1, f"-{token}"
    before = text[max(0, start - 48) : start]
    if source.kind in ("user", "assistant"):
        match = _WORDS_BEFORE.search(before)
        if match:
            words = " ".join(match[0].translate(_QUOTING).rstrip(" '").split())
            words = _SEPARATOR.split(words)[-1]
            return Described(words, token)
        match = _WORDS_AFTER.match(text, start + len(token))
        return Described("", f"{token}{match[1]}" if match else token)
    match = _KEY_BEFORE.search(before)
    word = next(filter(None, match.groups()), "") if match else ""
    return Described("" if word.casefold() in _EMPTY_WORDS else word, token)


def _whole(text: str, start: int, token: str) -> tuple[int, str]:
    """Return where a token begins and reads with what belongs to it and is no part of a word."""
    if token[0].isdecimal() and " " not in token:
        whole = _whole_number(text, start, token)
        if whole[1] != token:
            return whole
    end = start + len(token)
    beside = text[max(0, start - 1) : start], text[end : end + 1]
    return _joined(text, start, token) if ":" in beside else (start, token)


def _joined(text: str, start: int, token: str) -> tuple[int, str]:
    """Return where a token begins and reads with what colons join to it: `file.py:120` for `file.py`."""
    end = start + len(token)
    for joined in _JOINED.finditer(text, max(0, start - _JOINED_CHARS), end + _JOINED_CHARS):
        if joined.start() <= start and end <= joined.end():
            return joined.start(), joined[0]
    return start, token


def _whole_number(text: str, start: int, token: str) -> tuple[int, str]:
    """Return where a token begins and reads with the number or time around it: `1,000-1,500` for `000-1`."""
    end = start + len(token)
    if _THOUSANDS.fullmatch(token) and (cents := _CENTS.match(text, end)):
        return start, token + cents[0]
    if token[-3:-2] == "T" and (clock := _CLOCK.match(text, end)):
        return start, token + clock[0]
    around = _AROUND.get(len(token) - len(token.lstrip("0123456789")))
    head = around[0].search(text, max(0, start - 24), start) if around else None
    if text[start:end] != token or not around or not head:
        return start, token
    tail = around[1].match(text, end)
    return head.start(), text[head.start() : tail.end() if tail else end]


def _find_whole(text: str, token: str, start: int) -> int:
    """Return where `token` stands in `text`, from `start` on, as no part of a longer word; 0 if nowhere."""
    start = text.find(token, start)
    while start > 0 and (
        _goes_on(text[start - 1]) or _goes_on(text[start + len(token) : start + len(token) + 1])
    ):
        start = text.find(token, start + 1)
    return max(0, start)


def _goes_on(character: str) -> bool:
    """Tell whether a word goes on with a character; Chinese ones stand beside a name without a blank."""
    return character.isascii() and character.isalnum()
