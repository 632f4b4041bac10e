"""The search index of a history, or of several together: brought in step when it is asked, off the loop."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import copy_context
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from context_compressor.core.edits import message_id
from context_compressor.core.shown import Redact, redacted_call, redacted_text
from context_compressor.errors import OffloadError
from context_compressor.memory.history import Entry, History, continues, is_same
from context_compressor.memory.loops import LoopLock
from context_compressor.messages.media import is_data_url
from context_compressor.messages.msg import Msg, tool_calls, tool_results
from context_compressor.messages.parts import argument_lines
from context_compressor.messages.speech import is_handed
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.folders import INDEX_FILE, mode_of
from context_compressor.offload.locks import watch_forks
from context_compressor.offload.pages import is_read_back
from context_compressor.search.hits import Document

if TYPE_CHECKING:
    from context_compressor.search import Found
    from context_compressor.search.index import SearchIndex

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")

_BATCH = 256
"""Messages whose texts are taken up at a time."""
_AT_HAND = 2_000
"""Messages whose texts are held until the index takes them up; those of further ones are read once more."""
_LOOK_SECONDS = 0.05
"""How often a thread that waits for texts looks whether anybody waits for it."""


class HistoryIndex:
    """Find the messages of histories that answer a query.

    A message costs nothing until somebody searches. The index itself works in a thread of its own, which ends
    when it is idle: the loop's threads are few and belong to everybody, and a search holds its thread while
    it asks a history for texts, which may need one of the loop's to find them.

    Args:
        look: returns a history by its name. The messages of the one named "" have the keys in the index that
            they have there.
        store: in the directory of which the index stands; None: in memory.
        redact: what every text goes through before the index sees it.
        is_by_time: whether messages are put in order by their timestamps; else by their places.

    Attributes:
        dropped: how many messages were dropped from it one by one, since it was made.
    """

    _lock = LoopLock()

    def __init__(
        self,
        look: Callable[[str], History],
        *,
        store: FileOffloadStore | None = None,
        redact: Redact | None = None,
        is_by_time: bool = False,
    ) -> None:
        self._look, self._store, self._redact, self._is_by_time = look, store, redact, is_by_time
        self._path = None if store is None else store.directory / INDEX_FILE
        self._followed: dict[str, _Followed] = {}
        self._known: dict[str, _Known] = {}
        self._order: list[tuple[str, str]] | None = None
        self._index: SearchIndex | None = None
        self._inherited: list[SearchIndex] = []
        self._readers: set[_Reader] = set()
        self._thread: ThreadPoolExecutor | None = None
        self._calls = 0
        self.dropped = 0
        watch_forks(self)

    def start_as_child(self) -> None:
        """Take over in a process that was forked: the search thread is the parent's, and so is the index.

        That is neither used here nor closed: the parent's thread may have held its locks.
        """
        if self._index is not None:
            self._inherited.append(self._index)
        self._index, self._thread, self._calls = None, None, 0

    @property
    def size(self) -> int:
        """How many messages it has."""
        return len(self._known)

    def newest_request(self, name: str = "") -> str | None:
        """Return the key of the newest message of a history in which a user speaks."""
        followed = self._followed.get(name)
        return None if followed is None else next(reversed(followed.requests), None)

    async def search(
        self,
        query: str,
        limit: int,
        heads: Callable[[], Awaitable[Iterable[tuple[str, int, int]]]],
        *,
        keys: Sequence[str] = (),
        role: str | None = None,
        last: Callable[[Document], bool] = lambda _: False,
    ) -> list[tuple[Found, Msg | None]]:
        """Return passages that answer a query, best first, each with its message if that is still there.

        Args:
            query: words, names or a question.
            limit: how many at most.
            heads: returns name, number and size of each history that is searched; what the index has of
                others is dropped.
            keys: of the messages of a history that is known: some are read at a time where all have to be, so
                that nothing holds the loop.
            role: who said it; None for all.
            last: tells which come behind all others.

        Raises:
            RedactionError: the user's callable failed.
            OffloadError: this Python's SQLite has no full-text search, or the index was closed meanwhile.
        """
        reader = _Reader(self)
        self._readers.add(reader)
        try:
            async with self._lock:
                with self._busy():  # one thread for all that follows
                    await self._follow(await heads(), keys, reader)
                    if self._order is None:
                        self._order = await self._in_thread(self._ordered)
                    among = None
                    if role is not None:
                        among = {key for key, known in self._known.items() if role in known.roles}
                    ask = partial(self._ask, among=among, role=role, last=last)
                    found = await self._in_thread(ask, query, limit, self._order, reader.read)
                entries = await reader.entries([one.document.key for one in found])
        finally:
            # A thread cannot be cancelled: it ends when it asks for texts again.
            reader.stop()
            self._readers.discard(reader)
        messages = {key: entry.msg for key, (_, entry) in entries.items()}
        return [(one, messages.get(one.document.key)) for one in found]

    async def forget(self, keys: Collection[str]) -> None:
        """Drop deleted messages, at once."""
        if keys:
            async with self._lock:
                for key in keys:
                    self._forget(key)
                await self._drop(lambda index: index.remove(keys))

    async def forget_histories(self, names: Iterable[str]) -> None:
        """Drop all that the index has of histories, at once."""
        async with self._lock:
            gone = [key for name in names for key in self._forget_history(name)]
            await self._drop(lambda index: index.remove(gone))

    async def keep(self, keys: Collection[str]) -> None:
        """Drop what is not among these messages, as a process that died may have left it."""
        async with self._lock:
            await self._drop(lambda index: index.keep(keys))

    async def clear(self) -> None:
        """Drop everything, at once."""
        async with self._lock:
            for name in list(self._followed):
                self._forget_history(name)
            await self._drop(lambda index: index.clear())

    async def close(self) -> None:
        """Close the index, and end what is being searched; a later search opens it again."""
        for reader in self._readers:
            reader.stop()
        if self._index is not None:
            await self._in_thread(self._index.close)

    # The index and its thread

    @contextmanager
    def _busy(self) -> Iterator[ThreadPoolExecutor]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="search")
        self._calls += 1
        try:
            yield self._thread
        finally:
            self._calls -= 1
            if not self._calls:
                self._thread.shutdown(wait=False)
                self._thread = None

    async def _in_thread(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        with self._busy() as thread:
            call = partial(copy_context().run, function, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(thread, call)

    def _ask(
        self,
        query: str,
        limit: int,
        entries: Sequence[tuple[str, str]],
        read: Callable[[Sequence[str]], list[Document]],
        **which: Any,
    ) -> list[Found]:
        try:
            return self._open().search(query, limit, entries, read, **which)
        except sqlite3.Error as error:  # what is wrong with a file is mended by the index itself
            self._index = None
            raise OffloadError(
                f"the history cannot be searched: {error}; use a Python whose SQLite has FTS5"
            ) from error
        finally:
            self._take_use()

    def _ordered(self) -> list[tuple[str, str]]:
        """Return key and digest of each message: of those that answer alike the last one is told first."""
        ordered = sorted(self._known.items(), key=lambda one: one[1].order)
        return [(key, known.digest) for key, known in ordered]

    async def _drop(self, drop: Callable[[SearchIndex], int]) -> None:
        """Drop something from the index, if there is one, or the index where that fails."""

        def call() -> None:
            try:
                self.dropped += drop(self._open())
            except sqlite3.Error as error:
                logger.warning("the search index is dropped: %s", error)
                self._index = None
                if self._path is not None:
                    self._path.unlink(missing_ok=True)
            finally:
                self._take_use()

        if self._is_there():
            await self._in_thread(call)

    def _is_there(self) -> bool:
        """Tell whether there is an index, be it one that another process has left, or that nobody can see."""
        if self._index is not None or self._path is None:
            return self._index is not None
        try:
            return mode_of(self._path) != 0
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

    # Following the histories. Holds: lock

    async def _follow(
        self, heads: Iterable[tuple[str, int, int]], keys: Sequence[str], reader: _Reader
    ) -> None:
        """Bring what is known in step with the histories, new texts at hand for the index."""
        reader.check()  # others may have searched before
        there = {name: (number, size) for name, number, size in heads}
        for name in [name for name in self._followed if name not in there]:
            self._forget_history(name)
        for name, (number, size) in there.items():
            followed = self._followed.get(name) or self._begin(name)
            followed = await self._follow_one(followed, number, size, keys, reader)
            followed.number = number  # what came since is told of again

    async def _follow_one(
        self, followed: _Followed, number: int, size: int, keys: Sequence[str], reader: _Reader
    ) -> _Followed:
        history, before = followed.history(), followed.number
        # A wrapped memory may not tell that it was changed.
        if before is not None and getattr(history, "counts_changes", True) and is_same(number, before):
            return followed
        followed.number = None  # until it is done
        is_whole = reader.is_read_whole(history)
        # Where one of these does not do, others write, or more happened than a history tells of.
        if before and not is_whole and continues(number, before):
            await self._take_up(followed, await history.read(after=before), reader)
            if len(followed.keys) == size:
                return followed
        if keys and not is_whole:
            followed = self._begin(followed.name)
            for start in range(0, len(keys), _BATCH):
                ids = {message_id(key) for key in keys[start : start + _BATCH]}
                await self._take_up(followed, await history.read(ids=ids), reader)
            if len(followed.keys) == size:
                return followed
        entries = await history.read()
        if is_whole:
            reader.whole[followed.name] = entries
        followed = self._begin(followed.name)
        await self._take_up(followed, entries, reader)
        return followed

    def _begin(self, name: str) -> _Followed:
        self._forget_history(name)
        followed = self._followed[name] = _Followed(name, self._look)
        return followed

    async def _take_up(self, followed: _Followed, entries: Sequence[Entry], reader: _Reader) -> None:
        """Take up the messages that come next in a history, and those that are gone."""
        for start in range(0, len(entries), _BATCH):
            batch = entries[start : start + _BATCH]
            read = await self._in_thread(self._read, followed, [one for one in batch if one.msg is not None])
            reader.check()
            self._order = None
            for entry in batch:
                key = followed.stem + entry.key
                if key not in read:
                    self._forget(key)
                    continue
                followed.keys[key] = None
                self._known[key], texts = read[key]
                if len(reader.at_hand) < _AT_HAND or followed.name in reader.whole:
                    reader.at_hand[key] = texts

    def _read(
        self, followed: _Followed, entries: Iterable[Entry]
    ) -> dict[str, tuple[_Known, list[Document]]]:
        found: dict[str, tuple[_Known, list[Document]]] = {}
        for entry in entries:
            assert entry.msg is not None
            followed.note(entry.key, entry.msg)
            texts = self.texts(followed, entry)
            order = str(entry.msg.timestamp) if self._is_by_time else "", followed.stem, entry.place
            roles = frozenset(document.role for document in texts)
            found[followed.stem + entry.key] = _Known(followed, order, _digest_of(texts), roles), texts
        return found

    def texts(self, followed: _Followed, entry: Entry) -> list[Document]:
        """Return the texts of a message, an empty one where it has none."""
        if entry.msg is None:
            return []
        key, tools = followed.stem + entry.key, followed.tools.get(entry.key, ())
        said = [
            Document(key, one.part, one.role, one.tool, one.text)
            for one in texts_of(entry.msg, tools, self._redact)
        ]
        return said or [Document(key, 0, entry.msg.role, None, "")]

    def histories_of(self, keys: Iterable[str]) -> dict[_Followed, set[str]]:
        """Return the histories that have these messages, and the keys of their own."""
        found: dict[_Followed, set[str]] = {}
        for key in keys:
            if (known := self._known.get(key)) is not None:
                found.setdefault(known.followed, set()).add(key.removeprefix(known.followed.stem))
        return found

    def _forget(self, key: str) -> None:
        known = self._known.pop(key, None)
        if known is not None:
            self._order = None
            known.followed.forget(key)

    def _forget_history(self, name: str) -> list[str]:
        followed = self._followed.pop(name, None)
        keys = [] if followed is None else list(followed.keys)
        for key in keys:
            self._forget(key)
        return keys


class _Followed:
    """A history, and what is known of its messages."""

    def __init__(self, name: str, look: Callable[[str], History]) -> None:
        self.name, self.history = name, partial(look, name)
        self.stem = (
            hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32] + ":" if name else ""
        )
        """How the keys of its messages begin in the index."""
        self.number: int | None = None
        """The write up to which all is known."""
        self.keys: dict[str, None] = {}
        """Of its messages in the index."""
        self.requests: dict[str, None] = {}
        """Those in which a user speaks, in order."""
        self.tools: dict[str, tuple[str | None, ...]] = {}
        """Of each message with results, the tools that these are of."""
        self._calls: dict[str, str] = {}

    def note(self, key: str, msg: Msg) -> None:
        """Note whose results a message has, and whether a user speaks; messages come in order."""
        # A result names the call before it; an id may be used again.
        results = tool_results(msg)
        if results:
            named = tuple(self._calls.get(block["id"]) or block.get("name") for block in results)
            self.tools.setdefault(key, named)  # others may mark it later
        self._calls.update((call["id"], call["name"]) for call in tool_calls(msg) if call["id"])
        if msg.role == "user" and not results and not is_handed(msg):
            self.requests[self.stem + key] = None

    def forget(self, key: str) -> None:
        """Forget a message, by its key in the index."""
        self.keys.pop(key, None)
        self.requests.pop(key, None)
        self.tools.pop(key.removeprefix(self.stem), None)


class _Known(NamedTuple):
    """What is known of a message."""

    followed: _Followed
    order: tuple[str, str, float | Fraction]
    digest: str
    """Of what it says."""
    roles: frozenset[str]
    """Who speaks in it."""


class _Reader:
    """Read messages for one search: what it has at hand, else from the histories.

    Attributes:
        at_hand: texts that the index has yet to take up, by the keys of their messages.
        whole: by name the histories that read all that they have whatever they are asked for.
    """

    def __init__(self, index: HistoryIndex) -> None:
        self.at_hand: dict[str, list[Document]] = {}
        self._index = index
        self.whole: dict[str, list[Entry]] = {}
        self._loop = asyncio.get_running_loop()
        self._is_stopped = threading.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # the loop itself holds none

    def stop(self) -> None:
        """Let reading fail from now on."""
        self._is_stopped.set()

    def check(self) -> None:
        """Fail if the search was given up.

        Raises:
            OffloadError: it was.
        """
        if self._is_stopped.is_set():
            raise OffloadError("the memory was closed, or the search given up")

    @staticmethod
    def is_read_whole(history: History) -> bool:
        """Tell whether a history, whatever it is asked for, reads all that it has: a wrapped memory."""
        return not getattr(history, "tells_marks", True)

    async def entries(self, keys: Sequence[str]) -> dict[str, tuple[_Followed, Entry]]:
        """Return the messages under these keys that are there, each with its history."""
        found: dict[str, tuple[_Followed, Entry]] = {}
        for followed, own in self._index.histories_of(keys).items():
            entries = self.whole.get(followed.name)
            if entries is None:
                history = followed.history()
                if self.is_read_whole(history):
                    entries = self.whole[followed.name] = await history.read()
                else:
                    entries = await history.read(ids={message_id(key) for key in own})
            for entry in entries:
                if entry.key in own:
                    found[followed.stem + entry.key] = followed, entry
        return found

    def read(self, keys: Sequence[str]) -> list[Document]:
        """Return the texts of messages. For another thread than the loop's, which has to be running.

        Raises:
            OffloadError: the search was given up.
        """
        texts = {key: self.at_hand[key] for key in keys if key in self.at_hand}
        missing = [key for key in keys if key not in texts]
        if missing:
            texts |= {key: self._index.texts(*one) for key, one in self._wait(missing).items()}
        return [document for documents in texts.values() for document in documents]

    def _wait(self, keys: Sequence[str]) -> dict[str, tuple[_Followed, Entry]]:
        asked: Future[dict[str, tuple[_Followed, Entry]]] = Future()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._begin, keys, asked)
        while not (asked.done() or self._is_stopped.is_set() or not self._loop.is_running()):
            wait([asked], timeout=_LOOK_SECONDS)
        if not asked.done():
            self.stop()
        self.check()
        return asked.result()

    def _begin(self, keys: Sequence[str], asked: Future[Any]) -> None:
        """Find messages for a thread that waits, unless it has given up. Runs in the loop."""
        if not self._is_stopped.is_set():
            task = self._loop.create_task(self._answer(keys, asked))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _answer(self, keys: Sequence[str], asked: Future[Any]) -> None:
        try:
            asked.set_result(await self.entries(keys))
        except Exception as error:
            asked.set_exception(error)
        finally:
            if not asked.done():  # cancelled
                self.stop()


def _digest_of(documents: Sequence[Document]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for document in documents:
        said = f"{document.role}\0{document.tool}\0{document.text}\0"
        digest.update(said.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


_OTHER_TEXTS = (
    *(("refusal",), ("content",), ("audio", "transcript"), ("file", "filename"), ("source", "url")),
    *(("source", "file_id"), ("file", "file_id"), ("openai_part", "file_id"), ("openai_part", "file_url")),
)
"""Where a block of another kind has what it says, or what it is asked for by."""


class Said(NamedTuple):
    """A text of a message."""

    part: int
    """Its number among all that the message says, be it left out."""
    role: str
    tool: str | None
    text: str
    block: int
    """Number of the content block that says it."""


def texts_of(msg: Msg, tools: Sequence[str | None] = (), redact: Redact | None = None) -> list[Said]:
    """Return what a message says, its results by these tools; redacted, calls as JSON too.

    What the tools read back is left out: it stands in the history already.
    """
    return [
        Said(part, role, tool, redacted_text(text, redact), block)
        for part, (role, tool, text, block) in enumerate(_all_texts(msg, tools, redact))
        if text.strip() and not is_read_back(tool, text if role == "tool" else None)
    ]


def _all_texts(
    msg: Msg, tools: Sequence[str | None], redact: Redact | None
) -> Iterator[tuple[str, str | None, str, int]]:
    names = iter(tools)
    for number, block in enumerate(msg.get_content_blocks()):
        kind = block.get("type")
        if kind in ("text", "thinking"):
            yield msg.role, None, str(block.get(kind) or ""), number
        elif kind == "tool_use":
            call = block if redact is None else redacted_call(block, redact)
            # As JSON, line feeds would stick to words.
            yield msg.role, block["name"], "\n".join(argument_lines(call["input"])), number
        elif kind == "tool_result":
            tool = next(names, None) or block.get("name")
            output = block["output"]
            for one in [{"type": "text", "text": output}] if isinstance(output, str) else output:
                if one.get("type") == "text":
                    yield "tool", tool, str(one.get("text") or ""), number
        else:
            for path in _OTHER_TEXTS:
                value: object = block
                for name in path:
                    value = value.get(name) if isinstance(value, dict) else None
                if isinstance(value, str) and not is_data_url(value):
                    yield msg.role, None, value, number
