"""`SQLAlchemyMemoryService`: sessions in a database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, Unpack

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine

from context_compressor.backends.records import Standing
from context_compressor.backends.sql.engines import dispose, engine_for, in_transaction, make_tables
from context_compressor.backends.sql.history import SQLAlchemyMemory, remove_session, standings
from context_compressor.backends.sql.store import SQLAlchemyOffloadStore
from context_compressor.errors import InvalidArgumentError, check_options
from context_compressor.services.base import MemoryService, ServiceOptions

T = TypeVar("T")


class SQLAlchemyMemoryService(MemoryService):
    """Keep sessions in a database: those of every `SQLAlchemyMemory` there are found as well.

    Args:
        engine: a URL, such as "sqlite+aiosqlite:///memory.db", whose engine `start` opens and `stop` closes;
            or an `AsyncEngine`, which stays the caller's.
        options: as `MemoryService` has them.

    Raises:
        InvalidArgumentError: neither of those.
    """

    def __init__(self, engine: AsyncEngine | str, **options: Unpack[ServiceOptions]) -> None:
        check_options(options, SQLAlchemyMemoryService, ServiceOptions)
        super().__init__(**options)
        if not isinstance(engine, AsyncEngine | str):
            raise InvalidArgumentError(
                f"engine: expected a URL or an AsyncEngine, got {type(engine).__name__}"
            )
        self._given = engine
        self._opened: AsyncEngine | None = None

    @property
    def _engine(self) -> AsyncEngine:
        engine = self._opened if isinstance(self._given, str) else self._given
        assert engine is not None
        return engine

    async def _begin(self) -> None:
        if isinstance(self._given, str):
            self._opened = engine_for(self._given)
        try:
            await make_tables(self._engine)
        except BaseException:
            await self._end()
            raise

    async def _end(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await dispose(opened)

    async def _check(self) -> None:
        await self._run(lambda connection: connection.execute(sa.select(1)))

    def _open(self, user: str, session: str) -> SQLAlchemyMemory:
        return SQLAlchemyMemory(self._engine, session_id=session, user_id=user)

    def _texts(self, user: str, session: str) -> SQLAlchemyOffloadStore:
        return SQLAlchemyOffloadStore(self._engine, namespace=(user, session))

    async def _standings(self, user: str, *, renew: bool = False) -> list[Standing]:  # noqa: ARG002
        return await self._run(lambda connection: standings(connection, user))

    async def _remove(self, user: str, session: str) -> None:
        await self._run(lambda connection: remove_session(connection, user, session), removes=True)

    async def _run(self, work: Callable[[sa.Connection], T], *, removes: bool = False) -> T:
        return await in_transaction(self._engine, work, removes=removes)
