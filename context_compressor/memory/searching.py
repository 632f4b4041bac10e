"""Searching the whole history: keeping its index in step, off the event loop."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from context_compressor.compression.edits import message_id
from context_compressor.compression.shown import Redact
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.memory.history import Entry, History
from context_compressor.memory.places import Places, Sayings
from context_compressor.memory.state import MemoryState
from context_compressor.memory.table import MessageTable
from context_compressor.messages.msg import Msg
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import INDEX_FILE
from context_compressor.offload.guide import ROLES, is_own_tool
from context_compressor.offload.locks import watch_forks
from context_compressor.offload.store import OffloadStore
from context_compressor.search.hits import Document, Hit

if TYPE_CHECKING:
    from context_compressor.search import Found
    from context_compressor.search.index import SearchIndex

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_BATCH = 256
"""Messages that are read at a time, so that nothing holds the event loop."""
_LOOK_SECONDS = 0.05
"""How often a thread that waits for texts looks whether anybody waits for it."""


class Recall:
    """Search a history.

    The index is brought in step when it is asked: a message costs nothing until somebody searches.

    Args:
        history: the base memory.
        store: where texts go; the index of a `FileOffloadStore` stands in its directory, else in memory.
        read_ref: reads a text that left the view.
        redact: what every text goes through before the index sees it.
    """

    def __init__(
        self,
        history: History,
        store: OffloadStore,
        read_ref: Callable[[str], Awaitable[str]],
        redact: Redact | None,
    ) -> None:
        self._history = history
        self._read_ref = read_ref
        self._store = store if isinstance(store, FileOffloadStore) else None
        self._path = None if self._store is None else self._store.directory / INDEX_FILE
        self._said = Sayings(redact)
        self._places = Places(self._said)
        self._index: SearchIndex | None = None
        self._seen: MessageTable | None = None
        self._digests: dict[str, str] = {}
        self._readers: set[_Reader] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._calls = 0
        self._inherited: list[SearchIndex] = []
        watch_forks(self)

    def start_as_child(self) -> None:
        """Take over in a process that was forked: the search thread is the parent's, and so is the index.

        That is neither used here, as SQLite asks, nor closed, which could undo what the parent is writing.
        """
        if self._index is not None:
            self._inherited.append(self._index)
        self._index, self._thread, self._calls = None, None, 0

    async def search(self, query: str, limit: int, state: MemoryState, role: str | None = None) -> list[Hit]:
        """Return the passages of the history that answer a query, best first.

        Args:
            query: words, names or a question.
            limit: how many at most.
            state: in step with the history.
            role: who said it: one of `ROLES`; None for all.

        Raises:
            InvalidArgumentError: a query that is no string, a limit below 1, or no such role.
            RedactionError: the user's callable failed.
            OffloadError: this Python's SQLite has no full-text search, or the memory was closed meanwhile.
        """
        if not isinstance(query, str):
            raise InvalidArgumentError(f"query: expected a string, got {type(query).__name__}")
        if type(limit) is not int or limit < 1:
            raise InvalidArgumentError(f"limit: expected a number from 1 up, got {limit!r}")
        if role is not None and role not in ROLES:
            raise InvalidArgumentError(f"role: expected one of {', '.join(ROLES)}, got {role!r:.80}")
        reader = _Reader(self._history, self._said)
        self._readers.add(reader)
        try:
            keys = list(state.known.tokens)
            await self._take_digests(keys, state, reader)
            entries = [(key, self._digests.get(key, "")) for key in keys]
            newest = self._said.newest_request(keys)

            def last(document: Document) -> bool:
                # The request stands in the view, and earlier answers of the tools repeat what they found.
                return document.key == newest or is_own_tool(document.tool)

            among = None if role is None else self._said.said_by(role)
            ask = partial(self._ask, among=among, role=role, last=last)
            found = await self._call_index(ask, query, limit, entries, reader)
            messages = await reader.find(list(dict.fromkeys(one.document.key for one in found)))
        finally:
            # A thread cannot be cancelled: it ends when it asks for texts again.
            reader.stop()
            self._readers.discard(reader)
        ago = {key: count for count, key in enumerate(reversed(keys))}
        keyed = [(one.document.key, one) for one in found]
        places = [self._places.place(one, state, ago[key], messages.get(key)) for key, one in keyed]
        texts: dict[str, str] = {}
        for ref in dict.fromkeys(ref for place in places for ref in place.refs):
            with suppress(OffloadError):
                texts[ref] = await self._read_ref(ref)
        return await asyncio.to_thread(lambda: [self._places.hit(place, texts, query) for place in places])

    def _ask(
        self,
        query: str,
        limit: int,
        entries: Sequence[tuple[str, str]],
        reader: _Reader,
        **which: Any,
    ) -> list[Found]:
        index = self._open()
        try:
            return index.search(query, limit, entries, reader.read, **which)
        except sqlite3.Error as error:  # what is wrong with a file is mended by the index itself
            self._index = None
            raise OffloadError(
                f"the history cannot be searched: {error}; use a Python whose SQLite has FTS5"
            ) from error
        finally:
            self._take_use()

    async def forget(self, keys: Collection[str]) -> None:
        """Drop deleted messages from the index, at once."""
        for key in keys:
            self._digests.pop(key, None)
        if keys:
            await self._drop(lambda index: index.remove(keys))

    async def keep(self, keys: Collection[str]) -> None:
        """Drop from the index what is not among these messages, as a process that died may have left it."""
        await self._drop(lambda index: index.keep(keys))

    async def clear(self) -> None:
        """Drop everything from the index, at once."""
        self._digests.clear()
        self._said.start_anew()
        self._seen = None  # or the old index of the history would be held until somebody searches
        await self._drop(lambda index: index.clear())

    async def close(self) -> None:
        """Close the index, and end what is being searched; a later search opens it again."""
        for reader in self._readers:
            reader.stop()
        if self._index is not None:
            await self._call_index(self._index.close)

    async def _call_index(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function that uses the index, in a thread of this memory's own, which ends when it is idle.

        The loop's threads are few and belong to everybody. A search holds its thread while it asks the base
        memory for texts, which may need one of the loop's to find them; whoever comes meanwhile waits for it.
        """
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._calls += 1
        try:
            call = partial(copy_context().run, function, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        finally:
            self._calls -= 1
            if not self._calls:
                self._thread.shutdown(wait=False)
                self._thread = None

    async def _drop(self, drop: Callable[[SearchIndex], None]) -> None:
        """Drop something from the index, if there is one, or the index where that fails."""

        def call() -> None:
            try:
                drop(self._open())
            except sqlite3.Error as error:
                logger.warning("the search index is dropped: %s", error)
                self._index = None
                if self._path is not None:
                    self._path.unlink(missing_ok=True)
            finally:
                self._take_use()

        if self._is_there():
            await self._call_index(call)

    def _is_there(self) -> bool:
        """Tell whether there is an index, be it one that another process has left, or that nobody can see."""
        if self._index is not None or self._path is None:
            return self._index is not None
        try:
            return self._path.exists()
        except OSError:  # the index itself tells what it could not do
            return True

    def _open(self) -> SearchIndex:
        """Return the index; blocks."""
        from context_compressor.search.index import SearchIndex  # which only a search loads

        self._take_use()
        if self._index is None:
            self._index = SearchIndex(self._path)
        return self._index

    def _take_use(self) -> None:
        """Tell the store that its directory is in use, and let it count the index; blocks."""
        if self._store is not None:
            self._store.open()

    async def _take_digests(self, keys: Sequence[str], state: MemoryState, reader: _Reader) -> None:
        """Take the digests of messages that have none yet, in the order of the history."""
        if self._seen is not state.known or not getattr(self._history, "counts_changes", True):
            # The history was read anew: a message may say something else.
            self._digests.clear()
            self._said.start_anew()
            self._seen = state.known
        new = [key for key in keys if key not in self._digests]
        for start in range(0, len(new), _BATCH):
            batch = new[start : start + _BATCH]
            messages = await reader.find(batch)
            taken = await asyncio.to_thread(self._said.digests, [(key, messages.get(key)) for key in batch])
            self._digests |= taken


class _Reader:
    """Read messages of the base memory for one search; one that cannot find some is read whole, once."""

    def __init__(self, history: History, said: Sayings) -> None:
        self._history = history
        self._said = said
        self._whole: dict[str, Msg] | None = None
        self._loop = asyncio.get_running_loop()
        self._is_stopped = threading.Event()
        self._tasks: set[asyncio.Task[Mapping[str, Msg]]] = set()  # the loop itself holds none

    def stop(self) -> None:
        """Let `read` fail from now on."""
        self._is_stopped.set()

    async def find(self, keys: Sequence[str]) -> Mapping[str, Msg]:
        """Return the messages under these keys."""
        if not getattr(self._history, "tells_marks", True) and self._whole is None:  # it is always read whole
            self._whole = _messages(await self._history.read())
        found = self._whole
        if found is None:
            found = _messages(await self._history.read(ids={message_id(key) for key in keys}))
        return {key: found[key] for key in keys if key in found}

    def _begin(self, keys: Sequence[str], asked: Future[Mapping[str, Msg]]) -> None:
        """Find messages for a thread that waits, unless it has given up. Runs in the loop."""

        def tell(task: asyncio.Task[Mapping[str, Msg]]) -> None:
            self._tasks.discard(task)
            if task.cancelled():
                self.stop()
            elif (error := task.exception()) is not None:
                asked.set_exception(error)
            else:
                asked.set_result(task.result())

        if not self._is_stopped.is_set():
            task = self._loop.create_task(self.find(keys))
            self._tasks.add(task)
            task.add_done_callback(tell)

    def read(self, keys: Sequence[str]) -> list[Document]:
        """Return the texts of messages. For another thread than the loop's, which has to be running.

        Raises:
            OffloadError: the search was abandoned.
        """
        asked: Future[Mapping[str, Msg]] = Future()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin, keys, asked)
        while not (asked.done() or self._is_stopped.is_set() or not self._loop.is_running()):
            wait([asked], timeout=_LOOK_SECONDS)
        if not asked.done():
            raise OffloadError("the memory was closed, or the search given up")
        messages = asked.result()
        return [document for key, msg in messages.items() for document in self._said.documents(key, msg)]


def _messages(entries: Sequence[Entry]) -> dict[str, Msg]:
    return {entry.key: entry.msg for entry in entries if entry.msg is not None}
