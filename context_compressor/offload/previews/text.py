"""Previews of text: head and tail, lines with errors by number; tags of HTML left out."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from itertools import accumulate

Show = Callable[[int], str]
"""Returns a preview of about so many characters, the longer the more it is given; "" when nothing fits."""

LINE_CHARACTERS = 240
"""Shown of one line, as long as others want room. Where one is shown at greater length, its end is, too."""

MIN_LINE_CHARACTERS = 20
"""In a small preview lines are shorter, down to this: head and tail shall both have one."""

HEAD_SHARE = 0.7
"""Of what head and tail take together; .6 and .8 tell as much, .5 less, by `benchmarks/previews.py`."""

ERRORS_SHARE, MAX_ERRORS = 0.2, 2
"""What lines with errors may take of a preview, and how many there are: the last and the first. With more,
head and tail lose more than these tell, by `benchmarks/previews.py`."""

_MARK_CHARACTERS, _NUMBER_CHARACTERS = 32, 8
"""What the line costs that says what was left out, and the number before a line, in characters of text."""

_ERROR_WORDS = (
    *("error", "exception", "traceback", "failed", "failure", "fatal", "panic", "denied", "refused"),
    *("aborted", "fail:", "timed out", "no such", "not found", "segmentation fault"),
    *("错误", "失败", "异常", "报错", "拒绝", "超时"),
)
_WORD_END = re.compile(r"s?(?:[:\s]|$)|[^\x00-\x7f]")
"""Behind a word that says that something went wrong, not behind a part of a name: `errors.py`, `Error(`."""
_INDENT = re.compile(r"\s\s|\t|^\s")
"""Before a word in source code, which speaks of errors that did not happen."""
_NO_ERROR = re.compile(
    r"\b(?:0|no|without) (?:errors?|failures?|exceptions?|fail(?:ed)?)\b"
    r"|\b(?:errors?|fail(?:ed)?)[=:] {0,2}0\b"
)
_BEFORE_CHARACTERS = 200
"""Looked at before a word on its line."""
_HITS_PER_WORD = 25
"""Looked at from either end of the text: more is never shown, and a log of errors would take seconds."""


def counted(count: int, thing: str) -> str:
    """Return a count with its noun: `1 line`, `2 lines`, `3 matches`."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}{'es' if thing.endswith('ch') else 's'}"


def show_text(text: str, *, errors: bool = True) -> Show:
    """Return what shows head and tail of `text`, and with `errors` lines between them that tell of one."""
    return show_lines(text.split("\n"), find_errors(text) if errors else {})


def show_lines(lines: Sequence[str], errors: Mapping[int, int], *, are_placed: bool = True) -> Show:
    """Return what shows head and tail of `lines`, and between them the first of `errors` under their numbers.

    Long lines are cut. Where lines were left out stands which: `[lines 13-388 of 412 left out]`.

    Args:
        lines: all lines of a text.
        errors: the columns of errors by their lines, both from 0, the most important first.
        are_placed: whether the numbers of lines and columns are those of the text that is stored.
    """
    return lambda characters: _Ends(lines, errors, characters, are_placed).write() if characters > 0 else ""


class _Ends:
    """Lines in so many characters: those before `head`, those from `tail` on, and `picked` between them."""

    def __init__(
        self, lines: Sequence[str], errors: Mapping[int, int], characters: int, are_placed: bool
    ) -> None:
        self._lines, self._errors, self._are_placed = lines, errors, are_placed
        self._head = self._tail = len(lines)
        self._picked: list[int] = []
        self._most = min(max(characters // 4, MIN_LINE_CHARACTERS), LINE_CHARACTERS)
        if len(lines) <= characters:
            sizes = [len(line) + 1 for line in lines]
            cut = [
                given for given, size in zip(share_out(sizes, characters), sizes, strict=True) if given < size
            ]
            level = min(cut, default=max(sizes, default=0))
            if level > self._most:  # all have room, the long ones cut
                self._most = level - 1
                return
        room = characters - _MARK_CHARACTERS
        self._choose_ends(room)
        kept = room * ERRORS_SHARE
        self._most_picked = max(min(self._most, int(kept) - _NUMBER_CHARACTERS - 1), 0)
        for line in errors:
            size = min(len(lines[line]), self._most_picked) + 1 + _NUMBER_CHARACTERS
            if len(self._picked) == MAX_ERRORS or size > kept:
                break
            if self._head <= line < self._tail:
                self._picked.append(line)
                kept -= size
                room -= size
        if self._picked:
            self._choose_ends(room - _NUMBER_CHARACTERS)

    def _choose_ends(self, room: float) -> None:
        self._head, self._tail = 0, len(self._lines)
        room = self._extend_head(room, room * (1 - HEAD_SHARE))
        while self._head < self._tail and self._size(self._tail - 1) <= room:
            self._tail -= 1
            room -= self._size(self._tail)
        self._extend_head(room, 0)

    def _extend_head(self, room: float, kept: float) -> float:
        """Add lines to the head, one at least, until only `kept` is left of the room; return what is left."""
        while self._head < self._tail and (self._head == 0 or self._size(self._head) <= room - kept):
            room -= self._size(self._head)
            self._head += 1
        return room

    def _size(self, line: int) -> int:
        return min(len(self._lines[line]), self._most) + 1

    def write(self) -> str:
        shown = [self._cut(line) for line in range(self._head)]
        if self._head < self._tail:
            shown.append(self._left_out())
            shown += [self._around_error(line) for line in sorted(self._picked)]
            shown += ["[…]"] if self._picked and self._tail < len(self._lines) else []
        shown += [self._cut(line) for line in range(self._tail, len(self._lines))]
        return "\n".join(shown).strip("\n")

    def _left_out(self) -> str:
        count, total = self._tail - self._head, len(self._lines)
        if not self._are_placed:
            return f"[{count} of {total} lines of its text left out]"
        which = f"lines {self._head + 1}-{self._tail}" if count > 1 else f"line {self._tail}"
        return f"[{which} of {total} left out{', but for lines with errors:' if self._picked else ''}]"

    def _around_error(self, line: int) -> str:
        """Return a line under its number, or what of a long one stands around its error."""
        text, column, most = self._lines[line], self._errors[line], self._most_picked
        begin = column - most // 4 if len(text) > most and column > most * 3 // 4 else 0
        end = begin + most
        return f"{line + 1}: {'…' if begin else ''}{text[begin:end]}{'…' if end < len(text) else ''}"

    def _cut(self, line: int) -> str:
        """Return a line, or of a long one its beginning, and its end where there is room for it."""
        text, most = self._lines[line], self._most
        if len(text) <= most:
            return text
        if most <= LINE_CHARACTERS:
            return f"{text[:most]}…"
        most -= _MARK_CHARACTERS
        begin = int(most * HEAD_SHARE)
        end = len(text) - (most - begin)
        which = f"{end - begin} characters"
        if self._are_placed:
            which = f"columns {begin + 1}-{end} of line {line + 1}"
        return f"{text[:begin]}\n[{which} left out]\n{text[end:]}"


def share_out(wanted: Sequence[int], room: int) -> list[int]:
    """Return what each gets of `room`: as much as it wants, or an equal part of what the smaller leave."""
    given = [0] * len(wanted)
    left = len(wanted)
    for i in sorted(range(len(wanted)), key=wanted.__getitem__):
        given[i] = min(wanted[i], max(room, 0) // left)
        room -= given[i]
        left -= 1
    return given


def find_errors(text: str) -> dict[int, int]:
    """Return the columns of words that speak of errors by their lines, the last and the first by turns."""
    # The Turkish dotted capital I is the one letter that becomes longer, and would move what follows it.
    folded = text.replace("İ", "i").lower()
    places = sorted((at, at + len(word)) for word in _ERROR_WORDS for at in set(_occurrences(folded, word)))
    starts = [0, *accumulate(len(line) + 1 for line in folded.split("\n"))]
    errors: dict[int, int] = {}
    for i in range(len(places)):
        at, end = places[-1 - i // 2] if i % 2 == 0 else places[i // 2]
        line = bisect_right(starts, at) - 1
        before = folded[max(starts[line], at - _BEFORE_CHARACTERS) : at]
        if (
            line not in errors
            and _WORD_END.match(folded, end)
            and not _INDENT.search(before)
            and not _NO_ERROR.search(folded, max(at - 20, 0), end + 20)
        ):
            errors[line] = at - starts[line]
    return errors


def _occurrences(folded: str, word: str) -> Iterator[int]:
    """Yield where a word stands, the first and the last places."""
    offset = -1
    for _ in range(_HITS_PER_WORD):
        offset = folded.find(word, offset + 1)
        if offset < 0:
            return
        yield offset
    seen, offset = offset, len(folded)
    for _ in range(_HITS_PER_WORD):
        offset = folded.rfind(word, seen, offset)
        if offset < 0:
            return
        yield offset


MIN_ESCAPES = 8
"""Line feeds written as escapes, for each that is none, in a text inside another."""

MAX_LEVELS = 3
"""Of escapes within escapes that are resolved."""

HTML_HEAD_CHARACTERS = 500
"""Where the tag that begins an HTML page stands."""

_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_WRITTEN = re.compile(r'\\(?:[n"]|u[0-9a-fA-F]{4})')
_MEANT = {"n": "\n", "t": "\t", "r": ""}

_INLINE = frozenset(
    {
        *("a", "abbr", "b", "cite", "code", "em", "font", "i", "img", "kbd"),
        *("label", "mark", "small", "span", "strong", "sub", "sup", "time", "u", "wbr"),
    }
)
"""Tags that do not break a line."""
_HIDDEN = frozenset({"noscript", "script", "style", "svg", "template"})
"""Tags whose content nobody reads."""


def show_escaped(text: str) -> Show | None:
    """Return what shows a text inside another, its escapes resolved; None where few line feeds are escaped.

    What it says of columns is of the text with its escapes.
    """
    if text.count("\\n") < MIN_ESCAPES * (text.count("\n") + 1):
        return None
    show = show_text(text)

    def show_resolved(characters: int) -> str:
        shown = show(characters)
        for _ in range(MAX_LEVELS):
            if not _WRITTEN.search(shown):
                break
            shown = _ESCAPE.sub(_meant, shown)
        return shown

    return show_resolved


def _meant(found: re.Match[str]) -> str:
    if found[1]:
        return bytes.fromhex(found[1].replace("\\u", "")).decode("utf-16-be", "replace")
    return _MEANT.get(found[2], found[2])


def show_html(text: str) -> Show | None:
    """Return what shows the text of an HTML page without its tags and scripts; None for another text."""
    head = text[:HTML_HEAD_CHARACTERS].lower()
    if "<html" not in head and "<!doctype html" not in head:
        return None
    are_placed = text.count("\n") * LINE_CHARACTERS > len(text)
    said = unescape("".join(_without_tags(text, " " if are_placed else "\n")))
    lines = [" ".join(line.split()) for line in said.split("\n")]
    # In a page of few long lines, its own line numbers would say nothing.
    return show_lines(lines if are_placed else [*filter(None, lines)], {}, are_placed=are_placed)


def _without_tags(text: str, between: str) -> Iterator[str]:
    """Yield what stands between tags, and all line feeds.

    The parser of the standard library takes minutes for some texts of 50,000 characters: unclosed tags.
    """
    before, *pieces = text.split("<")
    yield before
    hidden = ""
    for piece in pieces:
        tag, end, said = piece.partition(">")
        name = tag.split(None, 1)[0].lower() if tag[:1].isalpha() or tag[:1] in ("/", "!") else ""
        if hidden:
            hidden = "" if name == f"/{hidden}" else hidden
            said = "" if hidden else said
        elif not name or not end:
            yield f"<{piece}"
            continue
        elif name in _HIDDEN and not tag.endswith("/"):
            hidden, said = name, ""
        yield "\n" * (piece.count("\n") - said.count("\n"))
        yield ("" if name.strip("/") in _INLINE else between) + said
