"""`SQLAlchemyOffloadStore`: texts in a database."""

from __future__ import annotations

import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from context_compressor.backends.records import as_namespace, digest
from context_compressor.backends.sql.engines import Database, is_full
from context_compressor.backends.sql.tables import texts
from context_compressor.offload.packed import PackedOffloadStore, Packing, digits, label_of
from context_compressor.offload.store import REF_PREFIX, StoredText

_PART_BYTES = 1_000_000
"""Of one row: servers bound what they take at once, MariaDB at 16 MB unless told otherwise."""


class SQLAlchemyOffloadStore(Database, PackedOffloadStore):
    """Keep texts in a database, in parts of a megabyte.

    Args:
        engine: a URL, whose engine is closed by `close`, or an `AsyncEngine`, which stays the caller's.
        namespace: any string, or the ids of a user and a session; one memory's alone.
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text, a key of `Fernet.generate_key()`; None: none is.
        max_bytes: bytes that the namespace may hold; a text that does not fit is refused. None: any.

    Raises:
        InvalidArgumentError: none of those.
    """

    def __init__(
        self,
        engine: AsyncEngine | str,
        namespace: str | tuple[str, str] | None = "default",
        *,
        compress_above: int | None = None,
        encryption_key: bytes | str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        packing, name = Packing(compress_above, encryption_key), as_namespace(namespace)
        PackedOffloadStore.__init__(self, label_of(namespace), packing, max_bytes, name)
        Database.__init__(self, engine)

    def _is_full(self, error: Exception) -> bool:
        return is_full(error)

    def _is(self, ref: str) -> sa.ColumnElement[bool]:
        return sa.and_(texts.c.namespace == self._name, texts.c.ref == digits(ref))

    async def _put(self, ref: str, data: bytes) -> bool:
        rows = self._rows(ref, data)
        try:
            await self._run(lambda connection: connection.execute(sa.insert(texts), rows))
        except IntegrityError:
            return False
        return True

    async def _replace(self, ref: str, data: bytes) -> None:
        def exchange(connection: sa.Connection) -> None:
            connection.execute(sa.delete(texts).where(self._is(ref)))
            connection.execute(sa.insert(texts), self._rows(ref, data))

        await self._run(exchange)

    def _rows(self, ref: str, data: bytes) -> list[dict[str, Any]]:
        parts = [data[start : start + _PART_BYTES] for start in range(0, len(data), _PART_BYTES)]
        same: dict[str, Any] = {"namespace": self._name, "ref": digits(ref), "parts": len(parts)}
        same["stored_at"] = int(time.time())
        return [{**same, "part": number, "data": part} for number, part in enumerate(parts)]

    async def _get(self, ref: str) -> bytes | None:
        wanted = sa.select(texts.c.data).where(self._is(ref)).order_by(texts.c.part)
        found = await self._run(lambda connection: connection.execute(wanted).scalars().all())
        return b"".join(map(bytes, found)) if found else None

    async def _remove(self, ref: str) -> None:
        removed = sa.delete(texts).where(self._is(ref))
        await self._run(lambda connection: connection.execute(removed), removes=True)

    async def _touch(self, ref: str, data: bytes) -> None:  # noqa: ARG002
        again = sa.update(texts).where(self._is(ref)).values(stored_at=int(time.time()))
        await self._run(lambda connection: connection.execute(again))

    async def _list(self) -> list[StoredText]:
        wanted = sa.select(
            texts.c.ref, sa.func.sum(sa.func.length(texts.c.data)), sa.func.max(texts.c.stored_at)
        )
        wanted = wanted.where(texts.c.namespace == self._name).group_by(texts.c.ref)
        found = await self._run(lambda connection: connection.execute(wanted).all())
        now = time.time()
        return [
            StoredText(f"{REF_PREFIX}{ref}", int(size), max(now - int(at), 0.0)) for ref, size, at in found
        ]

    async def _names(self) -> list[str]:
        wanted = sa.select(texts.c.namespace).distinct().order_by(texts.c.namespace)
        return list(await self._run(lambda connection: connection.execute(wanted).scalars().all()))

    def _be(self, name: str) -> None:
        self._is_own, self.label = False, f"sha256:{name[:12]}"  # no more is known of it

    def is_of(self, user_id: str, session_id: str) -> bool:
        """Tell whether the namespace is these ids of a user and a session: nothing else uses it."""
        return self._name == digest(user_id, session_id)

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        return f"{texts.name} namespace={self._name} ref={digits(ref)}"
