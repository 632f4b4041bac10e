"""What `compress` reads, and in which form it writes it back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from context_compressor.cli.exits import CommandError, check_path
from context_compressor.messages.escapes import dump_sendable
from context_compressor.readers import Form, Format, Problem, Reading, Session, UnreadableError, read_all

__all__ = ["STDIN", "Form", "Session", "SessionFile", "read_sessions"]

STDIN = "-"
_WRITTEN_ANEW = (Form.FOREIGN, Form.DIRECTORY)


@dataclass(frozen=True, slots=True)
class SessionFile:
    """The sessions of one input, and the form they came in."""

    name: str
    """As error messages name it."""
    form: Form
    sessions: tuple[Session, ...]
    is_indented: bool = False
    """Whether the JSON value spread over several lines."""
    formats: tuple[Format, ...] = (Format.OPENAI,)
    problems: tuple[Problem, ...] = ()
    """What could not be read, and is missing from the sessions."""

    def written_as(self) -> str | None:
        """Return what is written for an input whose form is not written back, else None."""
        if self.form not in _WRITTEN_ANEW:
            return None
        one = self.form is Form.FOREIGN and len(self.sessions) == 1
        return "OpenAI chat JSON" if one else "OpenAI chat JSON, a session per line"

    def dump(self, views: Sequence[list[dict[str, Any]]]) -> str:
        """Return the text of a file of this form that holds `views`, one per session."""
        if self.form is Form.MESSAGE_LINES:
            return "".join(f"{dump_sendable(message)}\n" for view in views for message in view)
        anew = self.form is Form.DIRECTORY or (self.form is Form.FOREIGN and len(views) > 1)
        framed = [
            {"id": session.id, "messages": view} if anew and session.frame is None else session.wrap(view)
            for session, view in zip(self.sessions, views, strict=True)
        ]
        indent = 2 if self.is_indented else None
        return "".join(f"{dump_sendable(value, indent=indent)}\n" for value in framed)


def read_sessions(source: str, format: Format | None = None) -> SessionFile:
    """Read a file or a directory, or stdin for `-`; the format is found by content when None.

    Raises:
        CommandError: nothing in it can be read; names file, line and reason.
    """
    check_path(source, "FILE")
    try:
        if source == STDIN:
            if sys.stdin is None:
                raise CommandError("stdin is closed; name a file, or redirect one: compress - < FILE")
            return _to_file(read_all(sys.stdin.buffer, "stdin", format))
        return _to_file(read_all(Path(source), source, format))
    except UnreadableError as error:
        raise CommandError(error.why) from None


def _to_file(reading: Reading) -> SessionFile:
    indented = reading.form is Form.ONE and reading.sessions[0].is_indented
    return SessionFile(
        reading.name, reading.form, reading.sessions, indented, reading.formats, reading.problems
    )
