"""Preview marked-up text: headings and links, and the text of HTML without its tags and scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import unescape

from context_compressor.offload.previews.lines import (
    CHARACTERS_LOOKED_AT,
    NUMBERS,
    Line,
    Show,
    head_lines,
    sample_lines,
    share,
    show_lines,
)
from context_compressor.offload.previews.text import FEW_LINES

MARK_SHARE = 0.06
"""Of the lines of the sample that hold a heading or a link, at least."""

TAG_SHARE = 0.75
"""Of the lines of the sample that begin or end with a tag, at least, in HTML and XML."""

MIN_PARTS = 3
"""Of a page in a few long lines, with text or a link: with fewer, plain text says more."""

LINK_TEXT_CHARACTERS = 40
READ_CHARACTERS = 1000
"""Of one line."""

MAX_HTML_CHARACTERS = 1_000_000
"""Read at the head of a page until enough of it is no script: the head of a page can be scripts only."""

_LINK = re.compile(r"(?<!!)\[([^\[\]\n]{1,200})\]\((https?://[^)\s?#]{1,300})")
_TAGS = re.compile(r"<[^<>]{0,1000}>|</?[a-z][^<>]{0,1000}$", re.IGNORECASE)
"""The last tag of a line that was cut may lack its end."""
_TARGET = re.compile(r"<a\s[^<>]{0,300}?href=[\"']?([^\"'\s<>]{1,300})", re.IGNORECASE)
_PAGE = re.compile(r"\s{0,100}<(?:!doctype )?html\b", re.IGNORECASE)
"""Begins a page, which may have a script in its middle."""
_TITLE = re.compile(r"(?:[ \t]*<(?:h[1-6]|th)|.{0,1000}<title)\b", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style|svg)(?=[\s/>])[^<>]{0,1000}>", re.IGNORECASE)
_BLOCK = re.compile(
    r"<(?=/?(?:address|article|aside|blockquote|body|br|caption|dd|details|dialog|div|dl|dt|fieldset"
    r"|figcaption|figure|footer|form|h[1-6]|header|hr|li|main|nav|ol|option|p|pre|section|summary|table|title"
    r"|tr|ul)\b)",
    re.IGNORECASE,
)
"""Begins a tag at which a browser breaks the line."""


def show_markup(text: str) -> Show | None:
    """Return what shows headings, links and text of Markdown, HTML or XML; None for another kind of text."""
    sample = sample_lines(text)
    tags = share(line.lstrip()[:1] == "<" or line[-1] == ">" for line in sample)
    if tags >= TAG_SHARE or _PAGE.match(text):
        return _show_html(text)
    marks = share(line.startswith("#") or "](http" in line for line in sample)
    if marks < MARK_SHARE or not any("](http" in line for line in sample):
        return None
    return show_lines(_ranked_markdown(head_lines(text)))


def _ranked_markdown(lines: Sequence[str]) -> Iterator[Line]:
    """Yield headings, and links with the beginning of their text."""
    for number, line in enumerate(lines):
        if line.startswith("#"):
            yield Line(number, line.rstrip())
        elif links := _LINK.findall(line[:READ_CHARACTERS]):
            yield Line(
                number, " · ".join(f"{said[:LINK_TEXT_CHARACTERS]} {target}" for said, target in links)
            )


def _show_html(text: str) -> Show | None:
    seen = _without_hidden(text)
    lines = head_lines(seen)
    unread = sum(max(len(line) - READ_CHARACTERS, 0) for line in lines)
    if len(lines) > FEW_LINES and unread <= len(seen) // 2:
        ranked = _ranked_html(lines)
        return show_lines(ranked) if ranked else None
    # A page in a few long lines: its own line numbers would say nothing.
    ranked = _ranked_html(head_lines(_BLOCK.sub("\n<", seen)))
    if len(ranked) < MIN_PARTS:
        return None
    show = show_lines(ranked, "[tags left out]")
    return lambda characters: NUMBERS.sub("", show(characters))


def _without_hidden(text: str) -> str:
    """Return the head of a page without scripts, styles and drawings, each line at its number."""
    pieces: list[str] = []
    position, left = 0, CHARACTERS_LOOKED_AT
    while left > 0 and position < MAX_HTML_CHARACTERS:
        found = _HIDDEN.search(text, position, position + left)
        start = found.start() if found else position + left
        pieces.append(text[position:start])
        left -= start - position
        if found is None:
            break
        position = found.end()
        if found[0].endswith("/>"):
            continue
        closing = re.compile(f"</{found[1]}", re.IGNORECASE).search(text, position, MAX_HTML_CHARACTERS)
        if closing is None:
            break
        pieces.append("\n" * text.count("\n", start, closing.start()))
        position = closing.start()
    return "".join(pieces)


def _ranked_html(lines: Sequence[str]) -> list[Line]:
    """Return headings and links, then the rest of the text."""
    titles: list[Line] = []
    rest: list[Line] = []
    for number, line in enumerate(lines):
        line = line[:READ_CHARACTERS]
        said = " ".join(unescape(_TAGS.sub(" ", line)).split())
        targets = [target for target in _TARGET.findall(line) if not target.startswith(("#", "javascript:"))]
        if said or targets:
            shown = Line(number, " ".join([said, *targets]).strip())
            (titles if targets or _TITLE.match(line) else rest).append(shown)
    return [*titles, *rest]
