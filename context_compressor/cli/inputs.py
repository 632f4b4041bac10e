"""Read sessions in every form that people keep them in, and write them back in the same form."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from context_compressor.cli.exits import CommandError

STDIN = "-"
_GZIP_MAGIC = b"\x1f\x8b"
_ID_KEYS = ("id", "session_id", "conversation_id", "chat_id")


class Form(Enum):
    """The forms of a file of sessions."""

    ONE = "one JSON value"
    SESSION_LINES = "JSONL, a session per line"
    MESSAGE_LINES = "JSONL, a message per line"


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation, as it was read."""

    messages: list[Any]
    frame: dict[str, Any] | None
    """The object that held the messages, its other keys included; None where they stood alone."""
    line: int | None = None
    """The line of the file that holds it, 1-based; None where it is the whole file."""
    message_lines: tuple[int, ...] = ()
    """The line of each message, where each has its own."""

    @property
    def id(self) -> str | None:
        """The id that the object gives itself, if any."""
        found = [self.frame[key] for key in _ID_KEYS if self.frame and key in self.frame]
        return next((str(value) for value in found if isinstance(value, str | int) and value != ""), None)

    def wrap(self, messages: list[dict[str, Any]]) -> Any:
        """Return `messages` in the frame of this session."""
        return messages if self.frame is None else {**self.frame, "messages": messages}


@dataclass(frozen=True, slots=True)
class SessionFile:
    """The sessions of one input, and the form they came in."""

    name: str
    """As error messages name it."""
    form: Form
    sessions: tuple[Session, ...]
    is_indented: bool = False
    """Whether the JSON value spread over several lines."""

    def place(self, session: Session, message: int | None = None) -> str:
        """Return where a session, or one message of it, stands, as errors name it."""
        line = session.line
        if message is not None and session.message_lines:
            line = session.message_lines[message]
        return self.name if line is None else f"{self.name}, line {line}"

    def dump(self, views: Sequence[list[dict[str, Any]]]) -> str:
        """Return the text of a file of this form that holds `views`, one per session."""
        if self.form is Form.MESSAGE_LINES:
            return "".join(f"{_json(message)}\n" for view in views for message in view)
        framed = [session.wrap(view) for session, view in zip(self.sessions, views, strict=True)]
        indent = 2 if self.is_indented else None
        return "".join(f"{_json(value, indent)}\n" for value in framed)


def read_sessions(source: str) -> SessionFile:
    """Read a file, or stdin for `-`.

    Raises:
        CommandError: it cannot be read, or is of no form known here; names file, line and field.
    """
    name = "stdin" if source == STDIN else source
    return parse_sessions(name, _decode(name, _read_bytes(source, name)))


def parse_sessions(name: str, text: str) -> SessionFile:
    """Find out the form of `text` and return its sessions.

    Raises:
        CommandError: it is of no form known here; names file, line and field.
    """
    if not text.strip():
        raise CommandError(f"{name}: is empty; expected chat messages as JSON or JSONL")
    try:
        value = _load(text)
    except ValueError as error:
        # JSONL, if the first line that says something is a value by itself; else the JSON is broken.
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        try:
            _load(lines[0][1])
        except ValueError:
            lines = lines[:1]
        if len(lines) < 2:
            raise CommandError(f"{name}, {_json_fault(error)}") from None
        return _parse_lines(name, lines)
    if _is_message(value):
        line = text[: len(text) - len(text.lstrip())].count("\n") + 1
        return SessionFile(name, Form.MESSAGE_LINES, (Session([value], None, None, (line,)),))
    session = _as_session(name, value, None)
    return SessionFile(name, Form.ONE, (session,), is_indented="\n" in text.strip())


def _parse_lines(name: str, lines: Sequence[tuple[int, str]]) -> SessionFile:
    values: list[tuple[int, Any]] = []
    for number, line in lines:
        try:
            values.append((number, _load(line)))
        except ValueError as error:
            raise CommandError(f"{name}, {_json_fault(error, number)}") from None
    if _is_message(values[0][1]):
        numbers = tuple(number for number, _ in values)
        session = Session([value for _, value in values], None, None, numbers)
        return SessionFile(name, Form.MESSAGE_LINES, (session,))
    sessions = tuple(_as_session(name, value, number) for number, value in values)
    return SessionFile(name, Form.SESSION_LINES, sessions)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value and "messages" not in value


def _as_session(name: str, value: Any, line: int | None) -> Session:
    place = name if line is None else f"{name}, line {line}"
    if isinstance(value, list):
        return Session(value, None, line)
    if not isinstance(value, dict):
        kind = "null" if value is None else type(value).__name__
        raise CommandError(f'{place}: expected a list of chat messages or {{"messages": [...]}}, got {kind}')
    if "messages" not in value:
        keys = ", ".join(list(value)[:5]) or "none"
        raise CommandError(
            f"{place}: messages: expected a list of chat messages, but the key is missing "
            f"(keys found: {keys})"
        )
    if not isinstance(value["messages"], list):
        kind = "null" if value["messages"] is None else type(value["messages"]).__name__
        raise CommandError(f"{place}: messages: expected a list of chat messages, got {kind}")
    return Session(value["messages"], value, line)


def _read_bytes(source: str, name: str) -> bytes:
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
    except FileNotFoundError:
        raise CommandError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise CommandError(f"{name}: is a directory; name a file, or - for stdin") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        reason = getattr(error, "strerror", None) or error
        raise CommandError(f"{name}: cannot be read: {reason}") from None
    if data.startswith(_GZIP_MAGIC):
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise CommandError(f"{name}: the gzip data is damaged: {error}") from None
    return data


def _decode(name: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise CommandError(
            f"{name}, line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8"
        ) from None


def _load(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: `text` is not JSON, or nests too deep.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def _json_fault(error: ValueError, line: int | None = None) -> str:
    """Return place and cause; `line` is where the text stands when it was one line of a file."""
    if isinstance(error, json.JSONDecodeError):
        return f"line {line or error.lineno}, column {error.colno}: invalid JSON: {error.msg}"
    return f"line {line or 1}: invalid JSON: {error}"


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() or _encodes(text):
        return text
    return json.dumps(value, indent=indent)


def _encodes(text: str) -> bool:
    """Tell whether UTF-8 can hold the text: JSON may hold half of a surrogate pair, UTF-8 may not."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
