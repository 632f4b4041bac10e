"""Pages of stored texts: written, recognised, and believed only where they were read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from context_compressor.messages.msg import Msg, tool_results
from context_compressor.offload.guide import TOOL_NAMES, is_own_tool
from context_compressor.offload.previews.text import counted

_FIRST_HIT = re.compile(
    r"\[(?:in view|not stored|ctx://[0-9a-f]{16}(?: line \d+(?: column \d+)?)?), [^\n]*\]\n"
)
_LAST_HIT = re.compile(r"\n\[(?:end|\d+ more; ask more precisely)\]\Z")
"""How a page of hits begins and ends."""
END = "[end]"


@dataclass(frozen=True, slots=True)
class PageSpan:
    """Lines `first` to `last` of a text, 1-based; with columns, that part (inclusive) of one line."""

    ref: str
    first: int
    last: int
    first_column: int | None = None
    last_column: int | None = None


@dataclass(frozen=True, slots=True)
class FoundLine:
    """A line of a search page; `column` is set when `text` is a fragment that starts there, 1-based."""

    number: int
    text: str
    column: int | None = None
    repeats: int = 1
    is_match: bool = True


@dataclass(frozen=True, slots=True)
class FoundSection:
    """What a search found in one text: how many matches, and the lines shown."""

    ref: str
    total_lines: int
    matches: int
    lines: Sequence[FoundLine]
    ago: str = ""
    """How many messages ago its text was said, in words; "" if that is not known."""


def lines_page(
    ref: str,
    lines: Sequence[str],
    first: int,
    total_lines: int,
    closing: str,
    *,
    from_column: int = 1,
    to_column: int | None = None,
) -> str:
    """Return a page of consecutive lines; the columns say where the first begins and the last was cut."""
    header = f"{ref} lines {first}-{first + len(lines) - 1} of {total_lines}"
    if from_column > 1:
        header += f", from column {from_column}"
    if to_column is not None:
        header += f", to column {to_column}"
    return "\n".join((f"[{header}]", *lines, closing))


def closing_more(offset: int, column: int = 1, length: int | None = None, tokens: int | None = None) -> str:
    """Return the last line of a page after which `offset` (and `column` of a line of `length`) comes next.

    `tokens`: the limit that ended the page; None: it has as many lines as were asked for.
    """
    why = "limit reached" if tokens is None else f"page full at {tokens} tokens"
    place = f"offset={offset}" + ("" if length is None else f", column={column}")
    more = f"[more: {why}; read_offloaded(ref, {place})"
    return f"{more}]" if length is None else f"{more}; line {offset} has {length} characters]"


def found_page(sections: Iterable[FoundSection], closing: str) -> str:
    """Return a page of search results."""
    lines: list[str] = []
    for section in sections:
        ago = section.ago and f", {section.ago}"
        lines.append(f"[{section.ref} matches: {section.matches}, lines: {section.total_lines}{ago}]")
        lines.extend(map(_found_line, section.lines))
    return "\n".join((*lines, closing))


def ago_of(newest: int, oldest: int) -> str:
    """Return how many messages ago something was said, in words."""
    if newest == oldest == 0:
        return "now"
    messages = "message" if oldest == 1 else "messages"
    return f"{oldest} {messages} ago" if newest == oldest else f"{newest} to {oldest} {messages} ago"


def closing_found(
    shown: int,
    matches: int,
    stopped_seconds: int = 0,
    unreadable: int = 0,
    context: int | None = None,
    *,
    of_all: bool = False,
) -> str:
    """Return the last line of a search page that shows `shown` of `matches`.

    `stopped_seconds`: after how long the search was stopped; 0 when it came to its end. `context`: how many
    lines stand around a match, where that is less than was asked for. `of_all`: whether all texts were
    searched: what was not is told.
    """
    if stopped_seconds:
        closing = (
            f"stopped after {stopped_seconds} s, {shown} of {matches} matches found are shown; "
            "simplify the pattern or name a ref"
        )
    elif shown < matches:
        closing = f"more: {shown} of {matches} matches shown; raise limit, name a ref or narrow the pattern"
    else:
        closing = "end; what stands in view was not searched" if of_all else "end"
    if context is not None:
        closing += f"; room for context: {counted(context, 'line')}"
    return f"[{closing}; texts that could not be read: {unreadable}]" if unreadable else f"[{closing}]"


def _found_line(line: FoundLine) -> str:
    columns = "" if line.column is None else f":{line.column}-{line.column + len(line.text) - 1}"
    repeats = f" x{line.repeats}" if line.repeats > 1 else ""
    return f"{line.number}{columns}{repeats}{'|' if line.is_match else '-'} {line.text}"


# Recognising. Numbers have at most 12 digits and no leading zeros: what is written has one form only, and a
# forged page cannot hide anything in its frame.

_N = r"([1-9][0-9]{0,11})"
_REF = r"(ctx://[0-9a-f]{16})"
_LINES_HEADER = re.compile(rf"\[{_REF} lines {_N}-{_N} of {_N}(?:, from column {_N})?(?:, to column {_N})?\]")
_LINES_CLOSING = re.compile(
    rf"\[end\]|\[more: (?:limit reached; |page full at {_N} tokens; )?read_offloaded\(ref, offset={_N}"
    rf"(?:\)|, column={_N}\); line {_N} has {_N} characters)\]"
)
"""Last lines as earlier releases wrote them, without a reason; histories still hold them."""
_FOUND_HEADER = re.compile(
    rf"\[{_REF} matches: {_N}, lines: {_N}(?:, (?:now|(?:(?:0|{_N}) to )?{_N} messages? ago))?\]"
)
_FOUND_LINE = re.compile(rf"{_N}(?::{_N}-{_N})?(?: x{_N})?[|-] (.*)", re.DOTALL)
_FOUND_CLOSING = re.compile(
    r"\[(?:end(?:; what stands in view was not searched)?"
    rf"|more: {_N} of {_N} matches shown; raise limit, name a ref or narrow the pattern"
    rf"|stopped after {_N} s, {_N} of {_N} matches found are shown; simplify the pattern or name a ref)"
    rf"(?:; room for context: (?:1 line|(?:0|{_N}) lines))?(?:; texts that could not be read: {_N})?\]"
)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A line as a page claims it: whole where `column` is None, else from there on."""

    ref: str
    total_lines: int
    number: int
    column: int | None
    text: str

    def stands_in(self, lines: Sequence[str]) -> bool:
        if len(lines) != self.total_lines or self.number > len(lines):
            return False
        line = lines[self.number - 1]
        if self.column is None:
            return line == self.text
        return line[self.column - 1 : self.column - 1 + len(self.text)] == self.text


def parse_page(text: str) -> list[PageSpan] | None:
    """Return the spans that a page shows, or None unless the whole text is a page by its grammar.

    A page that parses may still be forged: ask `page_matches` before throwing it away.
    """
    shown = _parse(text)
    return None if shown is None else _merge(_span(line) for line in shown)


def page_matches(text: str, sources: Mapping[str, str]) -> bool:
    """Tell whether `text` is a page of which every line stands in `sources` (texts by ref) where it says."""
    shown = _parse(text)
    if shown is None or any(line.ref not in sources for line in shown):
        return False
    lines = {ref: sources[ref].split("\n") for ref in {line.ref for line in shown}}
    return all(line.stands_in(lines[line.ref]) for line in shown)


def page_stub(spans: Iterable[PageSpan]) -> str:
    """Return one line that names everything a page showed, and how to see it again.

    Nothing is left out, however many spans there are: what is not named could not be found again.
    """
    merged = _merge(spans)
    if len(merged) == 1:
        span = merged[0]
        place = f"offset={span.first}" + (f", column={span.first_column}" if span.first_column else "")
        limit = span.last - span.first + 1
        return (
            f'[Page left the view: read_offloaded(ref="{span.ref}", {place}, limit={limit}) shows it again]'
        )
    places = "; ".join(
        f"{ref} lines {', '.join(map(_place, group))}"
        for ref, group in groupby(merged, lambda span: span.ref)
    )
    return f"[Page left the view: read_offloaded(ref, offset, limit) shows it again: {places}]"


def _parse(text: str) -> list[_Shown] | None:
    if not text.startswith("[ctx://"):
        return None
    lines = text.split("\n")
    header = _LINES_HEADER.fullmatch(lines[0])
    return _parse_lines(lines, header) if header else _parse_found(lines)


def _parse_lines(lines: list[str], header: re.Match[str]) -> list[_Shown] | None:
    ref = header[1]
    first, last, total = int(header[2]), int(header[3]), int(header[4])
    from_column, to_column = (int(column) if column else None for column in header.group(5, 6))
    body = lines[1:-1]
    if not (first <= last <= total and len(body) == last - first + 1 and _LINES_CLOSING.fullmatch(lines[-1])):
        return None
    columns: list[int | None] = [None] * len(body)
    if to_column is not None:
        columns[-1] = 1
    if from_column is not None:
        columns[0] = from_column
    if to_column is not None and to_column - (columns[-1] or 1) + 1 != len(body[-1]):
        return None
    if any(column is not None and not text for column, text in zip(columns, body, strict=True)):
        return None
    return [
        _Shown(ref, total, number, column, text)
        for number, column, text in zip(range(first, last + 1), columns, body, strict=True)
    ]


def _parse_found(lines: list[str]) -> list[_Shown] | None:
    shown: list[_Shown] = []
    ref, total, is_empty = "", 0, False
    for line in lines[:-1]:
        if header := _FOUND_HEADER.fullmatch(line):
            if is_empty:
                return None
            ref, total, is_empty = header[1], int(header[3]), True
            continue
        found = _FOUND_LINE.fullmatch(line)
        if found is None or not ref:
            return None
        column = int(found[2]) if found[2] else None
        if column is not None and (not found[5] or int(found[3]) - column + 1 != len(found[5])):
            return None
        shown.append(_Shown(ref, total, int(found[1]), column, found[5]))
        is_empty = False
    return shown if shown and not is_empty and _FOUND_CLOSING.fullmatch(lines[-1]) else None


def _span(line: _Shown) -> PageSpan:
    if line.column is None:
        return PageSpan(line.ref, line.number, line.number)
    return PageSpan(line.ref, line.number, line.number, line.column, line.column + len(line.text) - 1)


def _merge(spans: Iterable[PageSpan]) -> list[PageSpan]:
    """Join what touches: whole lines, and parts of one line; refs stay in the order of their first span."""
    by_ref: dict[str, list[PageSpan]] = {}
    for span in spans:
        by_ref.setdefault(span.ref, []).append(span)
    return [span for group in by_ref.values() for span in _merge_one(group)]


def _merge_one(spans: list[PageSpan]) -> list[PageSpan]:
    # Whole lines sort before parts of the same line, which they then swallow.
    merged: list[PageSpan] = []
    reach = 0
    for span in sorted(spans, key=lambda span: (span.first, span.first_column or 0)):
        before = merged[-1] if merged else None
        if span.first_column is None:
            if before is not None and before.first_column is None and span.first <= before.last + 1:
                merged[-1] = PageSpan(span.ref, before.first, max(before.last, span.last))
            else:
                merged.append(span)
            reach = max(reach, span.last)
        elif span.first <= reach:
            continue
        elif (
            before is not None
            and before.last_column is not None
            and before.first == span.first
            and span.first_column <= before.last_column + 1
        ):
            last_column = max(before.last_column, span.last_column or 0)
            merged[-1] = PageSpan(span.ref, span.first, span.first, before.first_column, last_column)
        else:
            merged.append(span)
    return merged


def _place(span: PageSpan) -> str:
    if span.first_column is not None:
        return f"{span.first}:{span.first_column}-{span.last_column}"
    return str(span.first) if span.first == span.last else f"{span.first}-{span.last}"


def shows_page(msg: Msg, names: Mapping[str, str]) -> bool:
    """Tell whether a message holds a page that one of the tools gave.

    A web page may have the form of one: by its form alone it could take the room that is kept for pages.

    Args:
        msg: a message of the view.
        names: tool names by call id.
    """
    for block in tool_results(msg):
        if is_own_tool(names.get(block["id"]) or block.get("name")):
            output = block["output"]
            parts = [{"text": output}] if isinstance(output, str) else output
            if any(_is_page(str(part.get("text") or "")) for part in parts):
                return True
    return False


def is_read_back(tool: str | None, answer: str | None) -> bool:
    """Tell whether a text stands in the history already: what one of the tools was asked, or answered.

    Args:
        tool: the tool's name; by a prefix before it, a tool of somebody else's may have the like.
        answer: what it answered; None for what it was asked.
    """
    return tool in TOOL_NAMES or (is_own_tool(tool) and (answer is None or _is_page(answer)))


def _is_page(text: str) -> bool:
    return parse_page(text) is not None or is_hits_page(text)


def is_hits_page(text: str) -> bool:
    """Tell whether a text has the form of a page of hits; what it says is not looked at."""
    return _FIRST_HIT.match(text) is not None and _LAST_HIT.search(text) is not None
