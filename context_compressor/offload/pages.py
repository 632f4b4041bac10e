"""Pages of stored texts: written, and told from other texts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


# Recognising, by the first and the last line.

_N = r"[1-9][0-9]{0,11}"
_REF = r"ctx://[0-9a-f]{16}"
_FIRST_LINE = re.compile(
    rf"\[{_REF} (?:lines {_N}-{_N} of {_N}(?:, from column {_N})?(?:, to column {_N})?"
    rf"|matches: {_N}, lines: {_N}(?:, (?:now|(?:(?:0|{_N}) to )?{_N} messages? ago))?)\]"
)
_LAST_LINE = re.compile(r"\[(?:end|more: |stopped after )[^\n]*\]")


def is_page(text: str) -> bool:
    """Tell whether a text has the form of a page of lines or of matches; what it says is not looked at."""
    if not text.startswith("[ctx://"):
        return False
    first, _, rest = text.partition("\n")
    is_framed = _FIRST_LINE.fullmatch(first) and _LAST_LINE.fullmatch(rest.rpartition("\n")[2])
    return is_framed is not None


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
    return is_page(text) or is_hits_page(text)


def is_hits_page(text: str) -> bool:
    """Tell whether a text has the form of a page of hits; what it says is not looked at."""
    return _FIRST_HIT.match(text) is not None and _LAST_HIT.search(text) is not None
