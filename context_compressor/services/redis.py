"""`RedisMemoryService`: sessions in Redis, Redis Cluster or Valkey."""

from __future__ import annotations

from typing import Any, Unpack

from redis.asyncio import ConnectionPool

from context_compressor.backends.records import Standing
from context_compressor.backends.redis.clients import (
    Client,
    check_keys,
    client_for,
    client_over,
    close,
    make_ready,
)
from context_compressor.backends.redis.history import RedisHistory, RedisMemory
from context_compressor.backends.redis.store import RedisOffloadStore
from context_compressor.backends.redis.users import UserSessions
from context_compressor.errors import InvalidArgumentError, check_options
from context_compressor.services.base import IndexOptions, MemoryService


class RedisMemoryService(MemoryService):
    """Keep sessions in Redis: those of every `RedisMemory` there are found as well.

    Args:
        redis_url: of the server, whose connections are opened by `start` and closed by `stop`.
        redis_client: in its place a `Redis`, a `RedisCluster` or a `ConnectionPool`, which stays yours.
        socket_timeout: seconds, of connections that are opened here, as the next four.
        socket_connect_timeout: seconds.
        max_connections: at the same time, for each server; whoever finds all in use waits. None: redis-py's.
        health_check_interval: seconds after which an idle connection is asked whether it is there.
        socket_keepalive: whether TCP's keepalive is on.
        ttl_seconds: after which a session that is not used is gone, whole, with its texts; searching and
            listing use all sessions of the user. None: never.
        max_messages_per_session: as `MemoryService` has it.
        key_prefix: what all keys begin with, as `RedisMemory` has it.
        options: as `MemoryService` has them.

    Raises:
        InvalidArgumentError: an argument is none of that.
    """

    def __init__(
        self,
        redis_url: str = "redis://localhost:6379/0",
        redis_client: Client | ConnectionPool | None = None,
        socket_timeout: float | None = 5.0,
        socket_connect_timeout: float | None = 5.0,
        max_connections: int | None = None,
        *,
        health_check_interval: float = 30.0,
        socket_keepalive: bool = True,
        ttl_seconds: int | None = 3_600,
        max_messages_per_session: int | None = None,
        key_prefix: str = "",
        **options: Unpack[IndexOptions],
    ) -> None:
        try:
            check_keys(key_prefix, ttl_seconds)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(str(error).replace("key_ttl", "ttl_seconds")) from None
        check_options(options, RedisMemoryService, IndexOptions)
        if ttl_seconds is not None:  # the index tells no longer of what has ended
            options = {"idle_seconds": ttl_seconds, **options}
        super().__init__(max_messages_per_session=max_messages_per_session, **options)
        self._prefix, self._ttl = key_prefix, ttl_seconds
        self._url = redis_url
        self._connecting: dict[str, Any] = {
            "socket_timeout": socket_timeout,
            "socket_connect_timeout": socket_connect_timeout,
            "max_connections": max_connections,
            "health_check_interval": health_check_interval,
            "socket_keepalive": socket_keepalive,
        }
        self._given = None if redis_client is None else client_over(redis_client)
        self._opened: Client | None = None

    @property
    def _client(self) -> Client:
        client = self._given or self._opened
        assert client is not None
        return client

    async def _begin(self) -> None:
        if self._given is None:
            told = {name: value for name, value in self._connecting.items() if value is not None}
            self._opened = client_for(self._url, "redis_url", **told)

    async def _end(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await close(opened)

    async def _check(self) -> None:
        await make_ready(self._client)
        answer: Any = self._client.ping()
        await answer

    def _open(self, user: str, session: str) -> RedisMemory:
        return RedisMemory(
            self._client, user_id=user, session_id=session, key_prefix=self._prefix, key_ttl=self._ttl
        )

    def _look(self, user: str, session: str) -> RedisHistory:
        # Without a time to live: to be found does not give one to a session that an agent keeps for good.
        return RedisHistory(self._client, user_id=user, session_id=session, key_prefix=self._prefix)

    def _texts(self, user: str, session: str) -> RedisOffloadStore:
        names = (user, session)
        return RedisOffloadStore(self._client, names, key_prefix=self._prefix, key_ttl=self._ttl)

    async def _standings(self, user: str, *, renew: bool = False) -> list[Standing]:
        sessions = UserSessions(self._client, user, self._prefix, self._ttl)
        found = await sessions.standings()
        if renew:
            await sessions.renew([one.session_id for one in found])
        return found

    async def _remove(self, user: str, session: str) -> None:
        await UserSessions(self._client, user, self._prefix, self._ttl).remove(session)
