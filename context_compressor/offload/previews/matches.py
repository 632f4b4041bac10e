"""Preview what names places in files (`grep -rn`, compilers, linters): counts per file, each kind of text."""

from __future__ import annotations

import re
from collections import Counter

from context_compressor.offload.previews.lines import (
    PATH,
    PLACED_CHARACTERS,
    SHAPE_CHARACTERS,
    Line,
    Show,
    counted,
    head_lines,
    looked_at,
    sample_lines,
    share,
    show_lines,
)

MATCH_SHARE = 0.6
"""Of the lines of the sample, at least."""

MAX_FILES = 200
FILES_FIRST = 12
"""Files shown before the kinds of text: those with the most matches."""

_MATCH = re.compile(rf"({PATH})(?::\d+(?::\d+:|[:-])|\(\d+(?:,\d+)?\):)[ \t]*(.*)")
"""With the column, too, before a colon only: `app.log:7:2026-03-02` is line 7, and begins with a date."""
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")


def show_matches(text: str) -> Show | None:
    """Return what shows lines of the form `path:line:text`; None for another kind of text."""
    if share(_match(line) is not None for line in sample_lines(text)) < MATCH_SHARE:
        return None
    lines = head_lines(text)
    counts = Counter[str]()
    first: dict[str, Line] = {}
    kinds: dict[str, Line] = {}
    last: list[Line] = []
    for number, line in enumerate(lines):
        if found := _match(line[:PLACED_CHARACTERS]):
            path, said = found[1], found[2].rstrip()
            counts[path] += 1
            first.setdefault(path, Line(number, said))
            if said:
                kinds.setdefault(_VARYING.sub("", said[:SHAPE_CHARACTERS]), Line(number, said))
                last = [Line(number, said)]
    files = [
        Line(first[path].number, f"{path} ({count}): {first[path].text}")
        for path, count in counts.most_common(MAX_FILES)
    ]
    total = f"{counted(counts.total(), 'match')} in {counted(len(counts), 'file')}{looked_at(text, lines)}"
    ranked = [*files[:FILES_FIRST], *kinds.values(), *files[FILES_FIRST:], *last]
    return show_lines(ranked, f"[{total}]")


def _match(line: str) -> re.Match[str] | None:
    """Return a match when what stands before the line number looks like a path, unlike the hour of a log."""
    found = _MATCH.match(line)
    return found if found and ("/" in found[1] or "." in found[1].strip(".")) else None
