"""Searching the whole history: what the index is told of it, and where each passage found can be read."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from context_compressor.compression.edits import ItemKey, StubEdit, message_id
from context_compressor.compression.transcript import Redact, arguments_text, redacted_text
from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.memory.history import BaseHistory
from context_compressor.memory.index import HistoryIndex
from context_compressor.memory.state import MemoryState
from context_compressor.messages.msg import Msg, tool_calls
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.protocol import OffloadStore, ref_of
from context_compressor.offload.schemas import TOOL_NAMES
from context_compressor.recall.hits import Hit
from context_compressor.recall.index import SearchIndex
from context_compressor.recall.passages import Document
from context_compressor.recall.ranking import Found

INDEX_FILE = "search.sqlite3"
"""The index of a memory whose texts are files: it stands beside them."""
_PARTS = ("", "#results", "#text", "#orphan0")
"""What the parts of one history message are called in the ledger."""
_BATCH = 256
"""Messages that are read at a time, so that nothing holds the event loop."""


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
        history: BaseHistory,
        store: OffloadStore,
        read_ref: Callable[[str], Awaitable[str]],
        redact: Redact | None,
    ) -> None:
        self._history = history
        self._read_ref = read_ref
        self._redact = redact
        self._store = store if isinstance(store, FileOffloadStore) else None
        self._index: SearchIndex | None = None
        self._seen: HistoryIndex | None = None
        self._digests: dict[str, str] = {}
        self._tools: dict[str, str] = {}

    async def search(self, query: str, limit: int, state: MemoryState) -> list[Hit]:
        """Return the passages of the history that answer a query, best first.

        Args:
            query: words, names or a question.
            limit: how many at most.
            state: in step with the history.

        Raises:
            InvalidArgumentError: a query that is no string, or a limit below 1.
            RedactionError: the user's callable failed.
            OffloadError: this Python's SQLite has no full-text search.
        """
        if not isinstance(query, str):
            raise InvalidArgumentError(f"query: expected a string, got {type(query).__name__}")
        if type(limit) is not int or limit < 1:
            raise InvalidArgumentError(f"limit: expected a number from 1 up, got {limit!r}")
        if self._seen is not state.index or not self._history.has_revision:
            self._digests.clear()  # the history was read anew: a message may say something else
            self._seen = state.index
        keys = list(state.index.tokens)
        reader = _Reader(self._history)
        new = [key for key in keys if key not in self._digests]
        for start in range(0, len(new), _BATCH):
            messages = await self._read(new[start : start + _BATCH], reader)
            self._digests |= await asyncio.to_thread(self._digests_of, messages)
        entries = [(key, self._digests.get(key, "")) for key in keys]
        loop = asyncio.get_running_loop()

        def read(wanted: Sequence[str]) -> list[Document]:
            messages = asyncio.run_coroutine_threadsafe(self._read(wanted, reader), loop).result()
            return [document for key, msg in messages.items() for document in self._documents_in(key, msg)]

        index = await asyncio.to_thread(self._open)
        try:
            found = await asyncio.to_thread(index.search, query, limit, entries, read)
        except sqlite3.Error as error:  # what is wrong with a file is mended by the index itself
            raise OffloadError(
                f"the history cannot be searched: {error}; use a Python whose SQLite has FTS5"
            ) from error
        ago = {key: count for count, key in enumerate(reversed(keys))}
        return [await self._hit(one, state, ago[one.document.key]) for one in found]

    async def forget(self, keys: Collection[str]) -> None:
        """Drop deleted messages from the index, at once."""
        for key in keys:
            self._digests.pop(key, None)
        has_file = self._store is not None and (self._store.directory / INDEX_FILE).exists()
        if self._index is not None or has_file:
            index = await asyncio.to_thread(self._open)
            await asyncio.to_thread(index.remove, keys)

    def close(self) -> None:
        """Close the index; a later search opens it again."""
        if self._index is not None:
            self._index.close()

    def _open(self) -> SearchIndex:
        """Return the index; blocks."""
        if self._store is not None:
            self._store.open()  # or a collection could take the namespace for unused
        if self._index is None:
            self._index = SearchIndex(None if self._store is None else self._store.directory / INDEX_FILE)
        return self._index

    async def _read(self, keys: Sequence[str], reader: _Reader) -> Mapping[str, Msg]:
        messages = await reader.find(keys)
        for msg in messages.values():
            # A result alone does not know its tool.
            self._tools.update((call["id"], call["name"]) for call in tool_calls(msg))
        return messages

    def _digests_of(self, messages: Mapping[str, Msg]) -> dict[str, str]:
        return {key: _digest(self._documents_in(key, msg)) for key, msg in messages.items()}

    def _documents_in(self, key: str, msg: Msg) -> list[Document]:
        """Return the texts of a message; what the tools read back stands in the history already."""
        found: list[Document] = []
        for role, tool, text in self._said(msg):
            if text.strip() and tool not in TOOL_NAMES:
                found.append(Document(key, len(found), role, tool, redacted_text(text, self._redact)))
        return found

    def _said(self, msg: Msg) -> Iterable[tuple[str, str | None, str]]:
        """Yield speaker, tool and text of all that a message says."""
        for block in msg.get_content_blocks():
            kind = block.get("type")
            if kind in ("text", "thinking"):
                yield msg.role, None, str(block.get(kind) or "")
            elif kind == "tool_use":
                yield msg.role, block["name"], arguments_text(block)
            elif kind == "tool_result":
                tool = self._tools.get(block["id"]) or block.get("name")
                output = block["output"]
                inner = [{"type": "text", "text": output}] if isinstance(output, str) else output
                for one in inner:
                    if one.get("type") == "text":
                        yield "tool", tool, str(one.get("text") or "")

    async def _hit(self, found: Found, state: MemoryState, messages_ago: int) -> Hit:
        document, passage = found.document, found.text
        key = document.key
        shown = [item for item in state.items if item.key.key == key and item.kind != "segment"]
        in_view = any(passage in one.text for item in shown for one in self._documents_in(key, item.msg))
        ref: str | None = None
        lines: tuple[int, int] | None = None
        parts = [ItemKey(key, part) for part in _PARTS]
        stubs = [stub for part in parts for stub in state.ledger.stubs_of(part).values() if not stub.page]
        stub = _stub_for(document.text, stubs)
        segment = next(filter(None, map(state.ledger.segment_of, parts)), None)
        if stub is not None:
            ref, lines = stub.ref, _lines_of(document.text, found.start, found.end)
        elif segment is not None:
            ref = segment.ref
            lines = await self._lines_under(ref, found)
        elif not in_view and stubs:
            ref = stubs[0].ref  # an argument: it is stored as a text, and stood in the call as JSON
        return Hit(
            text=passage,
            ref=ref,
            message_ids=(message_id(key),),
            role=document.role,
            tool=document.tool,
            lines=lines,
            in_view=in_view,
            messages_ago=messages_ago,
        )

    async def _lines_under(self, ref: str, found: Found) -> tuple[int, int] | None:
        """Return the lines of a passage in the transcript that holds its message."""
        try:
            transcript = await self._read_ref(ref)
        except OffloadError:
            return None
        start = transcript.find(found.document.text)
        return None if start < 0 else _lines_of(transcript, start + found.start, start + found.end)


class _Reader:
    """Read messages of the base memory for one search; one that cannot find some is read whole, once."""

    def __init__(self, history: BaseHistory) -> None:
        self._history = history
        self._whole: dict[str, Msg] | None = None

    async def find(self, keys: Sequence[str]) -> Mapping[str, Msg]:
        """Return the messages under these keys."""
        if self._history.finds_some:
            return await self._history.find(keys)
        if self._whole is None:
            self._whole = dict(await self._history.peek())
        return {key: self._whole[key] for key in keys if key in self._whole}


def _digest(documents: Iterable[Document]) -> str:
    digest = hashlib.blake2b(digest_size=8)
    for document in documents:
        said = f"{document.role}\0{document.tool}\0{document.text}\0"
        digest.update(said.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _stub_for(text: str, stubs: Sequence[StubEdit]) -> StubEdit | None:
    ref = ref_of(text) if stubs else ""
    return next((stub for stub in stubs if stub.ref == ref), None)


def _lines_of(text: str, start: int, end: int) -> tuple[int, int]:
    first = text.count("\n", 0, start) + 1
    return first, first + text.count("\n", start, max(start, end - 1))
