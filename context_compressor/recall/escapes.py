"""Texts as they read once escapes in them, as JSON has them, are resolved."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # one character beyond U+FFFF
    r"|\\u[0-9a-fA-F]{4}"
    r'|\\[\\"/bfnrt]'
)
_DEPTH = 2
"""JSON that stands in JSON, as what a tool printed does in its result, is escaped twice."""


def readings(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    r"""Yield a text as it is, then with its escapes resolved, as often as there may be some.

    Whether `\n` is a line feed or stands in a path of Windows cannot be told, so that both are read.

    With each comes the place in `text` of every character, and of the end.
    """
    origins: Sequence[int] = range(len(text) + 1)
    yield text, origins
    for _ in range(_DEPTH):
        pieces: list[str] = []
        places: list[int] = []
        end = 0
        for match in _ESCAPE.finditer(text) if "\\" in text else ():
            start = match.start()
            pieces += text[end:start], _character(match[0])
            places += (*origins[end:start], origins[start])
            end = match.end()
        if not pieces:
            return
        text = "".join((*pieces, text[end:]))
        origins = (*places, *origins[end:])
        yield text, origins


def _character(escape: str) -> str:
    if escape[1] == "u":
        return bytes.fromhex(escape.replace("\\u", "")).decode("utf-16-be", "surrogatepass")
    return escape[1] if escape[1] in '\\"/' else "\n"
