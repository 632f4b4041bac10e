"""A store of your own: four methods over SQLite, so that texts lie in one file.

python examples/custom_store.py
"""

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from make_session import make_session

from context_compressor import CompressedMemory, CompressionConfig, OffloadTools, from_openai
from context_compressor.errors import OffloadCollisionError, OffloadNotFoundError
from context_compressor.offload.store import check_ref, ref_of


class SQLiteStore:
    """Keep texts in a table. SQLite is called in threads, so that nothing holds the event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS texts (ref TEXT PRIMARY KEY, text TEXT NOT NULL)")

    async def write(self, text: str) -> str:
        ref = ref_of(text)
        await asyncio.to_thread(self._run, "INSERT OR IGNORE INTO texts VALUES (?, ?)", ref, text)
        if await self.read(ref) != text:
            raise OffloadCollisionError(f"another text has the ref {ref}")
        return ref

    async def read(self, ref: str) -> str:
        rows = await asyncio.to_thread(self._run, "SELECT text FROM texts WHERE ref = ?", check_ref(ref))
        if not rows:
            raise OffloadNotFoundError(f"{ref} is not stored")
        return str(rows[0][0])

    async def delete(self, ref: str) -> None:
        statement = "DELETE FROM texts WHERE ref = ?"
        removing = asyncio.ensure_future(asyncio.to_thread(self._run, statement, check_ref(ref)))
        try:
            await asyncio.shield(removing)
        finally:  # a thread cannot be cancelled, and what it removes late may be stored again by then
            await asyncio.wait({removing})

    async def refs(self) -> list[str]:
        return [
            str(row[0]) for row in await asyncio.to_thread(self._run, "SELECT ref FROM texts ORDER BY ref")
        ]

    def _run(self, statement: str, *values: str) -> list[tuple[str, ...]]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement, values).fetchall()


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        memory = CompressedMemory(
            config=CompressionConfig(max_total_tokens=8_000), store=SQLiteStore(Path(folder, "texts.db"))
        )
        await memory.add(from_openai(make_session()))
        view = await memory.get_memory()
        print(f"{len(view)} messages in view, {len(await memory.store.refs())} texts in the database")
        print(await OffloadTools(memory).call("grep_offloaded", {"pattern": "dropped: .*"}))


asyncio.run(main())
