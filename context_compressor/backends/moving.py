"""Sessions on their way: from a database into an archive, and from there into any other."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from context_compressor.backends.archive import (
    MAX_BYTES,
    Archived,
    ArchiveWriter,
    read_archive,
    texts_of,
    writing,
)
from context_compressor.backends.opening import sessions_of
from context_compressor.backends.sessions import SessionDirectory
from context_compressor.backends.snapshots import Snapshot, shown, take_snapshot
from context_compressor.compression.edits import kept_refs_of
from context_compressor.errors import (
    ConflictError,
    InvalidArgumentError,
    OffloadCorruptError,
    OffloadError,
    OffloadNotFoundError,
)
from context_compressor.memory.compressed import CompressedMemory
from context_compressor.memory.history import History
from context_compressor.offload.store import OffloadStore, read_text, ref_of, write_text

_STORE_SECONDS = 300.0
"""What a store may take for one text."""


async def export_session(base: object, store: OffloadStore | None, path: str | Path) -> Archived:
    """Write a session, its ledger, and the texts that the ledger names into one file; return what is in it.

    A text that the store does not have any more is made from the history; where that gives it no more, the
    archive says so.

    Args:
        base: a `SQLAlchemyMemory` or a `RedisMemory`.
        store: where its texts are; None: nowhere, and all have to be made from the history.
        path: the file, written as a whole or not at all; gzipped where its name ends in .gz.

    Raises:
        InvalidArgumentError: there is no such session.
        OffloadNotFoundError: there is no store, and the history does not give all texts.
        OffloadError: the store failed.
        OSError: the file could not be written.
    """
    directory, user_id, session_id = sessions_of(base)
    snapshot = await take_snapshot(directory.history(user_id, session_id))
    if not snapshot.head.number:
        raise InvalidArgumentError(f"base: there is no session {session_id!r} of user {user_id!r}")
    archived = Archived(user_id, session_id, snapshot)
    texts = _Texts(snapshot, store)
    with writing(Path(path)) as file:
        writer = ArchiveWriter(file)
        await asyncio.to_thread(writer.write_session, user_id, session_id, snapshot)
        for ref in snapshot.refs:
            text = await texts.read(ref)
            if text is not None:
                await asyncio.to_thread(writer.write_text, ref, text)
                archived.texts.append(ref)
            elif ref not in snapshot.pending:
                archived.missing.append(ref)
        if archived.missing and store is None:
            raise OffloadNotFoundError(
                f"the history does not give {len(archived.missing)} texts that the session's ledger names; "
                "name the store that has them"
            )
        writer.write_end(archived.missing)
    return archived


class _Texts:
    """Read texts from the store, or else make them from the messages of a snapshot."""

    def __init__(self, snapshot: Snapshot, store: OffloadStore | None) -> None:
        self._snapshot = snapshot
        self._store = store
        self._memory: CompressedMemory | None = None

    async def read(self, ref: str) -> str | None:
        """Return a text; None where it is nowhere any more, or never was stored."""
        if self._store is not None:
            with suppress(OffloadNotFoundError, OffloadCorruptError):
                return await read_text(self._store, ref, _STORE_SECONDS)
        if ref in self._snapshot.pending:
            return None  # it is made from the history wherever the session lives
        if self._memory is None:
            self._memory = shown(self._snapshot)
            await self._memory.get_memory()
        try:
            text = await self._memory.read_ref(ref)
        except OffloadError:
            return None
        return text if ref_of(text) == ref else None


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
    head = await directory.history(user, name).head()
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
        if store is not None:
            await _take_back(store, stored, directory.history(user, name))
        raise
    return archived


async def _take_back(store: OffloadStore, refs: list[str], history: History) -> None:
    """Remove texts again, unless a faster import of the session names them; what fails a collection mends."""
    with suppress(Exception):
        named = {
            ref for entry in await history.ledger() for edit in entry.edits for ref in kept_refs_of(edit)
        }
        for ref in refs:
            if ref not in named:
                await store.delete(ref)
