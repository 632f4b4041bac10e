"""What somebody wrote himself in a text, apart from what he pasted into it.

What is pasted is told by its form: code, logs, tables, quoted lines, what tags enclose. No text of one
program is known here. Pure, and linear in the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_FENCED = re.compile(
    r"""^[ \t]*(```|~~~|\"""|''')(?![^\n]*\1).*?(?:^[ \t]*\1|\Z)""", re.MULTILINE | re.DOTALL
)
_CITED = re.compile(r"^[ \t]*[>|<].*", re.MULTILINE)
_TAG = re.compile(r"<(/?)([a-z][\w-]{0,40})(?:\s[^<>\n]{0,200})?>", re.IGNORECASE)
_OWN_TAG = re.compile(r"instruct|rule|task|important|critical|require|constraint", re.IGNORECASE)
"""Names of tags within which people say what they want; what stands within others is material."""
_CODE = re.compile(r"`[^`\n]+`")
QUOTES = '"“”„「」«»'
QUOTED = re.compile(r"\"[^\"\n]+\"|“[^“”\n]+”|「[^「」\n]+」|«[^«»\n]+»")
"""Words between quotation marks."""
_MARK = re.compile(r"\s*(?:[-*•+]|\d{1,2}[.)、])\s+")
_PROGRAM = re.compile(
    r" {4}|\t|\s*(?:[$%=+~^&\\/{}\]❯➜»·]|\[?(?:\d{1,2}:\d\d|\d{4}[-/.]\d)|\d+(?:\.\d+|:) "
    r"|(?:at|File|from) \S*[_(:/]|\S+:\d+(?::\d+)*:?(?:\s|$))"
)
"""How lines of programs begin: far in, with a prompt, with a time, with a place in a file."""
_CODE_MARK = re.compile(r"[{}\[\];=|\\]|\w\(")
_LABELLED = re.compile(r"[^\s:]+: ")
"""How the message begins with which a trace ends: what the error is, and what it says."""
_MOST_MARKS = 0.05
"""With more of these marks in it a line is code or data."""
_TYPED_CHARS = 2_000
"""Nobody types a longer line."""
_DOCUMENT_CHARS, _PARAGRAPH_CHARS = 3_000, 120
"""Of longer prose, what stands between its first and its last lines in longer paragraphs is a document."""


def prose_of(text: str, own: str | None = None) -> list[tuple[int, int]]:
    """Return where in a text its writer's own prose stands: start and end of each line of it, in order.

    `own` is what `own_words` makes of the text, where that is known.
    """
    own = own_words(text) if own is None else own
    return [line.span() for line in re.finditer(r"[^\n]+", own) if not line[0].isspace()]


def own_words(text: str) -> str:
    """Return a text as long: line ends in place of what was pasted, `x` of code and `_` of quoted words."""
    for find in (_fenced, _tagged, _cited):
        text = _without(text, find(text))
    text = _CODE.sub(lambda found: "x" * len(found[0]), text)
    text = QUOTED.sub(lambda found: "_" * len(found[0]), text)
    lines, start = text.split("\n"), 0
    for end in range(len(lines) + 1):
        if end == len(lines) or not lines[end].strip():
            pasted = [place for place in range(start, end) if _is_data(lines[place])]
            if len(pasted) > 1 and 2 * len(pasted) >= end - start:  # so is what stands between
                last = pasted[-1]
                while last + 1 < end and _LABELLED.match(lines[last + 1]):
                    last += 1
                pasted = list(range(pasted[0], last + 1))
            for place in pasted:
                lines[place] = "\n" * len(lines[place])
            start = end + 1
    told = [place for place, line in enumerate(lines) if line.strip()]
    if sum(len(lines[place]) for place in told) > _DOCUMENT_CHARS:
        for place in told[1:-1]:
            if len(lines[place]) > _PARAGRAPH_CHARS and not after_mark(lines[place]):
                lines[place] = "\n" * len(lines[place])
    return "\n".join(lines)


def after_mark(line: str) -> int:
    """Return where the words of an item of a list begin in its line."""
    return mark.end() if (mark := _MARK.match(line)) else 0


def is_wordy(text: str) -> bool:
    """Tell whether letters are at least half of what `own_words` leaves of a text."""
    solid = "".join(text.replace("_", "").split())
    return 2 * sum(map(str.isalpha, solid)) >= len(solid) > 0


def _is_data(line: str) -> bool:
    line = line[after_mark(line) :]
    return (
        _PROGRAM.match(line) is not None
        or len(line) > _TYPED_CHARS
        or len(_CODE_MARK.findall(line)) > _MOST_MARKS * len(line)
        or not is_wordy(line)
    )


def _fenced(text: str) -> Iterable[tuple[int, int]]:
    return (found.span() for found in _FENCED.finditer(text))


def _cited(text: str) -> Iterable[tuple[int, int]]:
    return (found.span() for found in _CITED.finditer(text))


def _tagged(text: str) -> Iterable[tuple[int, int]]:
    """Return where tags stand that have an end, with all that they enclose where that is material."""
    opened: dict[str, list[int]] = {}
    spans = []
    for tag in _TAG.finditer(text):
        name = tag[2].casefold()
        if _OWN_TAG.search(name):
            spans.append(tag.span())
        elif not tag[1]:
            opened.setdefault(name, []).append(tag.start())
        elif opened.get(name):
            spans.append((opened[name].pop(), tag.end()))
    return sorted(spans)


def _without(text: str, spans: Iterable[tuple[int, int]]) -> str:
    pieces, end = [], 0
    for start, stop in spans:
        if stop > end:
            pieces += [text[end : max(start, end)], "\n" * (stop - max(start, end))]
            end = stop
    return "".join([*pieces, text[end:]])
