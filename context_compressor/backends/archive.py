"""The form of a session's archive: a file of JSON lines, written whole or not at all, and checked whole.

docs/session-archive.schema.json has the form of a line.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

from pydantic import ValidationError

from context_compressor.backends.records import pack_ascii, to_edit, to_tokens, unpack_ascii
from context_compressor.backends.snapshots import Snapshot
from context_compressor.compression.edits import Edit, edit_to_dict, kept_refs_of, message_id
from context_compressor.compression.ledger import Ledger
from context_compressor.errors import ContextCompressorError, InvalidMessageError, InvalidStateError
from context_compressor.memory.history import Entry, Head
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.msg import Msg
from context_compressor.offload.folders import replacing
from context_compressor.offload.store import REF_PATTERN, ref_of

FORMAT = "context-compressor session"
VERSION = 1
MAX_BYTES = 512 * 2**20
"""Bytes that the lines of an archive may take in memory: enough for some 200,000 messages, or one of 300
MB."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_PER_BYTE = 24
"""Bytes of memory that a byte outside of strings may take: "{}," makes an object."""
_GZIP = b"\x1f\x8b"


class ArchiveError(ContextCompressorError, ValueError):
    """Report a file that is no whole archive of a session; the text names file and line."""


@dataclass(slots=True)
class Archived:
    """What an archive holds, but for its texts, which `texts_of` reads."""

    user_id: str
    session_id: str
    snapshot: Snapshot
    texts: list[str] = field(default_factory=list)
    """Refs of the texts that are in it."""
    missing: list[str] = field(default_factory=list)
    """Refs of texts that were nowhere any more when it was written."""


class ArchiveWriter:
    """Write the lines of one archive."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hashed = hashlib.sha256()

    def write_session(self, user_id: str, session_id: str, snapshot: Snapshot) -> None:
        """Write all but the texts."""
        self._write(
            "session",
            format=FORMAT,
            version=VERSION,
            user_id=user_id,
            session_id=session_id,
            number=snapshot.head.number,
            messages=len(snapshot.entries),
            edits=len(snapshot.edits),
            summary=snapshot.head.summary,
            learnt=None if snapshot.learnt is None else dict(snapshot.learnt),
        )
        for entry in snapshot.entries:
            assert entry.msg is not None
            self._write(
                "message",
                key=entry.key,
                marks=list(entry.marks),
                tokens=to_tokens(entry.tokens),
                msg=entry.msg.to_dict(),
            )
        for edit in snapshot.edits:
            self._write("edit", edit=edit_to_dict(edit))

    def write_text(self, ref: str, text: str) -> None:
        """Write one text."""
        self._write("text", ref=ref, text=text)

    def write_end(self, missing: list[str]) -> None:
        """Write the last line, which vouches for all before it."""
        self._file.write(_line({"type": "end", "missing": missing, "sha256": self._hashed.hexdigest()}))

    def _write(self, type_: str, **fields: Any) -> None:
        line = _line({"type": type_, **fields})
        self._hashed.update(line)
        self._file.write(line)


def _line(record: dict[str, Any]) -> bytes:
    return f"{pack_ascii(record)}\n".encode("ascii")


@contextmanager
def writing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes its name when all is written, durably; gzipped where that ends in .gz."""
    with replacing(path) as file:
        if path.suffix == ".gz":
            # No name and no time in it: the same session gives the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield file


# Reading


def read_archive(path: Path, max_bytes: int = MAX_BYTES) -> Archived:
    """Read and check a whole archive: its form, every text's hash, and that nothing is missing.

    Args:
        path: the archive; a file, since it is read twice.
        max_bytes: what its lines may take in memory, about, unpacked.

    Raises:
        ArchiveError: it is none, or was cut or changed; the text names the place.
        OSError: it cannot be read.
    """
    reader = _Reader(path)
    for number, record, hashed in _records(path, max_bytes):
        try:
            reader.take(record, hashed)
        except (InvalidStateError, InvalidMessageError, ValidationError, _Fault) as error:
            told = error
            if isinstance(error, ValidationError):
                first = error.errors(include_url=False)[0]
                place = ".".join(str(step) for step in first["loc"] if step not in ("stub", "segment"))
                what = first["msg"].removeprefix("Value error, ")
                told = _Fault(f"edit.{place}: {what}" if place else f"edit: {what}")
            raise ArchiveError(f"{path}, line {number}: {told}") from error
    try:
        return reader.whole()
    except (InvalidStateError, _Fault) as error:
        raise ArchiveError(f"{path}: {error}") from error


def texts_of(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, str]]:
    """Yield the texts of an archive that was checked, with their refs."""
    for _, record, _ in _records(path, max_bytes):
        if record["type"] == "text":
            yield record["ref"], record["text"]


class _Fault(ValueError):
    """What is wrong with a line."""


def _records(path: Path, max_bytes: int) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield the lines with their numbers, and the hash of all before each."""
    if path.exists() and not path.is_file():
        raise ArchiveError(f"{path}: not a regular file; an archive is read twice, so a pipe will not do")
    hashed, number, left = hashlib.sha256(), 0, max_bytes
    with path.open("rb") as raw:
        packed = raw.read(2) == _GZIP
        raw.seek(0)
        file: IO[bytes] = cast(IO[bytes], gzip.GzipFile(fileobj=raw)) if packed else raw
        while True:
            try:
                line = file.readline(left + 1)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ArchiveError(
                    f"{path}, behind line {number}: it was cut or changed ({error})"
                ) from error
            if not line:
                return
            number += 1
            try:
                left -= len(line)
                if left >= 0:
                    left -= _PER_BYTE * len(_STRING.sub(b"", line))
                if left < 0:
                    raise _Fault(
                        f"the lines so far take more than {max_bytes:,} bytes of memory; allow more by "
                        "max_bytes, or --max-unpacked"
                    )
                if not line.endswith(b"\n"):
                    raise _Fault("it was cut: the line does not end")
                record = unpack_ascii(line.decode("ascii"))
                if not isinstance(record.get("type"), str):
                    raise _Fault("it has no type")
            except (ValueError, TypeError, RecursionError, InvalidStateError) as error:
                told = error if isinstance(error, _Fault) else f"no line of an archive ({error})"
                raise ArchiveError(f"{path}, line {number}: {told}") from error
            yield number, record, hashed.hexdigest()
            hashed.update(line)


_ORDER = ("session", "message", "edit", "text", "end")


class _Reader:
    """Take up the lines of an archive, in order."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._step = 0
        self._header: Mapping[str, Any] | None = None
        self._entries: dict[str, Entry] = {}
        self._edits: list[Edit] = []
        self._texts: dict[str, None] = {}
        self._missing: list[str] | None = None

    def take(self, record: Mapping[str, Any], hashed: str) -> None:
        """Take up a line; `hashed`: of all before it."""
        kind = record["type"]
        if self._header is None and (kind != "session" or record.get("format") != FORMAT):
            raise _Fault(f"this is no archive of a session: expected the format {FORMAT!r}")
        if self._header is not None and kind == "session":
            raise _Fault("a second session; an archive holds one")
        if kind not in _ORDER or _ORDER.index(kind) < self._step or self._missing is not None:
            raise _Fault(f"a line of the type {kind!r} does not belong here")
        self._step = _ORDER.index(kind)
        getattr(self, f"_take_{kind}")(record, hashed)

    def _take_session(self, record: Mapping[str, Any], _: str) -> None:
        if record.get("version") != VERSION:
            raise _Fault(f"version: this release reads {VERSION}, the archive has {record.get('version')!r}")
        for name in ("user_id", "session_id", "summary"):
            _get(record, name, str)
        for name in ("number", "messages", "edits"):
            if _get(record, name, int) < 0:
                raise _Fault(f"{name}: expected a number from 0 up")
        learnt = _get(record, "learnt", dict, optional=True)
        if learnt is not None:
            _check_learnt(learnt)
        self._header = record

    def _take_message(self, record: Mapping[str, Any], _: str) -> None:
        key, msg = _get(record, "key", str), Msg.from_dict(_get(record, "msg", dict))
        if key != msg.id and not (message_id(key) == msg.id and key.rpartition("\0")[2].isdigit()):
            raise _Fault(f"key: {key!r} is no key of a message with the id {msg.id!r}")
        if key in self._entries:
            raise _Fault(f"key: a second message {key!r}")
        marks, tokens = _get(record, "marks", list), _get(record, "tokens", list, optional=True)
        if not all(isinstance(mark, str) for mark in marks):
            raise _Fault("marks: expected strings")
        counted = None
        if tokens is not None:
            if [type(one) for one in tokens] != [str, int] or tokens[1] < 0:
                raise _Fault("tokens: expected who counted, and a number from 0 up")
            counted = (tokens[0], tokens[1])
        place = len(self._entries) + 1
        self._entries[key] = Entry(place, 1, key, msg, tuple(marks), counted)

    def _take_edit(self, record: Mapping[str, Any], _: str) -> None:
        self._edits.append(to_edit(_get(record, "edit", dict)))

    def _take_text(self, record: Mapping[str, Any], _: str) -> None:
        ref, text = _check_ref(record.get("ref"), "ref"), _get(record, "text", str)
        if ref_of(text) != ref:
            raise _Fault(f"text: it hashes to {ref_of(text)}, not to {ref}: it was changed")
        if ref in self._texts:
            raise _Fault(f"ref: a second text {ref}")
        self._texts[ref] = None

    def _take_end(self, record: Mapping[str, Any], hashed: str) -> None:
        if record.get("sha256") != hashed:
            raise _Fault("sha256: it is not that of the lines before: the archive was changed")
        self._missing = [_check_ref(ref, "missing") for ref in _get(record, "missing", list)]

    def whole(self) -> Archived:
        """Return all, if all is there."""
        header = self._header
        if header is None:
            raise _Fault("this is no archive of a session: it is empty")
        if self._missing is None:
            raise _Fault("it was cut: the last line is missing")
        for name, found in (("messages", len(self._entries)), ("edits", len(self._edits))):
            if header[name] != found:
                raise _Fault(f"{name}: {header[name]} were announced, {found} are there")
        _check_ledger(self._edits, header["learnt"] or {})
        head = Head(header["number"], len(self._entries), header["summary"])
        snapshot = Snapshot(head, list(self._entries.values()), self._edits, header["learnt"])
        named = set(snapshot.refs)
        for ref in self._texts:
            if ref not in named:
                raise _Fault(f"{ref}: the ledger does not name this text")
        for ref in snapshot.refs:
            if ref not in self._texts and ref not in snapshot.pending and ref not in self._missing:
                raise _Fault(f"{ref}: the ledger names this text, and it is not there")
        return Archived(
            header["user_id"], header["session_id"], snapshot, list(self._texts), list(self._missing)
        )


def _check_learnt(learnt: Mapping[str, Any]) -> None:
    """Refuse what no reader of a ledger could use; what later releases add is kept."""
    for ref in _get(learnt, "pending", list):
        _check_ref(ref, "learnt.pending")
    try:
        Decisions.from_dict(_get(learnt, "decisions", dict))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _Fault(f"learnt.decisions: {error}") from error
    place = _get(learnt, "summary_place", list, optional=True)
    if place is not None and ([type(one) for one in place] != [str, int] or place[1] < 0):
        raise _Fault("learnt.summary_place: expected an id, and a number from 0 up")


def _check_ledger(edits: list[Edit], learnt: Mapping[str, Any]) -> None:
    """Refuse edits that do not fit together."""
    try:
        ordered = Ledger().followed_by(edits, learnt).to_dict()
    except (KeyError, ValueError, TypeError) as error:
        raise _Fault(f"the edits do not fit together: {error!r}") from error
    names = [ref for edit in edits for ref in kept_refs_of(edit)]
    if len(ordered["entries"]) != len(edits) or not all(map(REF_PATTERN.fullmatch, names)):
        raise _Fault("the edits do not fit together: two have one name")


def _get(record: Mapping[str, Any], name: str, kind: type, *, optional: bool = False) -> Any:
    value = record.get(name)
    if optional and value is None and name in record:
        return None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _Fault(f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _check_ref(ref: object, name: str) -> str:
    if not isinstance(ref, str) or not REF_PATTERN.fullmatch(ref):
        raise _Fault(f"{name}: {ref!r:.100} is no ref")
    return ref
