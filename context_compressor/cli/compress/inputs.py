"""What `compress` reads, and in which form it writes it back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from context_compressor.cli.exits import CommandError, check_path
from context_compressor.messages.escapes import dump_sendable
from context_compressor.readers import Form, Format, Reading, UnreadableError, read_all

STDIN = "-"
_WRITTEN_ANEW = (Form.FOREIGN, Form.DIRECTORY)


def written_as(reading: Reading) -> str | None:
    """Return what is written for an input whose form is not written back, else None."""
    if reading.form not in _WRITTEN_ANEW:
        return None
    one = reading.form is Form.FOREIGN and len(reading.sessions) == 1
    return "OpenAI chat JSON" if one else "OpenAI chat JSON, a session per line"


def dump(reading: Reading, views: Sequence[list[dict[str, Any]]]) -> str:
    """Return the text of a file of the form read that holds `views`, one per session."""
    if reading.form is Form.MESSAGE_LINES:
        return "".join(f"{dump_sendable(message)}\n" for view in views for message in view)
    anew = reading.form is Form.DIRECTORY or (reading.form is Form.FOREIGN and len(views) > 1)
    framed = [
        {"id": session.id, "messages": view} if anew and session.frame is None else session.wrap(view)
        for session, view in zip(reading.sessions, views, strict=True)
    ]
    indent = 2 if reading.form is Form.ONE and reading.sessions[0].is_indented else None
    return "".join(f"{dump_sendable(value, indent=indent)}\n" for value in framed)


def read_sessions(source: str, format: Format | None = None) -> Reading:
    """Read a file or a directory, or stdin for `-`; the format is found by content when None.

    Raises:
        CommandError: nothing in it can be read; names file, line and reason.
    """
    check_path(source, "FILE")
    try:
        if source == STDIN:
            if sys.stdin is None:
                raise CommandError("stdin is closed; name a file, or redirect one: compress - < FILE")
            return read_all(sys.stdin.buffer, "stdin", format)
        return read_all(Path(source), source, format)
    except UnreadableError as error:
        raise CommandError(error.why) from None
