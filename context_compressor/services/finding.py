"""Searching all sessions of a user: one index for each user, in memory, kept up by the heads of histories."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from context_compressor.backends.records import Standing, digest
from context_compressor.compression.edits import message_id
from context_compressor.errors import OffloadError
from context_compressor.memory.history import Entry, History, continues, is_same
from context_compressor.memory.loops import LoopLock
from context_compressor.memory.places import Sayings
from context_compressor.messages.msg import Msg
from context_compressor.offload.locks import watch_forks
from context_compressor.search import Document

if TYPE_CHECKING:
    from context_compressor.search.index import SearchIndex

T = TypeVar("T")

_STEM = 33
"""Characters before the key of a message in the index: they stand for its session."""
_BATCH = 256
"""Messages whose texts are read at a time."""
_AT_ONCE = 2_000
"""Messages that are held while an index is built."""
_LOOK_SECONDS = 0.05
"""How often a thread that waits for texts looks whether anybody waits for it."""
_PASSAGES = 3
"""How many passages are looked for, for each message that is asked for: several may be of one."""

ReadTexts = Callable[[Sequence[str]], Iterable[Document]]
Look = Callable[[str, str], History]
"""Returns the history of a user's session."""


class _Known(NamedTuple):
    """What is known of a message, to put it in order."""

    timestamp: str
    place: float | Fraction
    digest: str


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2, thread_name_prefix="memory-search")


@dataclass(slots=True, eq=False)
class _Session:
    """What the index has of a session."""

    name: str
    stem: str
    """How the keys of its messages begin in the index."""
    number: int = 0
    said: Sayings = field(default_factory=lambda: Sayings(None))
    known: dict[str, _Known] = field(default_factory=dict)


class Finder:
    """Search the sessions of users.

    Args:
        look: returns histories.
        most: messages in all indexes together; beyond that they are let go, the one first that was not used
            for longest.
        idle_seconds: after which an index that is not used is let go.
    """

    def __init__(self, look: Look, most: int, idle_seconds: float) -> None:
        self._look, self._most, self._idle = look, most, idle_seconds
        self._users: OrderedDict[str, _UserIndex] = OrderedDict()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._threads = _threads()
        self._inherited: list[OrderedDict[str, _UserIndex]] = []
        self._is_closed = False
        watch_forks(self)

    def start_as_child(self) -> None:
        """Start anew in a forked process: threads and indexes belong to the parent."""
        self._inherited.append(self._users)
        self._users, self._timers, self._threads = OrderedDict(), {}, _threads()

    async def search(self, user: str, query: str, limit: int, standings: Sequence[Standing]) -> list[Msg]:
        """Return the messages that answer a query, best first.

        Args:
            user: whose sessions.
            query: words, names or a question.
            limit: how many at most.
            standings: where all sessions stand.
        """
        index = self._users.get(user)
        if index is None:
            index = self._users[user] = _UserIndex(user, self)
        self._users.move_to_end(user)
        try:
            return await index.search(query, limit, standings)
        finally:
            self._bound(user)

    async def forget(self, user: str, sessions: Collection[str] | None) -> None:
        """Drop sessions from the index of a user at once, or all that it has."""
        index = self._users.get(user)
        if index is None:
            return
        if sessions is None:
            self._let_go(user)
        else:
            await index.forget(sessions)

    async def close(self) -> None:
        """End what is being searched, and let go of all indexes."""
        self._is_closed = True
        for user in list(self._users):
            self._let_go(user)
        self._threads.shutdown(wait=False)

    # For the indexes

    def history(self, user: str, session: str) -> History:
        """Return the history of a session."""
        return self._look(user, session)

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Run something in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def close_index(self, index: SearchIndex) -> None:
        """Close an index when nobody uses it: a search that was given up may go on, and need the loop."""
        with suppress(RuntimeError):  # all is closed
            self._threads.submit(index.close)

    @property
    def is_closed(self) -> bool:
        """Whether nobody waits for anything any more."""
        return self._is_closed

    def _bound(self, user: str) -> None:
        if self._is_closed:
            return
        if (timer := self._timers.pop(user, None)) is not None:
            timer.cancel()
        if user in self._users:
            self._timers[user] = asyncio.get_running_loop().call_later(self._idle, self._let_go, user)
        total = sum(index.size for index in self._users.values())
        for other, index in list(self._users.items()):
            if total <= self._most:
                break
            total -= index.size
            self._let_go(other)

    def _let_go(self, user: str) -> None:
        if (timer := self._timers.pop(user, None)) is not None:
            timer.cancel()
        index = self._users.pop(user, None)
        if index is not None:
            index.let_go()


class _UserIndex:
    """The index of a user: terms of all messages of all sessions, by digests, and no texts."""

    _lock = LoopLock()

    def __init__(self, user: str, finder: Finder) -> None:
        from context_compressor.search import SearchIndex  # which takes long to import

        self._user, self._finder = user, finder
        self._index = SearchIndex(None)
        self._sessions: dict[str, _Session] = {}
        self._by_stem: dict[str, _Session] = {}
        self._order: list[tuple[str, str]] | None = None
        self._built: list[tuple[str, str]] = []  # what the index has while it is made
        self._is_let_go = False

    @property
    def size(self) -> int:
        """How many messages it has."""
        return sum(len(session.known) for session in self._sessions.values())

    async def search(self, query: str, limit: int, standings: Sequence[Standing]) -> list[Msg]:
        """Return what `Finder.search` does."""
        async with self._lock:
            texts = await self._follow(standings)
            if self._order is None:
                self._order = await self._finder.run(self._ordered)
            order = self._order
            keys = await self._call(self._ask, query, limit, order, self._reader(texts))
            found = await self._find(keys)
        return [found[key].copy() for key in keys if key in found][:limit]

    async def forget(self, sessions: Collection[str]) -> None:
        """Drop sessions."""
        async with self._lock:
            gone = [self._drop(session) for session in sessions]
            await self._call(self._index.remove, [key for keys in gone for key in keys])

    def let_go(self) -> None:
        """Close the index as soon as nobody uses it."""
        self._is_let_go = True
        self._finder.close_index(self._index)

    async def _call(self, work: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return await self._finder.run(work, *arguments)
        except sqlite3.Error as error:
            raise OffloadError(
                f"memories cannot be searched: {error}; use a Python whose SQLite has FTS5"
            ) from error
        finally:
            if self._is_let_go:
                self._finder.close_index(self._index)

    # Keeping in step

    async def _follow(self, standings: Sequence[Standing]) -> dict[str, list[Document]]:
        """Bring what is known in step with all sessions; return texts that the index has yet to take up."""
        there = {standing.session_id for standing in standings}
        for name in [name for name in self._sessions if name not in there]:
            self._drop(name)
        texts: dict[str, list[Document]] = {}
        self._built = list(self._order or ())
        for standing in standings:
            session = self._sessions.get(standing.session_id)
            if session is None:
                session = self._new(standing.session_id)
            if not is_same(standing.number, session.number):
                await self._follow_session(session, standing, texts)
        return texts

    def _new(self, name: str) -> _Session:
        session = self._sessions[name] = _Session(name, digest(name)[: _STEM - 1] + ":")
        self._by_stem[session.stem] = session
        return session

    def _drop(self, name: str) -> list[str]:
        session = self._sessions.pop(name, None)
        if session is None:
            return []
        del self._by_stem[session.stem]
        self._order = None
        return [session.stem + key for key in session.known]

    async def _follow_session(
        self, session: _Session, standing: Standing, texts: dict[str, list[Document]]
    ) -> None:
        history = self._finder.history(self._user, session.name)
        before, session.number = session.number, 0  # until it is done
        self._order = None
        if before and continues(standing.number, before):
            await self._take_up(session, await history.read(after=before), texts)
            if len(session.known) == standing.size:
                session.number = standing.number
                return
            # Others write, or more happened than a history tells of.
        entries = await history.read()
        session.known, session.said = {}, Sayings(None)
        await self._take_up(session, entries, texts)
        session.number = standing.number  # what came since is told of again

    async def _take_up(
        self, session: _Session, entries: Sequence[Entry], texts: dict[str, list[Document]]
    ) -> None:
        for start in range(0, len(entries), _BATCH):
            batch = entries[start : start + _BATCH]
            for entry in batch:
                if entry.msg is None:
                    session.known.pop(entry.key, None)
            there = {entry.key: entry for entry in batch if entry.msg is not None}
            said = await self._finder.run(
                session.said.digests, [(key, entry.msg) for key, entry in there.items()]
            )
            for key, entry in there.items():
                assert entry.msg is not None
                session.known[key] = _Known(str(entry.msg.timestamp), entry.place, said[key])
                texts[session.stem + key] = []
            made = await self._finder.run(self._documents, session, there)
            texts.update(made)
            if len(texts) >= _AT_ONCE:
                self._built += [(key, self._digest(key)) for key in texts]
                await self._call(self._index.update, self._built, self._reader(texts))
                texts.clear()

    def _digest(self, key: str) -> str:
        return self._by_stem[key[:_STEM]].known[key[_STEM:]].digest

    @staticmethod
    def _documents(session: _Session, entries: Mapping[str, Entry]) -> dict[str, list[Document]]:
        return {
            session.stem + key: [
                replace(one, key=session.stem + key) for one in session.said.documents(key, entry.msg)
            ]
            for key, entry in entries.items()
            if entry.msg is not None
        }

    def _ordered(self) -> list[tuple[str, str]]:
        """Return all messages with their digests: of those that answer alike the latest is told first."""
        all_known = [
            (known.timestamp, session.stem, known.place, key, known.digest)
            for session in self._sessions.values()
            for key, known in session.known.items()
        ]
        return [(stem + key, said) for _, stem, _, key, said in sorted(all_known)]

    # Asking; in a thread

    def _ask(self, query: str, limit: int, order: Sequence[tuple[str, str]], read: ReadTexts) -> list[str]:
        found = self._index.search(query, _PASSAGES * limit, order, read)
        return list(dict.fromkeys(one.document.key for one in found))[:limit]

    def _reader(self, texts: Mapping[str, list[Document]]) -> Callable[[Sequence[str]], Iterable[Document]]:
        """Return what reads texts for the index, in its thread: those at hand, others from the histories."""
        loop = asyncio.get_running_loop()

        def read(keys: Sequence[str]) -> list[Document]:
            missing = [key for key in keys if key not in texts]
            found = self._wait(self._read(missing), loop) if missing else {}
            return [one for key in keys for one in (texts[key] if key in texts else found.get(key, ()))]

        return read

    def _wait(self, reading: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop) -> T:
        """Wait for the loop, as long as somebody waits for this."""
        if loop.is_running() and not self._finder.is_closed:
            asked = asyncio.run_coroutine_threadsafe(reading, loop)
            while loop.is_running() and not self._finder.is_closed:
                wait([asked], timeout=_LOOK_SECONDS)
                if asked.done():
                    return asked.result()
            asked.cancel()
        else:
            reading.close()
        raise OffloadError("the service was stopped while it was asked")

    async def _read(self, keys: Sequence[str]) -> dict[str, list[Document]]:
        entries: dict[_Session, dict[str, Entry]] = {}
        for session, entry in await self._entries(keys):
            entries.setdefault(session, {})[entry.key] = entry
        found: dict[str, list[Document]] = {}
        for session, there in entries.items():
            found |= self._documents(session, there)
        return found

    async def _find(self, keys: Sequence[str]) -> dict[str, Msg]:
        """Return messages by their keys in the index."""
        found = await self._entries(keys)
        return {session.stem + entry.key: entry.msg for session, entry in found if entry.msg is not None}

    async def _entries(self, keys: Sequence[str]) -> list[tuple[_Session, Entry]]:
        wanted: dict[str, set[str]] = {}
        for key in keys:
            wanted.setdefault(key[:_STEM], set()).add(key[_STEM:])
        found: list[tuple[_Session, Entry]] = []
        for stem, own in wanted.items():
            session = self._by_stem[stem]
            history = self._finder.history(self._user, session.name)
            entries = await history.read(ids={message_id(key) for key in own})
            found += [(session, entry) for entry in entries if entry.key in own]
        return found
