"""What a search of a history gives, and how a model reads it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from context_compressor.tokens.protocol import TokenCounter

_WORD = re.compile(r"\w+")
_FIRST = re.compile(r"\[(?:in view|not stored|ctx://[0-9a-f]{16}(?: line \d+)?), [^\n]*\]\n")
_LAST = re.compile(r"\n\[(?:end|\d+ more; ask more precisely)\]\Z")
_WIDTHS = (480, 320, 200, 140)
"""Characters of a passage to show, the most first; the least still shows a name with the words beside it."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A passage of the history that answers a query."""

    text: str
    """The passage, some 300 to 700 characters, as it was said."""
    ref: str | None
    """The stored text that holds it; None where the message stands in the view as it is."""
    message_ids: tuple[str, ...]
    """The message that it comes from."""
    role: str
    """`user`, `assistant`, `system`, or `tool` for the result of a call."""
    tool: str | None
    """The tool that was called, or whose result this is."""
    lines: tuple[int, int] | None
    """First and last line in the text under `ref`, for `read_offloaded`; None where that cannot be told."""
    in_view: bool
    """Whether the view shows the passage."""
    messages_ago: int
    """How many messages came after it."""


def hits_page(hits: Sequence[Hit], query: str, counter: TokenCounter, max_tokens: int) -> str:
    """Return hits as a page of at most `max_tokens` tokens: as many as fit, each as long as then fits.

    All of at most `max_tokens` are shown at the width at which that is so; else the first ones.

    Args:
        hits: what was found, best first; at least one.
        query: what was asked: the words around which passages are cut.
        counter: what the page is counted by.
        max_tokens: what it may cost.
    """
    words = {word.casefold() for word in _WORD.findall(query)}
    page = ""
    for width in _WIDTHS:
        page = _page(hits, len(hits), words, width)
        if counter.count_text(page) <= max_tokens:
            return page
    for count in range(len(hits) - 1, 0, -1):
        page = _page(hits, count, words, _WIDTHS[-1])
        if counter.count_text(page) <= max_tokens:
            break
    return page


def is_hits_page(text: str) -> bool:
    """Tell whether a text has the form of `hits_page`; what it says is not looked at."""
    return _FIRST.match(text) is not None and _LAST.search(text) is not None


def _page(hits: Sequence[Hit], count: int, words: set[str], width: int) -> str:
    shown = [f"[{_title(hit)}]\n{excerpt(hit.text, words, width)}" for hit in hits[:count]]
    closing = "end" if count == len(hits) else f"{len(hits) - count} more; ask more precisely"
    return "\n".join([*shown, f"[{closing}]"])


def _title(hit: Hit) -> str:
    what = f"result of {hit.tool}" if hit.role == "tool" else hit.role
    if hit.role == "assistant" and hit.tool:
        what = f"call of {hit.tool}"
    where = "in view" if hit.in_view else hit.ref or "not stored"
    if hit.lines and not hit.in_view:
        where += f" line {hit.lines[0]}"
    ago = "now" if hit.messages_ago == 0 else f"{hit.messages_ago} messages ago"
    return f"{where}, {what}, {ago}"


def excerpt(text: str, words: set[str], width: int) -> str:
    """Return the part of a text that holds most of the words, of at most `width` characters and two ellipses.

    Args:
        text: a passage.
        words: what is looked for, case-folded.
        width: characters to show.
    """
    text = text.strip()
    if len(text) <= width:
        return text
    places = [(match.start(), match[0].casefold()) for match in _WORD.finditer(text)]
    found = [(start, word) for start, word in places if word in words]
    best, begin = 0, 0
    for index, (start, _) in enumerate(found):
        within = [(at, word) for at, word in found[index:] if at + len(word) <= start + width]
        worth = len({word for _, word in within}) * 100 + len(within)
        if worth > best:
            last = max(at + len(word) for at, word in within)
            # What is looked for stands in the middle.
            best, begin = worth, max(0, start - (width - (last - start)) // 2)
    begin = min(begin, len(text) - width)
    if begin:
        begin = text.find(" ", begin, begin + 20) + 1 or begin
    end = min(len(text), begin + width)
    if end < len(text):
        space = text.rfind(" ", max(begin, end - 20), end)
        end = space if space > begin else end
    shown = text[begin:end].strip()
    return ("… " if begin else "") + shown + (" …" if end < len(text) else "")
