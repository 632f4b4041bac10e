"""Opening sessions and stores by their URL, or beside a memory; their drivers are imported when used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from context_compressor.backends.admin.sessions import SessionDirectory
from context_compressor.errors import InvalidArgumentError, naming_extras, shown_url
from context_compressor.offload.files import FileOffloadStore
from context_compressor.offload.packed import PackedOffloadStore

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "mysql": "mysql+asyncmy"}
"""The drivers for URLs that name none."""
_SQL_SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
REDIS_SCHEMES = ("redis", "rediss", "unix")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL without a driver, "" where it has none."""
    scheme, mark, _ = url.partition("://")
    return scheme.partition("+")[0] if mark else ""


def is_database(url: str) -> bool:
    """Tell whether a URL is one of a database or of Redis."""
    return scheme_of(url) in (*REDIS_SCHEMES, *_SQL_SCHEMES)


def with_driver(url: str) -> str:
    """Return a URL of SQLAlchemy's with a driver for asyncio where it names none."""
    scheme, mark, rest = url.partition("://")
    scheme = {"postgres": "postgresql", "mariadb": "mysql"}.get(scheme, scheme)
    return f"{_DRIVERS.get(scheme, scheme)}{mark}{rest}"


@naming_extras()
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
        told = shown_url(url) if isinstance(url, str) else url
        raise InvalidArgumentError(
            f"url: expected such as 'sqlite:///memory.db', 'postgresql://...' or 'redis://...', got {told!r}"
        )
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.backends.redis.sessions import RedisSessions

        return RedisSessions(url, key_prefix)
    if key_prefix:
        raise InvalidArgumentError("key_prefix: it is for Redis")
    from context_compressor.backends.sql.sessions import SQLSessions

    return SQLSessions(with_driver(url))


def sessions_of(base: object) -> tuple[SessionDirectory, str, str]:
    """Return the sessions beside that of a memory over a database or Redis, its user and its session.

    Raises:
        InvalidArgumentError: it is no such memory.
    """
    history: Any = getattr(base, "history", base)
    kind = type(history).__name__
    if kind == "RedisHistory":
        from context_compressor.backends.redis.sessions import RedisSessions

        return RedisSessions.beside(history)
    if kind == "SQLAlchemyHistory":
        from context_compressor.backends.sql.sessions import SQLSessions

        return SQLSessions.beside(history)
    raise InvalidArgumentError(
        f"base: expected a SQLAlchemyMemory or a RedisMemory, got {type(base).__name__}"
    )


@naming_extras()
def open_store(
    where: str,
    namespace: str | tuple[str, str] = "default",
    *,
    key_prefix: str = "",
    encryption_key: bytes | str | None = None,
    options: Mapping[str, Any] | None = None,
) -> FileOffloadStore | PackedOffloadStore:
    """Return the store at a place: a directory, or a URL of a database, of Redis, or of fsspec's.

    Args:
        where: such as "working_memory", "sqlite:///memory.db", "redis://localhost" or "s3://bucket/texts".
        namespace: of the texts; in a database or Redis also the ids of a user and a session.
        key_prefix: what all keys of Redis begin with.
        encryption_key: of texts that are encrypted.
        options: for the file system of fsspec.

    Raises:
        InvalidArgumentError, ValueError: there is no such place, or an argument is for another kind of store.
        ImportError: a package is missing; the text names the extra.
    """
    kind = scheme_of(where)
    if options and is_database(where):
        raise InvalidArgumentError("options: they are for file systems of fsspec's")
    if kind in REDIS_SCHEMES:
        from context_compressor.backends.redis.store import RedisOffloadStore

        return RedisOffloadStore(where, namespace, key_prefix=key_prefix, encryption_key=encryption_key)
    if kind in _SQL_SCHEMES:
        from context_compressor.backends.sql.store import SQLAlchemyOffloadStore

        return SQLAlchemyOffloadStore(with_driver(where), namespace, encryption_key=encryption_key)
    if not isinstance(namespace, str):
        raise InvalidArgumentError(
            "namespace: ids of a user and a session name one in a database or in Redis"
        )
    if not kind:
        if encryption_key is not None or options:
            raise InvalidArgumentError("encryption_key, options: a directory takes none; give 'file://...'")
        return FileOffloadStore(where, namespace)
    from context_compressor.backends.fsspec import FsspecOffloadStore

    return FsspecOffloadStore(where, namespace, encryption_key=encryption_key, **(options or {}))


@naming_extras()
def open_states(url: str, *, key_prefix: str = "") -> Any:
    """Return what keeps states of adapters behind a URL, as `open_sessions` takes it.

    Raises:
        InvalidArgumentError: it is no such URL.
        ImportError: a package is missing; the text names the extra.
    """
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.backends.redis.states import RedisStates

        return RedisStates(url, key_prefix=key_prefix)
    from context_compressor.backends.sql.states import SQLAlchemyStates

    return SQLAlchemyStates(with_driver(url))


@naming_extras()
def open_memory(url: str, *, user_id: str, session_id: str, key_prefix: str = "") -> Any:
    """Return the base memory of a session behind a URL, as `open_sessions` takes it.

    Raises:
        InvalidArgumentError: it is no such URL.
        ImportError: a package is missing; the text names the extra.
    """
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.backends.redis.history import RedisMemory

        return RedisMemory(url, user_id=user_id, session_id=session_id, key_prefix=key_prefix)
    from context_compressor.backends.sql.history import SQLAlchemyMemory

    return SQLAlchemyMemory(with_driver(url), user_id=user_id, session_id=session_id)
