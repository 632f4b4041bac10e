"""All texts of one namespace as a source for `OffloadTools`: read and searched with no memory at hand."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from context_compressor.errors import InvalidArgumentError, OffloadError
from context_compressor.messages.media import is_data_url
from context_compressor.offload.files import FileOffloadStore, TextFiles
from context_compressor.offload.guide import SpeakerRole
from context_compressor.search.hits import Document, Found, Hit, lines_of
from context_compressor.tokens.counter import TokenCounter
from context_compressor.tools.source import MAX_PAGE_TOKENS, PAGES_PER_BUDGET

if TYPE_CHECKING:
    from context_compressor.search.index import SearchIndex

_ROLE = "text"


class NamespaceTexts:
    """What `OffloadTools` needs of a memory, over every text that lies in a store's namespace.

    The texts that others write there meanwhile are found, too. The search index is kept in memory: the one
    that may lie beside the texts belongs to a memory and knows its history.

    Args:
        store: the namespace.
        counter: what pages are counted by.
    """

    budget_tokens = MAX_PAGE_TOKENS * PAGES_PER_BUDGET

    def __init__(self, store: FileOffloadStore, counter: TokenCounter) -> None:
        self.counter = counter
        self._store = store
        self._files = TextFiles(store.directory)
        self._index: SearchIndex | None = None

    def standing_page_tokens(self) -> int:
        """Return 0: nobody here knows what stands in views."""
        return 0

    async def reachable_refs(self) -> list[str]:
        """Return the ref of every text in the namespace, newest first.

        Raises:
            OffloadError: the directory cannot be listed, or is a link.
        """
        return (await asyncio.to_thread(self._by_age))[::-1]

    async def read_ref(self, ref: str) -> str:
        """Return the text under a ref.

        Raises:
            OffloadError: as `FileOffloadStore.read`.
        """
        return await self._store.read(ref)

    async def search_history(
        self, query: str, limit: int = 5, role: SpeakerRole | None = None
    ) -> Sequence[Hit]:
        """Return at most `limit` passages of all texts that answer a query, best first.

        Raises:
            InvalidArgumentError: a role was given; a namespace does not know who said what.
            OffloadError: the directory cannot be listed, or this Python's SQLite has no full-text search.
        """
        if role is not None:
            raise InvalidArgumentError(
                f"role ({role!r}): these texts do not tell who said what; leave it out"
            )
        return await asyncio.to_thread(self._search, query, limit)

    def _by_age(self) -> list[str]:
        """Return the refs of all texts, oldest first; looking at them marks none as used. Blocks."""
        return [one.ref for one in sorted(self._files.stored(), key=lambda one: -one.age_seconds)]

    def _search(self, query: str, limit: int) -> list[Hit]:
        from context_compressor.search.index import SearchIndex  # which only a search loads

        if self._index is None:
            self._index = SearchIndex()
        entries = [(ref, "") for ref in self._by_age()]
        try:
            found = self._index.search(query, limit, entries, self._documents)
        except sqlite3.Error as error:
            raise OffloadError(
                f"the texts cannot be searched: {error}; use a Python whose SQLite has FTS5"
            ) from error
        return [_hit(one) for one in found]

    def _documents(self, refs: Sequence[str]) -> Iterator[Document]:
        for ref in refs:
            try:
                text = self._files.read(ref)
            except OffloadError:  # damaged, or gone meanwhile: the others can still be searched
                continue
            yield Document(ref, 0, _ROLE, None, "" if is_data_url(text) else text)


class _StoredHit(Hit):
    """A passage of a text of which nobody here knows who said it, or when."""

    __slots__ = ()

    @property
    def title(self) -> str:
        return self.place


def _hit(found: Found) -> Hit:
    lines = lines_of(found.document.text, found.start, found.end)
    place = lines.first, lines.last
    return _StoredHit(found.text, found.document.key, (), _ROLE, None, place, False, 0, column=lines.column)
