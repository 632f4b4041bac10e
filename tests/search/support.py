"""A small history to search."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from context_compressor.search import Found
from context_compressor.search.hits import Document
from context_compressor.search.index import SearchIndex
from context_compressor.search.storage import Entry


class History:
    """Texts by key, and which were read."""

    def __init__(self, texts: Iterable[str] = (), role: str = "assistant") -> None:
        self.documents: dict[str, list[Document]] = {}
        self.reads: list[str] = []
        for number, text in enumerate(texts):
            self.add(f"m{number}", text, role=role)

    def add(self, key: str, *texts: str, role: str = "assistant", tool: str | None = None) -> None:
        self.documents[key] = [Document(key, part, role, tool, text) for part, text in enumerate(texts)]

    @property
    def entries(self) -> list[Entry]:
        return [(key, str(hash(tuple(documents)))) for key, documents in self.documents.items()]

    def read(self, keys: Sequence[str]) -> list[Document]:
        self.reads += keys
        return [document for key in keys for document in self.documents[key]]

    def search(self, index: SearchIndex, query: str, limit: int = 5) -> list[Found]:
        return index.search(query, limit, self.entries, self.read)

    def keys(self, index: SearchIndex, query: str, limit: int = 5) -> list[str]:
        return [found.document.key for found in self.search(index, query, limit)]


WORDS = (
    "amber",
    "basil",
    "cedar",
    "delta",
    "heron",
    "islet",
    "你好",
    "世界",
    "検索",
    "foo_bar",
    "src/x_y.py",
    "A-17",
)


def random_text(draw: random.Random) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(draw.randint(0, 300)))
