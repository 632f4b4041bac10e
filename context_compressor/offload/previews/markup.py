"""Preview marked-up text: headings and links, and the text of HTML without its tags and scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import unescape

from context_compressor.offload.previews.lines import Line, head_lines, sample_lines, share, show_lines

MARK_SHARE = 0.06
"""Of the lines of the sample that hold a heading or a link, at least."""

TAG_SHARE = 0.75
"""Of the lines of the sample that begin or end with a tag, at least, in HTML and XML."""

LINK_TEXT_CHARACTERS = 40
READ_CHARACTERS = 1000
"""Of one line."""

_LINK = re.compile(r"(?<!!)\[([^\[\]\n]{1,200})\]\((https?://[^)\s?#]{1,300})")
_TAGS = re.compile(r"<[^<>]{0,1000}>")
_TARGET = re.compile(r"<a\s[^<>]{0,300}?href=[\"']?([^\"'\s<>]{1,300})", re.IGNORECASE)
_TITLE = re.compile(r"[ \t]*<(?:h[1-6]|title|th)\b", re.IGNORECASE)
_HIDDEN = re.compile(r"<(script|style|svg)\b", re.IGNORECASE)


def show_markup(text: str) -> Callable[[int], str] | None:
    """Return what shows headings, links and text of Markdown, HTML or XML; None for another kind of text."""
    sample = sample_lines(text)
    if share(line.lstrip()[:1] == "<" or line[-1] == ">" for line in sample) >= TAG_SHARE:
        return show_lines(_ranked_html(head_lines(text)))
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


def _ranked_html(lines: Sequence[str]) -> list[Line]:
    """Return headings and links, then the rest of the text."""
    titles: list[Line] = []
    rest: list[Line] = []
    hidden = ""
    for number, line in enumerate(lines):
        line = line[:READ_CHARACTERS]
        if hidden:
            if f"</{hidden}" not in line.lower():
                continue
            hidden = ""
        elif (found := _HIDDEN.search(line)) and f"</{found[1].lower()}" not in line.lower():
            hidden = found[1].lower()
            continue
        said = " ".join(unescape(_TAGS.sub(" ", line)).split())
        targets = [target for target in _TARGET.findall(line) if not target.startswith(("#", "javascript:"))]
        if said or targets:
            shown = Line(number, " ".join([said, *targets]).strip())
            (titles if targets or _TITLE.match(line) else rest).append(shown)
    return [*titles, *rest]
