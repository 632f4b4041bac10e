"""Text as a terminal is given it: counted, on one line, with nothing that the terminal would obey."""

from __future__ import annotations

import re
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_OBEYED: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def for_terminal(text: str) -> str:
    """Return `text` with what a terminal would obey escaped: texts come from outside, and some write titles,
    clipboards or over what stands above them.
    """
    return _OBEYED.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """Return `text` on one line, with what a terminal would not show as characters escaped."""
    joined = " ".join(text.split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def counted(number: int, what: str) -> str:
    """Return `1 session`, `1,200 sessions`; `what` is a noun whose plural ends in s."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def slug_of(name: str, most: int) -> str:
    """Return what a file or namespace may be called after a name from outside, at most so long."""
    return _UNSAFE.sub("-", name)[-most:].strip(".-") or "session"
