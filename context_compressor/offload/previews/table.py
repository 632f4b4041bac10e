"""Preview tables with a wide head (CSV, TSV, Markdown, psql): the names of all columns above its ends."""

from __future__ import annotations

from itertools import islice

from context_compressor.offload.previews.lines import SHOWN_CHARACTERS, Show, head_lines, share, shorten
from context_compressor.offload.previews.text import show_text

SEPARATORS = "\t|;,"
MIN_SEPARATORS = 2
"""In each line, at least."""

TABLE_SHARE = 0.8
"""Of the lines looked at that have as many separators as the first, at least: a cell may hold one, too."""

MIN_LINES, MAX_LINES = 4, 60
MAX_HEAD_CHARACTERS = 20_000
"""Of a first line that may be the head of a table."""

NARROW_CHARACTERS = 40
"""So much of its first line is shown of any text."""

COLUMNS_SHARE = 0.5
"""What the columns may take of a preview, at most."""


def show_table(text: str) -> Show | None:
    """Return what shows the columns of a table, and its ends as those of any text; None for another text."""
    lines = [line for line in islice(head_lines(text), MAX_LINES) if any(map(str.isalnum, line))]
    if len(lines) < MIN_LINES or not NARROW_CHARACTERS < len(lines[0]) <= MAX_HEAD_CHARACTERS:
        return None
    head = lines[0]
    separator = max(SEPARATORS, key=head.count)
    width = head.count(separator)
    if separator in ";," and f"{separator} " in head:
        return None  # prose
    if width < MIN_SEPARATORS or share(line.count(separator) == width for line in lines) < TABLE_SHARE:
        return None
    columns = [cell.strip(" \t\"'") for cell in head.strip("| \t").split(separator)]
    if len(set(columns)) < len(columns) or any(not name or name[0].isdecimal() for name in columns):
        return None  # the first line is one like the others
    said = f"{len(columns)} columns: {', '.join(columns)}"
    show_ends = show_text(text)

    def show(characters: int) -> str:
        if len(head) <= min(characters // 3, SHOWN_CHARACTERS):
            return show_ends(characters)  # which show it as a whole
        shown = f"[{shorten(said, int(characters * COLUMNS_SHARE))}]"
        return f"{shown}\n{show_ends(characters - len(shown))}"

    return show
