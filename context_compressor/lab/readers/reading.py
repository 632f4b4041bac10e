"""Read sessions from whatever the user named, in whichever format it is."""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import IO, Any, cast

from context_compressor.lab.readers.apis import speaks_chat
from context_compressor.lab.readers.detection import (
    READERS,
    detect_format,
    name_stranger,
    open_wrapper,
    refuse_strangers,
)
from context_compressor.lab.readers.documents import Document, Numbered
from context_compressor.lab.readers.session import Form, Format, Problem, Session, UnreadableError, summed
from context_compressor.lab.readers.transcript import keys_of

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
MAX_UNPACKED = 256 * 2**20
"""Bytes that a gzipped file may have when it is unpacked, unless somebody allows more."""
_STORED = re.compile(r"[0-9a-f]{16}\.txt|search\.sqlite3")
"""What a `FileOffloadStore` holds: no sessions, but what left their views."""
_EVENT = re.compile(r"event-\d+-[0-9a-f-]+\.json")
"""What OpenHands calls the files of a conversation, an event in each."""


def open_file(path: Path) -> IO[bytes]:
    """Open a file for reading."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        raise UnreadableError("there is no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the name
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


class _Unpacked(io.RawIOBase):
    """The bytes of a gzipped stream, up to a limit."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._file = gzip.GzipFile(fileobj=stream)
        self._most = most

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        data = self._file.read1(len(buffer))
        if self._file.tell() > self._most:
            raise UnreadableError(
                f"unpacks to more than {self._most:,} bytes; allow more with --max-unpacked"
            )
        buffer[: len(data)] = data
        return len(data)


def as_text_bytes(stream: IO[bytes], max_unpacked: int = MAX_UNPACKED) -> IO[bytes]:
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
        stream = cast("IO[bytes]", io.BufferedReader(_Unpacked(stream, max_unpacked)))
    for beginning, why in _UNREAD.items():
        if head.startswith(beginning):
            raise UnreadableError(why)
    is_json = head.lstrip().startswith((b"{", b"["))
    if b"\x00" in (head.partition(b"\n")[0].rstrip(b"\0") if is_json else head):
        raise UnreadableError("is a binary file; expected chat messages as JSON or JSONL", is_stranger=True)
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


_SESSION_FORMATS = (Format.LANGCHAIN, Format.RESPONSES, Format.ANTHROPIC, Format.OPENAI)
"""Formats of which several may stand in one file, a session per line, as in a log of requests."""


def read_stream(
    stream: IO[bytes],
    name: str,
    problems: list[Problem],
    format: Format | None = None,
    max_unpacked: int = MAX_UNPACKED,
) -> Iterator[Session]:
    """Yield the sessions of one file, as they are read.

    `problems`: takes what could not be read, each as it is met; those of a file that is refused go again.
    `max_unpacked`: bytes that a gzipped file may have.

    Raises:
        UnreadableError: nothing in it can be read, or most of it cannot; some sessions may have been given.
    """
    start = len(problems)
    try:
        yield from _read_stream(Document(name, as_text_bytes(stream, max_unpacked), problems), start, format)
    except UnreadableError:
        del problems[start:]
        raise


def _read_stream(document: Document, start: int, format: Format | None) -> Iterator[Session]:
    document = open_wrapper(document, format)
    known = detect_format(document.sample) if format is None else format
    if format is None:
        refuse_strangers(document.sample, known)
    if known is None:
        raise _unknown(document)
    reader = READERS[known]
    first = next((value for value in document.sample if detect_format([value]) is not None), None)
    is_log = format is None and known in _SESSION_FORMATS and document.is_lines and _is_session(first)
    sessions = _read_each(document, reader.format) if is_log else reader.read(document)
    yield from _account_for(document, sessions, start, reader.format.title)


def _account_for(
    document: Document, sessions: Iterable[Session], start: int, title: str
) -> Iterator[Session]:
    """Yield sessions, and see to it that they are most of what there is.

    The one rule on what may be missing. Every record of a file is in a session, told by it as left out, or a
    problem. A session that has more problems than records is no session. A file is not read that has more
    lines that give no session than sessions, more records in lists that were refused than elsewhere, or no
    message at all.
    """
    seen, lines, held, kept, is_empty = start, set[int](), 0, 0, True
    for session in sessions:
        lost = [problem for problem in document.problems[seen:] if session.line in (None, problem.line)]
        taken, document.taken.count = document.taken.count, 0
        if len(lost) > taken:
            error = _mostly(f"{len(lost):,} of {len(lost) + taken:,} records", title, lost[0])
            if session.line is None:
                raise error if taken else _first_of(lost)
            del document.problems[-len(lost) :]
            document.reject(error, session.line)
        else:
            lines |= set() if session.line is None else {session.line}
            held += 1
            kept += taken
            is_empty = is_empty and not session.messages
            yield session
        seen = len(document.problems)
    problems = document.problems[start:]
    lost_lines = {problem.line for problem in problems} - lines
    if is_empty and problems:
        raise _first_of(problems)
    if is_empty:
        raise UnreadableError(f"holds no message (read as: {title})")
    lost_count = len(lost_lines) if document.is_lines else document.taken.lost_holders
    if lost_count > held and (lines or not document.is_lines):
        raise _mostly(f"{lost_count:,} of {lost_count + held:,} sessions", title, problems[0])
    lost_in_lists = document.taken.lost
    if lost_in_lists > kept:
        raise _mostly(f"{lost_in_lists:,} of {lost_in_lists + kept:,} records", title, problems[0])


def _first_of(problems: Sequence[Problem]) -> UnreadableError:
    more = f" (and {len(problems) - 1:,} more that cannot be read)" if len(problems) > 1 else ""
    return UnreadableError(problems[0].why + more, problems[0].line, problems[0].column)


def _mostly(what: str, title: str, first: Problem) -> UnreadableError:
    why = f"most of it cannot be read as {title}: {what}; first: {first.why}"
    return UnreadableError(why, first.line, first.column)


def _unknown(document: Document) -> UnreadableError:
    """Return what is wrong with values of no known format."""
    if not document.is_lines and name_stranger(document.sample) is None:  # in the plainest format's words
        for _ in READERS[Format.OPENAI].read(document):
            pass
    error = UnreadableError(_unknown_lines(document.sample))
    if name := name_stranger(document.sample):
        error = UnreadableError(f"looks like {name}")
    elif document.problems:
        error = _first_of(document.problems[-1:])
    error.is_stranger = True
    return error


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
    found = detect_format([value], _SESSION_FORMATS)
    is_plain = found is Format.OPENAI and not speaks_chat(value)
    if found is None or (is_plain and known is Format.ANTHROPIC):
        return known
    return found


def read_path(
    path: Path, problems: list[Problem], format: Format | None = None, max_unpacked: int = MAX_UNPACKED
) -> Iterator[Session]:
    """Yield the sessions of a file, or of every file below a directory, as they are read.

    In a directory a session is known by its file's name below it where it has no id of its own. Files with an
    event each are one session, known by the name of their folder. A file that cannot be read becomes a
    problem; those that are no transcripts are one problem, which says how many.

    Raises:
        UnreadableError: the file, not a directory, cannot be read.
    """
    if not path.is_dir():
        with open_file(path) as stream:
            yield from read_stream(stream, str(path), problems, format, max_unpacked)
        return

    def note(error: OSError) -> None:
        problems.append(Problem(str(error.filename), None, f"cannot be listed: {error.strerror or error}"))

    strangers: list[str] = []
    for file, files in groupby(walk(path, note), _conversation_of):
        try:
            with _open_joined(list(files)) as stream:
                sessions = list(read_stream(stream, str(file), problems, format, max_unpacked))
        except UnreadableError as error:
            if error.is_stranger:
                strangers.append(file.name)
            else:
                problems.append(error.at(str(file)))
            continue
        for session in sessions:
            name = file.name if file == path else file.relative_to(path).as_posix()
            name = name if session.line is None else f"{name}:{session.line}"
            yield session if session.id else replace(session, id=name)
    if strangers:
        count, first = len(strangers), strangers[0]
        why = (
            f"1 file is no transcript: {first}"
            if count == 1
            else f"{count:,} files are no transcripts, like {first}"
        )
        problems.append(Problem(str(path), None, why))


def _conversation_of(file: Path) -> Path:
    """Return the file, or the folder of which each file holds an event."""
    return file.parent if _EVENT.fullmatch(file.name) else file


def _open_joined(files: Sequence[Path]) -> IO[bytes]:
    """Open a file, or several of one value each as a file with a line for each."""
    if len(files) == 1:
        return open_file(files[0])
    lines = []
    for file in files:
        with open_file(file) as stream:
            lines.append(b" ".join(stream.read().splitlines()))  # JSON has no line breaks but between values
    return io.BytesIO(b"\n".join(lines))


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


def read_all(
    source: Path | IO[bytes], name: str, format: Format | None = None, max_unpacked: int = MAX_UNPACKED
) -> Reading:
    """Read everything there is in a file, a directory or a stream; `name` is what problems call it.

    Raises:
        UnreadableError: nothing, or not most of it, could be read; the text names file, line and reason of
            what was met first.
    """
    problems: list[Problem] = []
    is_directory = isinstance(source, Path) and source.is_dir()
    try:
        if isinstance(source, Path):
            sessions = tuple(read_path(source, problems, format, max_unpacked))
        else:
            sessions = tuple(read_stream(source, name, problems, format, max_unpacked))
    except UnreadableError as error:
        raise UnreadableError(str(error.at(name))) from None
    if not sessions:
        found = f"; {summed(problems)}" if problems else ""
        raise UnreadableError(f"{name}: is a directory in which no session was found{found}")
    forms = {session.form for session in sessions}
    one = sessions[0].form if len(forms) == 1 else Form.FOREIGN
    return Reading(name, Form.DIRECTORY if is_directory else one, sessions, tuple(problems))
