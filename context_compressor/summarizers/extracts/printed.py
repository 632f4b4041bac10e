"""Tell in one line what a program printed, or what a text is that was shown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from context_compressor.summarizers.cutting import ELLIPSIS, cut
from context_compressor.summarizers.extracts.code import definitions, without_numbers
from context_compressor.summarizers.extracts.listings import told_changes, told_directory, told_hits

_FIRST_CHARS, _ENDS_CHARS = 50, 100
"""How much is told of the first line of an output at most, and of the first and the last together."""
_LINE_CHARS = 140
"""How much is told of a result of one line."""
_DATA_MARKS = str.maketrans("{}[]", "    ", '"')
_SUCCESS = re.compile(
    r"\W*(?:(?:ok|done|no output)\W*$|success(?:ful(?:ly)?)?\b(?! rate|[:=] ?false)"
    r"|the file \S+ has been|file (?:created|updated)\b|(?:edited|applied) (?!0\b))",
    re.IGNORECASE,
)
_GRANTED = re.compile(r"(?:success|ok): true", re.IGNORECASE)
"""The first line of a record that goes on."""
_ANNOUNCEMENT = re.compile(r"(?:[^\s(]+ +){3,}[^\s(]+[:：]|[^\W\d]+[:：]|#{1,6} (?:\w+ )?(?:Results?|Output)")
"""A sentence, one word, or a heading, that only announces what follows."""
_HEADING = re.compile(r"#{2,6} .*|[A-Z][\w ]{0,40}:")
"""What may stand below an announcement, and still above what is announced."""
_NOTHING = re.compile(r"(?<=[\"']:)\s*(?:\[\s*\]|\{\s*\})")
"""A value of an object that holds nothing."""
_SENTENCE_END = re.compile(r"[.!?]\s|[。！？]")
_TAG = re.compile(r"</?[\w:.-]+>|^```\S*$")
"""What stands around a text: tags, and the fences of Markdown."""
_PROLOGUE = re.compile(
    r"<(?:\?xml|!doctype|html|head|body|meta|link|base)\b[^<>]*>?|<class 'pandas\.[\w.]{1,80}'>",
    re.IGNORECASE,
)
"""A line with which any XML or HTML begins, and what `DataFrame.info` prints of pandas."""
_ELEMENT = re.compile(r"<((?:[\w.-]{1,30}:)?([^\W\d][\w.-]{0,40}))(?: [^<>]{0,200})?>([^<>\n]{1,200})</\1>")
_NAMESPACE = re.compile(r" xmlns(?::[\w.-]{1,30})?=(?:\"[^\"<>]{0,300}\"|'[^'<>]{0,300}')")
_IS_XML = re.compile(r"\s*<(?:\?xml\b|(?!html\b|body\b|div\b)[^\W\d][\w.:-]*>\s*<[^\W\d][\w.:-]*>)")
_FAILED_CELL = re.compile(
    r"(?:(?<=[\t|])|(?<=  )|(?<=\| ))(?:fail(?:ed|ing|ure)?|error|unhealthy|evicted|OOMKilled"
    r"|\w{3,20}BackOff|Err[A-Z]\w{3,20}|Exited \([1-9]\d{0,2}\)[^\t|]{0,30}?)(?=\t| {2}| *\||\Z)",
    re.IGNORECASE,
)
"""A cell of a table, as kubectl, docker and gh print them."""
_PAIR = re.compile(r"(?:- )?[\"']?[^\W\d_][\w .-]{0,30}[\"']?: +[^\s|>].*")
"""A key with its value, on a line of YAML or of a record."""
_PAIRS_CHARS = 120
_TITLE = re.compile(r"<title\b[^<>]{0,100}>\s{0,200}([^<>]{2,200})</title>", re.IGNORECASE)
_READ_DATA = re.compile(r"\s{0,9}(?:\{\s{0,99}\"|\[\s{0,99}[\[{\"])")
"""Begins JSON, and no template, in a text that was read."""
_PAGE = re.compile(r"^- Page URL: (\S+)(?:\n- Page Title: ([^\n]+))?", re.MULTILINE)
"""Where a browser is after a step, as Playwright's server of tools says below the code that it ran."""


def as_words(data: str) -> str:
    """Return data in JSON without its marks."""
    return _NOTHING.sub(" none", data).replace('\\"', '"').translate(_DATA_MARKS)


def first_words(text: str, lines: int, *, is_read: bool = False) -> str:
    """Return the first line that says anything, and how many there are; all of a short text.

    Of what a program printed also the last: many begin with what they are about to do. Of a text or a page
    that was shown not: it ends anywhere.
    """
    if told := _of_a_kind(text, lines, is_read=is_read):
        return told
    if _IS_XML.match(text):
        text = _ELEMENT.sub(r"\2: \3", _NAMESPACE.sub("", text).replace("><", ">\n<"))
    shown = without_numbers(text) if is_read else text.splitlines()
    if is_read and (defined := definitions(shown)):
        return f"{defined} ({lines or len(shown)} lines)"
    plain = [_plain(line) if "<" in line or "`" in line else line.strip() for line in shown]
    telling = [line for line in plain if line[:1].isalnum() or any(map(str.isalnum, line))]
    if is_read and (names := told_directory(telling[bool(telling and _announces(telling[0])) :])):
        return f"{names} ({lines or len(shown)} lines)"
    if telling[1:] and _GRANTED.fullmatch(telling[0]):
        del telling[0]
    first = telling[0] if telling else ""
    if _SUCCESS.match(first):
        return "ok"
    if lines and len(pairs := _pairs(telling)) > 1:
        said = ", ".join(pairs)
        if lines <= 12:
            return cut(said, _PAIRS_CHARS)
        row = cut(_failed_row(telling) or "", _FIRST_CHARS)
        said = cut(said, _PAIRS_CHARS if row in said else _PAIRS_CHARS - len(row))
        return " ".join(filter(None, (said, "" if row in said else row, f"({lines} lines)")))
    others = telling[1:]
    if others and _announces(first):
        first, *others = others
        while others[1:] and not is_read and _HEADING.fullmatch(first):
            first, *others = others
        if _SUCCESS.match(first):
            return "ok"
    if not lines:
        first = " | ".join((first, *others))
    if not (lines and others):
        return cut(first, _LINE_CHARS)
    # One of several matches or rows is not to be read as the only one.
    count = lines if lines > 12 else 1 + len(others)
    if is_read or (text.lstrip().startswith("<") and not text.lstrip().startswith("<class 'pandas.")):
        return f"{cut(first, 60)} ({count} lines)" if count > 2 else cut(first, 100)
    head = cut(first, _FIRST_CHARS)
    tail = cut(_failed_row(others) or others[-1], _ENDS_CHARS - len(head))
    return f"{head}{'' if head.endswith(ELLIPSIS[-1]) else ELLIPSIS} {tail} ({count} lines)"


def _announces(line: str) -> bool:
    return _ANNOUNCEMENT.fullmatch(line) is not None and not _SENTENCE_END.search(line)


def _of_a_kind(text: str, lines: int, *, is_read: bool) -> str:
    """Return what tells a page, changes, hits of a search, or data that was read; "" for any other text."""
    if "- Page URL: " in text and (page := _PAGE.search(text)):
        return cut(" ".join(filter(None, page.groups())), 140)
    many = f" ({lines} lines)" if lines > 12 else ""
    is_whole = text.count("\n") + 1 >= lines
    if told := told_changes(text, f" ({lines} lines)" if lines else "", is_whole=is_whole):
        return told
    if not is_read and (told := told_hits(text, is_whole=is_whole)):
        return told + many
    if lines and text[:1_000].lstrip()[:1] == "<" and (title := _TITLE.search(text)):
        return cut(title[1], _LINE_CHARS) + many
    if is_read and _READ_DATA.match(text):
        return f"{cut(as_words(' '.join(text[:800].split())), 60)} ({lines or text.count(chr(10)) + 1} lines)"
    return ""


def _failed_row(rows: Sequence[str]) -> str | None:
    """Return the last row of a table that has a cell which says that something failed."""
    return next((row for row in reversed(rows) if _FAILED_CELL.search(row)), None)


def _pairs(telling: Sequence[str]) -> list[str]:
    """Return the keys with their values that a text begins with; where one comes again, a record ends."""
    said: dict[str, str] = {}
    for line in telling:
        if sum(map(len, said.values())) > _PAIRS_CHARS:
            break
        if _PAIR.fullmatch(line):
            pair = line if said else line.removeprefix("- ")
            key = pair.partition(": ")[0]
            if key in said:
                break
            said[key] = pair
        elif not (line.endswith(":") and (said or " " not in line)):
            break
    return list(said.values())


def _plain(line: str) -> str:
    line = line.strip()
    return _TAG.sub("", _PROLOGUE.sub("", line) if line.startswith("<") else line).strip()
