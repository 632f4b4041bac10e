"""Preview text inside text: line feeds and quotes written as escapes, as in printed tool results."""

from __future__ import annotations

import re

from context_compressor.offload.previews.lines import NUMBERS, SAMPLE_CHARACTERS, Show
from context_compressor.offload.previews.text import FEW_LINES, show_text

MIN_ESCAPES = 8
"""In the sample."""

MAX_CHARACTERS = 20_000
"""Read from either end."""

MAX_LEVELS = 3
"""Of escapes within escapes that are resolved."""

_ESCAPE = re.compile(r"((?:\\u[0-9a-fA-F]{4})+)|\\(.)", re.DOTALL)
_WRITTEN = re.compile(r'\\(?:[n"]|u[0-9a-fA-F]{4})')
_MEANT = {"n": "\n", "t": "\t", "r": ""}


def show_escaped(text: str) -> Show | None:
    """Return what shows a text of few lines, its escapes resolved; None when there are few escapes in it."""
    middle = len(text) // 2
    sample = "\n".join((text[:SAMPLE_CHARACTERS], text[middle : middle + SAMPLE_CHARACTERS]))
    if sample.count("\\n") + sample.count('\\"') < MIN_ESCAPES or sample.count("\n") > FEW_LINES:
        return None
    if len(text) > 2 * MAX_CHARACTERS:
        text = f"{text[:MAX_CHARACTERS]}\n{text[-MAX_CHARACTERS:]}"
    for _ in range(MAX_LEVELS):
        if not _WRITTEN.search(text):
            break
        text = _ESCAPE.sub(_meant, text)
    return as_resolved(show_text(text))


def as_resolved(show: Show, status: str = "") -> Show:
    """Return what shows a text whose escapes were resolved, and says so; and the status, where it is no 0."""
    label = "[escapes resolved]\n" + (f"[exit code {status}]\n" if status not in ("", "0") else "")
    # The numbers are those of lines that are not there in what is stored.
    return lambda characters: label + NUMBERS.sub("", show(characters))


def _meant(found: re.Match[str]) -> str:
    if found[1]:
        return bytes.fromhex(found[1].replace("\\u", "")).decode("utf-16-be", "replace")
    return _MEANT.get(found[2], found[2])
