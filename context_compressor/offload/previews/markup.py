"""Show a text that is written inside another: with its escapes resolved, without the tags of HTML."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from context_compressor.offload.previews.text import LINE_CHARACTERS, Show, show_lines, show_text

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
