"""Opening a service by the URL of its backend; drivers are imported when used."""

from __future__ import annotations

from context_compressor.backends.admin.opening import REDIS_SCHEMES, scheme_of, with_driver
from context_compressor.errors import naming_extras
from context_compressor.services.base import MemoryService


@naming_extras()
def open_service(url: str, *, key_prefix: str = "") -> MemoryService:
    """Return the service of sessions behind a URL, which stay until they are deleted.

    Args:
        url: as `open_sessions` takes it.
        key_prefix: what all keys of Redis begin with.

    Raises:
        InvalidArgumentError: it is no such URL.
        ImportError: a package is missing; the text names the extra.
    """
    if scheme_of(url) in REDIS_SCHEMES:
        from context_compressor.services.redis import RedisMemoryService

        return RedisMemoryService(url, ttl_seconds=None, key_prefix=key_prefix)
    from context_compressor.services.sqlalchemy import SQLAlchemyMemoryService

    return SQLAlchemyMemoryService(with_driver(url))
