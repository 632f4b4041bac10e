"""Clients of Redis: made of URLs, or over what a caller gives."""

from __future__ import annotations

import logging
from typing import Any
from weakref import WeakSet

from redis.asyncio import BlockingConnectionPool, ConnectionPool, Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import ConnectionError, RedisClusterException, RedisError, TimeoutError

from context_compressor.errors import InvalidArgumentError, LoopError, check_number, without_secrets
from context_compressor.memory.loops import left_by

logger = logging.getLogger(__name__)

Client = Redis | RedisCluster

_RETRIES = 3
_WAIT_SECONDS = 600
"""Seconds for which a call waits for a connection that others use."""


def check_keys(key_prefix: object, key_ttl: object) -> None:
    """Raise InvalidArgumentError where one of these is wrong."""
    if not isinstance(key_prefix, str) or set("{}") & set(key_prefix):
        raise InvalidArgumentError(f"key_prefix: expected a string without braces, got {key_prefix!r:.200}")
    if key_ttl is not None:
        check_number("key_ttl", key_ttl, 1, is_whole=True)


def _pooled(**options: Any) -> dict[str, Any]:
    """Return options of a pool in which calls wait for a connection when all are in use.

    Servers, and proxies before them, close idle connections. The next command on such a one is sent again.
    Each of our commands has the same result when it is sent twice.
    """
    retry = Retry(ExponentialBackoff(cap=0.5, base=0.02), _RETRIES)
    lost = [ConnectionError, TimeoutError]
    same = {"decode_responses": True, "retry": retry, "retry_on_error": lost, "timeout": _WAIT_SECONDS}
    return same | options


def client_at(**where: Any) -> Redis:
    """Return a client for a server by its host, port, database and password."""
    return Redis.from_pool(BlockingConnectionPool(**_pooled(**where)))


def client_for(url: str, name: str = "url_or_pool", **options: Any) -> Client:
    """Return a client for a URL.

    Raises:
        InvalidArgumentError: it is none; the text calls it by `name`.
    """
    scheme, mark, rest = url.partition("://")
    kind, _, extension = scheme.partition("+")
    try:
        if extension == "cluster":
            return RedisCluster.from_url(f"{kind}{mark}{rest}", decode_responses=True, **options)
        made = Redis.from_pool(BlockingConnectionPool.from_url(url, **_pooled(**options)))
        connect: Any = made.connection_pool.make_connection
        connect()  # which opens nothing yet, and finds options that are none
    except (ValueError, AttributeError, TypeError, RedisClusterException) as error:
        raise InvalidArgumentError(
            f"{name}: {without_secrets(error, url)}; expected such as 'redis://localhost:6379/0', and in a "
            "password %2F for /, %23 for #, %3F for ?, %40 for @"
        ) from None  # the error of redis-py shows pieces of the URL
    return made


def client_over(given: object) -> Client:
    """Return the client that was given, or one over a pool."""
    if isinstance(given, Redis | RedisCluster):
        return given
    if isinstance(given, ConnectionPool):
        return Redis(connection_pool=given)
    raise InvalidArgumentError(
        "url_or_pool: expected a URL, a redis.asyncio ConnectionPool, Redis or RedisCluster, got "
        f"{type(given).__name__}"
    )


_LOOKED_AT: WeakSet[Client] = WeakSet()


async def look_at_eviction(client: Client, has_ttl: bool) -> None:
    """Warn once of a server that evicts keys when its memory is full: a session would lose single keys."""
    if client in _LOOKED_AT:
        return
    _LOOKED_AT.add(client)
    try:
        told: Any = await client.info("memory")
    except RedisError:  # this user may not ask
        return
    policy = str(told.get("maxmemory_policy", ""))
    if told.get("maxmemory") and policy.startswith("allkeys" if not has_ttl else ("allkeys", "volatile")):
        logger.warning(
            "this Redis evicts keys when its memory is full (maxmemory-policy %s), which breaks sessions; "
            "set it to noeviction",
            policy,
        )


async def close(client: Client) -> None:
    """Close a client's connections, except those of a parent process or of a loop that has ended."""
    if _take_over(client):
        await client.aclose()


def _take_over(client: Client) -> bool:
    """Let go of connections of other loops; return whether none are left. Those of a cluster stay."""
    if left_by(client, takes_over=not isinstance(client, RedisCluster)) is None:
        return True
    if isinstance(client, RedisCluster):
        return False
    pool: Any = client.connection_pool
    pool.reset()
    for name in ("_condition", "_lock"):  # they belong to the loop in which somebody waited
        if hasattr(pool, name):
            setattr(pool, name, type(getattr(pool, name))())
    return True


async def make_ready(client: Client) -> None:
    """Let a client of a cluster learn its nodes: where many first commands do so at once, redis-py fails.

    Connections that a parent process, or a loop that has ended, opened are let go of.

    Raises:
        LoopError: the client is one of a cluster, which cannot let go of them.
    """
    if not _take_over(client):
        raise LoopError(
            "this RedisCluster belongs to a parent process, or to an event loop that has ended; make another"
        )
    if isinstance(client, RedisCluster):
        await client.initialize()


class Server:
    """A Redis, by a client or a pool that stays the caller's, or by a URL, whose client `close` closes.

    Args:
        url_or_pool: as `RedisMemory` takes it.
        key_prefix: what all keys begin with.
        key_ttl: seconds after which what nobody reads or writes is gone; None: never.

    Raises:
        InvalidArgumentError: an argument is none of that.
    """

    def __init__(
        self, url_or_pool: str | ConnectionPool | Client, key_prefix: str = "", key_ttl: int | None = None
    ) -> None:
        check_keys(key_prefix, key_ttl)
        self._is_own = isinstance(url_or_pool, str)
        self._client = client_for(url_or_pool) if isinstance(url_or_pool, str) else client_over(url_or_pool)
        self._prefix, self._ttl = key_prefix, key_ttl

    async def close(self) -> None:
        """Close the client, if it was made here."""
        if self._is_own:
            await close(self._client)
