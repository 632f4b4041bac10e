"""Read sessions from whatever the user named, in whichever format it is."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Protocol, cast

from context_compressor.readers import (
    agentscope,
    anthropic,
    claude_code,
    codex,
    langchain,
    openai_chat,
    openai_responses,
)
from context_compressor.readers.documents import Document, Numbered
from context_compressor.readers.session import Form, Format, Problem, Session, UnreadableError, summed
from context_compressor.readers.transcript import keys_of

_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 4096
"""Read of a file to tell how it is packed or encoded."""
_UNREAD = {
    b"\x28\xb5\x2f\xfd": "is compressed with zstd; unpack it first (gzip is read as it is)",
    b"BZh": "is compressed with bzip2; unpack it first (gzip is read as it is)",
    b"\xfd7zXZ\x00": "is compressed with xz; unpack it first (gzip is read as it is)",
    b"PK\x03\x04": "is compressed with zip; unpack it first (gzip is read as it is)",
    codecs.BOM_UTF32_LE: "is UTF-32 text; save the file as UTF-8",
    codecs.BOM_UTF32_BE: "is UTF-32 text; save the file as UTF-8",
    codecs.BOM_UTF16_LE: "is UTF-16 text; save the file as UTF-8",
    codecs.BOM_UTF16_BE: "is UTF-16 text; save the file as UTF-8",
}
"""How files begin that are not read, and why; of marks of encodings the longer ones come first."""
_STORED = re.compile(r"[0-9a-f]{16}\.txt|search\.sqlite3")
"""What a `FileOffloadStore` holds: no sessions, but what left their views."""


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UnreadableError("there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def as_text_bytes(stream: IO[bytes]) -> IO[bytes]:
    """Return the bytes of a text, unpacked where they are gzipped; the stream can be rewound.

    Raises:
        UnreadableError: they are not those of a text that is read here.
    """
    try:
        if not stream.seekable():
            stream = io.BytesIO(stream.read())
        head = stream.read(_HEAD_BYTES)
        stream.seek(0)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None
    if head.startswith(_GZIP):
        with suppress(OSError, EOFError, zlib.error):  # whoever reads the lines tells where the damage is
            head = b""
            head = gzip.GzipFile(fileobj=stream).read(_HEAD_BYTES)
        stream.seek(0)
        # Anew: after damage at the very start, the first would not begin there again.
        stream = cast("IO[bytes]", gzip.GzipFile(fileobj=stream))
    for beginning, why in _UNREAD.items():
        if head.startswith(beginning):
            raise UnreadableError(why)
    if b"\x00" in head:
        raise UnreadableError("is a binary file; expected chat messages as JSON or JSONL")
    return stream


def walk(directory: Path, on_error: Callable[[OSError], None]) -> Iterator[Path]:
    """Yield the regular files below a directory, by name.

    Not hidden ones, nor what an offload store holds, nor any in linked directories.
    """
    for parent, directories, names in os.walk(directory, onerror=on_error):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = Path(parent, name)
            if not name.startswith(".") and not _STORED.fullmatch(name) and path.is_file():
                yield path


class Reader(Protocol):
    """What a format's module offers."""

    FORMAT: Format

    @property
    def recognises(self) -> Callable[[Sequence[Any]], bool]:
        """Tell by the first values of a file whether it is of this format."""

    @property
    def read(self) -> Callable[[Document], Iterator[Session]]:
        """Yield a file's sessions; what cannot be read goes to `document.reject`."""


_MODULES: list[Reader] = [claude_code, codex, agentscope, langchain, openai_responses, anthropic, openai_chat]
READERS = {reader.FORMAT: reader for reader in _MODULES}
"""Every reader, in the order in which they are asked: the plainest format last, since others resemble it."""

_SESSION_FORMATS = (Format.LANGCHAIN, Format.RESPONSES, Format.ANTHROPIC, Format.OPENAI)
"""Formats of which several may stand in one file, a session per line, as in a log of requests."""


def detect_format(sample: Sequence[Any]) -> Format | None:
    """Return the format of a file by its first values, or None where no reader knows it."""
    return next((format for format, reader in READERS.items() if reader.recognises(sample)), None)


def read_stream(
    stream: IO[bytes], name: str, problems: list[Problem], format: Format | None = None
) -> Iterator[Session]:
    """Yield the sessions of one file, as they are read.

    `problems`: takes what could not be read, each as it is met.

    Raises:
        UnreadableError: nothing in it can be read.
    """
    document = Document(name, as_text_bytes(stream), problems)
    known = detect_format(document.sample) if format is None else format
    if known is None and document.is_lines:
        raise UnreadableError(_unknown_lines(document.sample))
    # One value of no known format is refused in the words of the plainest.
    reader = READERS[known or Format.OPENAI]
    before = len(problems)
    empty = True
    first = next((value for value in document.sample if detect_format([value]) is not None), None)
    is_log = format is None and known in _SESSION_FORMATS and document.is_lines and _is_session(first)
    for session in _read_each(document, reader.FORMAT) if is_log else reader.read(document):
        if session.messages or session.form is not Form.FOREIGN:
            empty = False
            yield session
    if empty and len(problems) == before:
        raise UnreadableError(f"holds no message (read as: {reader.FORMAT.title})")


def _unknown_lines(sample: Sequence[Any]) -> str:
    """Return what is wrong with lines of no known format, and how those of chat look."""
    first = next((value for value in sample if isinstance(value, dict)), {})
    return (
        f"its lines are no messages or sessions of a known format ({keys_of(first)}); a chat message has a "
        f'role, a session is {{"messages": [...]}} or a list of messages'
    )


def _is_session(value: Any) -> bool:
    return isinstance(value, list) or (isinstance(value, dict) and not {"role", "type"} & value.keys())


def _read_each(document: Document, known: Format) -> Iterator[Session]:
    """Yield the sessions of a file of sessions, each run of values of one format read by its reader."""
    latest = known

    def format_of(numbered: Numbered) -> Format:
        nonlocal latest
        latest = _format_of(numbered[1], known) if _is_session(numbered[1]) else latest
        return latest

    for format, values in groupby(document.values(), format_of):
        yield from READERS[format].read(document.part(values))


def _format_of(value: Any, known: Format) -> Format:
    """Return the format of a session; that of its file where nothing tells of another."""
    found = detect_format([value])
    is_plain = found is Format.OPENAI and not anthropic.speaks_chat(value)
    if found not in _SESSION_FORMATS or (is_plain and known is Format.ANTHROPIC):
        return known
    return found


def read_path(path: Path, problems: list[Problem], format: Format | None = None) -> Iterator[Session]:
    """Yield the sessions of a file, or of every file below a directory, as they are read.

    In a directory a session is known by its file's name below it where it has no id of its own, and a file
    that holds none becomes a problem.

    Raises:
        UnreadableError: the file, not a directory, cannot be read.
    """
    if not path.is_dir():
        with open_file(path) as stream:
            yield from read_stream(stream, str(path), problems, format)
        return

    def note(error: OSError) -> None:
        problems.append(Problem(str(error.filename), None, f"cannot be listed: {error.strerror or error}"))

    for file in walk(path, note):
        try:
            with open_file(file) as stream:
                for session in read_stream(stream, str(file), problems, format):
                    name = file.relative_to(path).as_posix()
                    name = name if session.line is None else f"{name}:{session.line}"
                    yield session if session.id else replace(session, id=name)
        except UnreadableError as error:
            problems.append(error.at(str(file)))


@dataclass(frozen=True, slots=True)
class Reading:
    """All that was read of what the user named."""

    name: str
    form: Form
    sessions: tuple[Session, ...]
    problems: tuple[Problem, ...]

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats met, in the order of `Format`."""
        found = {session.format for session in self.sessions}
        return tuple(format for format in Format if format in found)


def read_all(source: Path | IO[bytes], name: str, format: Format | None = None) -> Reading:
    """Read everything there is in a file, a directory or a stream; `name` is what problems call it.

    Raises:
        UnreadableError: nothing could be read; the text names file, line and reason of what was met first.
    """
    problems: list[Problem] = []
    is_directory = isinstance(source, Path) and source.is_dir()
    try:
        if isinstance(source, Path):
            sessions = tuple(read_path(source, problems, format))
        else:
            sessions = tuple(read_stream(source, name, problems, format))
    except UnreadableError as error:
        sessions = ()
        problems.insert(0, error.at(name))
    nothing = not sessions or (bool(problems) and not any(session.messages for session in sessions))
    if nothing and not is_directory:
        raise UnreadableError(summed(problems))
    if nothing:
        found = f"; {summed(problems)}" if problems else ""
        raise UnreadableError(f"{name}: is a directory in which no session was found{found}")
    forms = {session.form for session in sessions}
    one = sessions[0].form if len(forms) == 1 else Form.FOREIGN
    return Reading(name, Form.DIRECTORY if is_directory else one, sessions, tuple(problems))
