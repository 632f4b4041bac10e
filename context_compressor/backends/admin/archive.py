"""Archives of sessions: files of JSON lines, from any database into any other; whole, or refused.

docs/session-archive.schema.json has the form of a line.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Annotated, Any, cast

from pydantic import (
    BeforeValidator,
    Field,
    InstanceOf,
    StrictInt,
    TypeAdapter,
    ValidationError,
)

from context_compressor.backends.admin.opening import sessions_of
from context_compressor.backends.admin.sessions import SessionDirectory, named_by
from context_compressor.backends.records import pack_ascii, to_tokens, unpack_ascii
from context_compressor.core.edits import (
    Edit,
    Ref,
    SavedEdit,
    Text,
    edit_to_dict,
    kept_refs_of,
    message_id,
)
from context_compressor.core.ledger import Ledger
from context_compressor.errors import (
    ConflictError,
    ContextCompressorError,
    InvalidArgumentError,
    InvalidMessageError,
    InvalidStateError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
    OffloadWriteError,
    SessionNotFoundError,
)
from context_compressor.memory.budget import RecordedBudget
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.history import (
    Change,
    Entry,
    Head,
    History,
    ListHistory,
    Record,
    Restored,
    SetSummary,
    is_same,
)
from context_compressor.memory.saved import fault_of
from context_compressor.messages.exchanges import Decisions
from context_compressor.messages.msg import Msg
from context_compressor.offload.folders import replacing
from context_compressor.offload.store import (
    InMemoryOffloadStore,
    KeepingStore,
    OffloadStore,
    read_text,
    ref_of,
    write_text,
)

FORMAT = "context-compressor session"
VERSION = 1
MAX_BYTES = 512 * 2**20
"""Bytes that the lines of an archive may take in memory: enough for some 200,000 messages, or one of 300
MB."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?', re.DOTALL)
_PER_BYTE = 24
"""Bytes of memory that a byte outside of strings may take: "{}," makes an object."""
_GZIP = b"\x1f\x8b"
_STORE_SECONDS = 300.0
"""What a store may take for one text."""
_ATTEMPTS = 20
"""How often a session is read that others write to meanwhile."""
_ANY_TOKENS = 1_000_000_000
"""A budget that no view reaches: what is shown is what the ledger says, and nothing is compressed for it."""


class ArchiveError(ContextCompressorError, ValueError):
    """Report a file that is no whole archive of a session; the text names file and line."""


# A session at one moment


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A session as it stood at one moment."""

    head: Head
    entries: Sequence[Entry]
    """The messages, in order."""
    edits: Sequence[Edit]
    """The edits that hold, in order."""
    learnt: Mapping[str, Any] | None
    """What the newest of them said beside."""

    @property
    def refs(self) -> list[str]:
        """The refs that its ledger names, words of merged segments included."""
        return list(dict.fromkeys(ref for edit in self.edits for ref in kept_refs_of(edit)))

    def ledger(self) -> Ledger:
        """Return its ledger."""
        return Ledger().followed_by(self.edits, self.learnt or {})

    @property
    def pending(self) -> set[str]:
        """The refs whose texts no store took yet: they are made from the history."""
        return set((self.learnt or {}).get("pending", ()))

    def changes(self) -> list[Change]:
        """Return the changes that make an empty history say the same."""
        changes: list[Change] = [
            Restored(entry.msg, entry.marks, True, entry.tokens, key=entry.key)
            for entry in self.entries
            if entry.msg is not None
        ]
        if self.head.summary:
            changes.append(SetSummary(self.head.summary))
        if self.edits or self.learnt:
            changes.append(Record(self.edits, self.learnt or {}))
        return changes


async def take_snapshot(history: History) -> Snapshot:
    """Read a session whole.

    Raises:
        ConflictError: others write to it all the time.
    """
    head = await history.head()
    for _ in range(_ATTEMPTS):
        entries, ledger = await history.read(), await history.ledger()
        after = await history.head()
        if is_same(after.number, head.number):
            edits = [edit for entry in ledger for edit in entry.edits]
            learnt = next((entry.learnt for entry in reversed(ledger) if entry.learnt), None)
            return Snapshot(head, entries, edits, learnt)
        head = after
    raise ConflictError("others write to the session all the time; try again", number=head.number)


async def shown(snapshot: Snapshot, store: OffloadStore | None = None) -> CompressedMemory:
    """Return a memory that shows what a session's view was, and changes neither session nor store."""
    history = ListHistory()
    await history.write(snapshot.changes())
    texts = KeepingStore(InMemoryOffloadStore() if store is None else store)
    texts.write = _refuse
    return CompressedMemory(
        history,
        store=texts,
        max_total_tokens=_ANY_TOKENS,
        max_tool_message_tokens=_ANY_TOKENS - 1,
        background_ratio=None,
    )


async def _refuse(text: str) -> str:  # noqa: ARG001
    raise OffloadWriteError("this store is read only")


# Export


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


async def export_session(base: object, store: OffloadStore | None, path: str | Path) -> Archived:
    """Write a session, its ledger, and the texts that the ledger names into one file; return what is in it.

    A text that the store does not have any more is made from the history; where that gives it no more, the
    archive says so.

    Args:
        base: a `SQLAlchemyMemory` or a `RedisMemory`.
        store: where its texts are; None: nowhere, and all have to be made from the history.
        path: the file, written as a whole or not at all; gzipped where its name ends in .gz.

    Raises:
        SessionNotFoundError: there is no such session.
        OffloadNotFoundError: there is no store, and the history does not give all texts.
        OffloadError: the store failed.
        OSError: the file could not be written.
    """
    directory, user_id, session_id = sessions_of(base)
    snapshot = await take_snapshot(directory.history(user_id, session_id))
    if not snapshot.head.number:
        raise SessionNotFoundError(f"base: there is no session {session_id!r} of user {user_id!r}")
    archived, texts = Archived(user_id, session_id, snapshot), _Texts(snapshot, store)
    with _writing(Path(path)) as file:
        hashed = hashlib.sha256()

        def write(lines: Iterator[dict[str, Any]]) -> None:
            for line in lines:
                data = f"{pack_ascii(line)}\n".encode("ascii")
                hashed.update(data)
                file.write(data)

        await asyncio.to_thread(write, _lines_of(archived))
        for ref in snapshot.refs:
            text = await texts.read(ref)
            if text is not None:
                await asyncio.to_thread(write, iter([{"type": "text", "ref": ref, "text": text}]))
                archived.texts.append(ref)
            elif ref not in snapshot.pending:
                archived.missing.append(ref)
        if archived.missing and store is None:
            raise OffloadNotFoundError(
                f"the history does not give {len(archived.missing)} texts that the session's ledger names; "
                "name the store that has them"
            )
        write(iter([{"type": "end", "missing": archived.missing, "sha256": hashed.hexdigest()}]))
    return archived


@contextmanager
def _writing(path: Path) -> Iterator[IO[bytes]]:
    """Give a file that takes its name when all is written, durably; gzipped where that ends in .gz."""
    with replacing(path) as file:
        if path.suffix == ".gz":
            # No name and no time in it: the same session gives the same file.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield cast(IO[bytes], packed)
        else:
            yield file


def _lines_of(archived: Archived) -> Iterator[dict[str, Any]]:
    """Yield all lines but those of texts, and the last one."""
    snapshot = archived.snapshot
    yield {
        "type": "session",
        "format": FORMAT,
        "version": VERSION,
        "user_id": archived.user_id,
        "session_id": archived.session_id,
        "number": snapshot.head.number,
        "messages": len(snapshot.entries),
        "edits": len(snapshot.edits),
        "summary": snapshot.head.summary,
        "learnt": None if snapshot.learnt is None else dict(snapshot.learnt),
    }
    for entry in snapshot.entries:
        assert entry.msg is not None
        said = {"marks": list(entry.marks), "tokens": to_tokens(entry.tokens), "msg": entry.msg.to_dict()}
        yield {"type": "message", "key": entry.key, **said}
    for edit in snapshot.edits:
        yield {"type": "edit", "edit": edit_to_dict(edit)}


class _Texts:
    """Read texts from the store, or else make them from the messages of a snapshot."""

    def __init__(self, snapshot: Snapshot, store: OffloadStore | None) -> None:
        self._snapshot, self._store = snapshot, store
        self._memory: CompressedMemory | None = None

    async def read(self, ref: str) -> str | None:
        """Return a text; None where it is nowhere any more, or never was stored."""
        if self._store is not None:
            with suppress(OffloadNotFoundError, OffloadCorruptError):
                return await read_text(self._store, ref, _STORE_SECONDS)
        if ref in self._snapshot.pending:
            return None  # it is made from the history wherever the session lives
        if self._memory is None:
            self._memory = await shown(self._snapshot)
            await self._memory.get_memory()
        try:
            text = await self._memory.read_ref(ref)
        except OffloadError:
            return None
        return text if ref_of(text) == ref else None


# Import


async def import_session(
    path: str | Path,
    base: object,
    store: OffloadStore | None,
    *,
    user_id: str | None = None,
    session_id: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> Archived:
    """Make a session of an archive: all of it or nothing; return what the archive holds.

    Texts are stored first, then the session is made in one transaction or script. Where that fails, the texts
    that were stored for it are removed again.

    Args:
        path: the archive. All of it is checked before anything is written.
        base: a `SQLAlchemyMemory` or a `RedisMemory` whose session it becomes; or a `SessionDirectory`.
        store: where its texts go; may be None where the archive has none.
        user_id: with a directory, whose it is to be; the archive's when None.
        session_id: with a directory, what it is to be called; the archive's name when None.
        max_bytes: what the archive's lines may take in memory, about, unpacked.

    Raises:
        ArchiveError: it is no whole archive; the text names the place.
        ConflictError: the session is there already.
        InvalidArgumentError: there are texts and no store.
        OffloadError: the store refused a text.
        OSError: the file could not be read.
    """
    if isinstance(base, SessionDirectory):
        directory = base
    else:
        directory, user_id, session_id = sessions_of(base)
    file = Path(path)
    archived = await asyncio.to_thread(read_archive, file, max_bytes)
    user = archived.user_id if user_id is None else user_id
    name = archived.session_id if session_id is None else session_id
    history = directory.history(user, name)
    head = await history.head()
    there = ConflictError(
        f"there is a session {name!r} of user {user!r} already; delete it, or import under another name",
        number=head.number,
    )
    if head.number:
        raise there
    if archived.texts and store is None:
        raise InvalidArgumentError(f"store: the archive has {len(archived.texts)} texts: say where they go")
    stored: list[str] = []
    try:
        if store is not None:
            held = set(await store.refs())
            for ref, text in texts_of(file, max_bytes):
                if ref not in held:
                    stored.append(ref)
                await write_text(store, text, ref, _STORE_SECONDS)
        try:
            await directory.restore(user, name, archived.snapshot.changes())
        except ConflictError as error:
            raise there from error
    except BaseException:
        # What a faster import of the session names stays; what fails here a collection mends.
        with suppress(Exception):
            named = await named_by(history) if stored else set()
            for ref in stored:
                if store is not None and ref not in named:
                    await store.delete(ref)
        raise
    return archived


_Number = Annotated[StrictInt, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class _Learnt:
    pending: list[Ref]
    decisions: Annotated[InstanceOf[Decisions], BeforeValidator(Decisions.from_dict)]
    summary_place: tuple[Text, _Number] | None
    calibration: RecordedBudget | None = None


@dataclass(frozen=True, slots=True)
class _Session:
    user_id: Text
    session_id: Text
    number: _Number
    messages: _Number
    edits: _Number
    summary: Text
    learnt: _Learnt | None


@dataclass(frozen=True, slots=True)
class _Message:
    key: Text
    marks: list[Text]
    tokens: tuple[Text, _Number] | None
    msg: InstanceOf[dict]  # type: ignore[type-arg]


@dataclass(frozen=True, slots=True)
class _Edit:
    edit: SavedEdit


@dataclass(frozen=True, slots=True)
class _TextLine:
    ref: Ref
    text: Text


@dataclass(frozen=True, slots=True)
class _End:
    missing: list[Ref]
    sha256: Text


_LINES: dict[str, type] = {
    "session": _Session,
    "message": _Message,
    "edit": _Edit,
    "text": _TextLine,
    "end": _End,
}
"""In their order."""


@cache  # made for the first archive that is read
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_LINES[kind])


class _Fault(ValueError):
    """What is wrong with a line."""


def read_archive(path: Path, max_bytes: int = MAX_BYTES) -> Archived:
    """Read and check a whole archive: its form, every text's hash, and that nothing is missing.

    Args:
        path: the archive; a file, since it is read twice.
        max_bytes: what its lines may take in memory, about, unpacked.

    Raises:
        ArchiveError: it is none, or was cut or changed; the text names the place.
        OSError: it cannot be read.
    """
    reader = _Reader()
    for number, record, hashed in _records(path, max_bytes):
        try:
            reader.take(record, hashed)
        except ValidationError as error:
            raise ArchiveError(f"{path}, line {number}: {fault_of(error)}") from error
        except (InvalidStateError, InvalidMessageError, _Fault) as error:
            raise ArchiveError(f"{path}, line {number}: {error}") from error
    try:
        return reader.whole()
    except (InvalidStateError, _Fault) as error:
        raise ArchiveError(f"{path}: {error}") from error


def texts_of(path: Path, max_bytes: int = MAX_BYTES) -> Iterator[tuple[str, str]]:
    """Yield the texts of an archive that was checked, with their refs."""
    for _, record, _ in _records(path, max_bytes):
        if record["type"] == "text":
            yield record["ref"], record["text"]


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


class _Reader:
    """Take up the lines of an archive, in order."""

    def __init__(self) -> None:
        self._step = 0
        self._header: _Session | None = None
        self._learnt: dict[str, Any] | None = None
        self._entries: dict[str, Entry] = {}
        self._edits: list[Edit] = []
        self._texts: dict[str, None] = {}
        self._end: _End | None = None

    def take(self, record: Mapping[str, Any], hashed: str) -> None:
        """Take up a line; `hashed`: of all before it."""
        kind = record["type"]
        if self._header is None and (kind != "session" or record.get("format") != FORMAT):
            raise _Fault(f"this is no archive of a session: expected the format {FORMAT!r}")
        if self._header is not None and kind == "session":
            raise _Fault("a second session; an archive holds one")
        order = list(_LINES)
        if kind not in order or order.index(kind) < self._step or self._end is not None:
            raise _Fault(f"a line of the type {kind!r} does not belong here")
        if kind == "session" and record.get("version") != VERSION:
            raise _Fault(f"version: this release reads {VERSION}, the archive has {record.get('version')!r}")
        self._step = order.index(kind)
        match _adapter(kind).validate_python(record):
            case _Session() as header:
                # As it is: what later releases add is kept.
                self._header, self._learnt = header, record["learnt"]
            case _Message() as line:
                self._take_message(line)
            case _Edit(edit=edit):
                self._edits.append(edit)
            case _TextLine(ref=ref, text=text):
                if ref_of(text) != ref:
                    raise _Fault(f"text: it hashes to {ref_of(text)}, not to {ref}: it was changed")
                if ref in self._texts:
                    raise _Fault(f"ref: a second text {ref}")
                self._texts[ref] = None
            case _End() as end:
                if end.sha256 != hashed:
                    raise _Fault("sha256: it is not that of the lines before: the archive was changed")
                self._end = end

    def _take_message(self, line: _Message) -> None:
        key, msg = line.key, Msg.from_dict(line.msg)
        if key != msg.id and not (message_id(key) == msg.id and key.rpartition("\0")[2].isdigit()):
            raise _Fault(f"key: {key!r} is no key of a message with the id {msg.id!r}")
        if key in self._entries:
            raise _Fault(f"key: a second message {key!r}")
        place = len(self._entries) + 1
        self._entries[key] = Entry(place, 1, key, msg, tuple(line.marks), line.tokens)

    def whole(self) -> Archived:
        """Return all, if all is there."""
        header, end = self._header, self._end
        if header is None:
            raise _Fault("this is no archive of a session: it is empty")
        if end is None:
            raise _Fault("it was cut: the last line is missing")
        for name, announced, found in (
            ("messages", header.messages, self._entries),
            ("edits", header.edits, self._edits),
        ):
            if announced != len(found):
                raise _Fault(f"{name}: {announced} were announced, {len(found)} are there")
        try:
            ordered = Ledger().followed_by(self._edits, self._learnt or {}).entries
        except (KeyError, ValueError, TypeError) as error:
            raise _Fault(f"the edits do not fit together: {error!r}") from error
        if len(ordered) != len(self._edits):
            raise _Fault("the edits do not fit together: two have one name")
        head = Head(header.number, len(self._entries), header.summary)
        snapshot = Snapshot(head, list(self._entries.values()), self._edits, self._learnt)
        refs = dict.fromkeys(snapshot.refs)
        for ref in self._texts:
            if ref not in refs:
                raise _Fault(f"{ref}: the ledger does not name this text")
        for ref in refs:
            if ref not in self._texts and ref not in snapshot.pending and ref not in end.missing:
                raise _Fault(f"{ref}: the ledger names this text, and it is not there")
        return Archived(header.user_id, header.session_id, snapshot, list(self._texts), end.missing)
