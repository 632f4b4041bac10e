"""Opening the sessions behind a URL, or beside a memory; their drivers are imported when used."""

from __future__ import annotations

from typing import Any

from context_compressor.backends.sessions import REDIS_SCHEMES, SessionDirectory, scheme_of, with_driver
from context_compressor.errors import InvalidArgumentError


def open_sessions(url: str, *, key_prefix: str = "") -> SessionDirectory:
    """Return the sessions behind a URL; `close` closes the connections.

    Args:
        url: of SQLAlchemy's form, or Redis's. "sqlite://", "postgresql://" and "mysql://" get a driver.
        key_prefix: what all keys of Redis begin with.

    Raises:
        InvalidArgumentError: it is no such URL.
        ImportError: a package is missing; the text names the extra.
    """
    if not isinstance(url, str) or "://" not in url:
        raise InvalidArgumentError(
            f"url: expected such as 'sqlite:///memory.db', 'postgresql://...' or 'redis://...', got {url!r}"
        )
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.backends.redis_sessions import RedisSessions

        return RedisSessions.at(url, key_prefix)
    if key_prefix:
        raise InvalidArgumentError("key_prefix: it is for Redis")
    from context_compressor.backends.sql_sessions import SQLSessions

    return SQLSessions.at(with_driver(url))


def sessions_of(base: object) -> tuple[SessionDirectory, str, str]:
    """Return the sessions beside that of a memory over a database or Redis, its user and its session.

    Raises:
        InvalidArgumentError: it is no such memory.
    """
    history: Any = getattr(base, "history", base)
    kind = type(history).__name__
    if kind == "RedisHistory":
        from context_compressor.backends.redis_sessions import RedisSessions

        return RedisSessions.beside(history)
    if kind == "SQLAlchemyHistory":
        from context_compressor.backends.sql_sessions import SQLSessions

        return SQLSessions.beside(history)
    raise InvalidArgumentError(
        f"base: expected a SQLAlchemyMemory or a RedisMemory, got {type(base).__name__}"
    )
