"""AgentScope 1.x's three memories by their own names, over histories of this library, for its agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from context_compressor.backends.sql.history import SQLAlchemyMemory
from context_compressor.integrations.agentscope.memory import AgentScopeCompressedMemory

if TYPE_CHECKING:
    from context_compressor.backends.redis.clients import Client

__all__ = ["AsyncSQLAlchemyMemory", "InMemoryMemory", "RedisMemory"]


class InMemoryMemory(AgentScopeCompressedMemory):
    """Keep messages in this process; the arguments are those of `AgentScopeCompressedMemory`."""


class AsyncSQLAlchemyMemory(AgentScopeCompressedMemory):
    """Keep a session's messages, marks and ledger in a database, and show views that fit the budget.

    Texts that left a view are read from the history, unless a `store` keeps them.

    Args:
        engine_or_session: as `SQLAlchemyMemory` takes it.
        session_id: names the session.
        user_id: whose it is.
        options: of `AgentScopeCompressedMemory`, `max_total_tokens` and so on.
    """

    def __init__(
        self,
        engine_or_session: AsyncEngine | AsyncSession | str,
        session_id: str | None = None,
        user_id: str | None = None,
        **options: Any,
    ) -> None:
        self._base = SQLAlchemyMemory(engine_or_session, session_id=session_id, user_id=user_id)
        super().__init__(base=self._base, **options)

    async def close(self) -> None:
        """End what was begun, and close the engine if it was made from a URL."""
        await super().close()
        await self._base.close()


class RedisMemory(AgentScopeCompressedMemory):
    """Keep a session's messages, marks and ledger in Redis, and show views that fit the budget.

    Texts that left a view are read from the history, unless a `store` keeps them.

    Args:
        session_id: names the session.
        user_id: whose it is.
        host: of the server, as the five that follow.
        port: of the server.
        db: the database's number.
        password: of the server.
        connection_pool: in their place; it stays the caller's.
        key_prefix: what all keys begin with.
        key_ttl: seconds after which a session that nobody uses is gone, whole; None: never.
        options: of `AgentScopeCompressedMemory`, `max_total_tokens` and so on.
    """

    def __init__(
        self,
        session_id: str = "default_session",
        user_id: str = "default_user",
        host: str = "localhost",
        port: int = 6379,
        db: int = 0,
        password: str | None = None,
        connection_pool: Any = None,
        key_prefix: str = "",
        key_ttl: int | None = None,
        **options: Any,
    ) -> None:
        # AgentScope brings SQLAlchemy, and no Redis.
        from context_compressor.backends.redis.history import RedisMemory as Base

        self._base = Base(
            session_id=session_id,
            user_id=user_id,
            host=host,
            port=port,
            db=db,
            password=password,
            connection_pool=connection_pool,
            key_prefix=key_prefix,
            key_ttl=key_ttl,
        )
        super().__init__(base=self._base, **options)

    def get_client(self) -> Client:
        """Return the client by which this memory asks."""
        return self._base.get_client()

    async def close(self) -> None:
        """End what was begun, and close the client if it was made here."""
        await super().close()
        await self._base.close()
