"""What the demo checks with code of its own, asking nothing of the library that it shows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PAGE = re.compile(r"\[(ctx://[0-9a-f]{16}) lines (\d+)-(\d+) of \d+.*\]")
_FOUND_TEXT = re.compile(r"\[(ctx://[0-9a-f]{16}) matches: .*\]")
_FOUND_LINE = re.compile(r"(\d+)(?::\d+-\d+)?(?: x\d+)?\| ")


def first_found(answer: str) -> tuple[str, int] | None:
    """Return ref and line of the first match that an answer of `grep_offloaded` shows."""
    ref = None
    for line in answer.split("\n"):
        if header := _FOUND_TEXT.fullmatch(line):
            ref = header[1]
        elif ref is not None and (found := _FOUND_LINE.match(line)):
            return ref, int(found[1])
    return None


def page_lines(page: str) -> list[str]:
    """Return the lines of text that an answer of `read_offloaded` shows; none when it shows no page."""
    lines = page.split("\n")
    return lines[1:-1] if _PAGE.fullmatch(lines[0]) else []


def stands_in(lines: Sequence[str], history: Sequence[dict[str, Any]]) -> bool:
    """Tell whether `lines` stand, one after the other and unchanged, in one message of the history."""
    wanted = "\n".join(("", *lines, ""))
    return bool(lines) and any(wanted in f"\n{message.get('content')}\n" for message in history)
