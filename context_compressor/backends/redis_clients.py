"""Clients of Redis: made of URLs, or over what a caller gives."""

from __future__ import annotations

from typing import Any

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.exceptions import RedisClusterException

from context_compressor.errors import InvalidArgumentError, check_number, without_secrets

Client = Redis | RedisCluster


def check_keys(key_prefix: object, key_ttl: object) -> None:
    """Raise InvalidArgumentError where one of these is wrong."""
    if not isinstance(key_prefix, str) or set("{}") & set(key_prefix):
        raise InvalidArgumentError(f"key_prefix: expected a string without braces, got {key_prefix!r}")
    if key_ttl is not None:
        check_number("key_ttl", key_ttl, 1, is_whole=True)


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
        made: Redis = Redis.from_url(url, decode_responses=True, **options)
        connect: Any = made.connection_pool.make_connection
        connect()  # which opens nothing yet, and finds options that are none
    except (ValueError, AttributeError, TypeError, RedisClusterException) as error:
        raise InvalidArgumentError(
            f"{name}: {without_secrets(error, url)}; expected such as 'redis://localhost:6379/0', and in a "
            "password %2F for /, %23 for #, %3F for ?, %40 for @"
        ) from None  # that error shows pieces of the URL
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


async def make_ready(client: Client) -> None:
    """Let a client of a cluster learn its nodes: where many first commands do so at once, redis-py fails."""
    if isinstance(client, RedisCluster):
        await client.initialize()
