"""`RedisOffloadStore`: texts in Redis."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Any

from redis.asyncio import ConnectionPool

from context_compressor.backends.records import as_namespace
from context_compressor.backends.redis import Client, as_text, check_keys, client_for, client_over
from context_compressor.backends.stores import PackedOffloadStore, Packing, digits
from context_compressor.offload.store import REF_PREFIX


class RedisOffloadStore(PackedOffloadStore):
    """Keep texts in Redis: a hash for each namespace.

    Args:
        url_or_pool: as `RedisMemory` takes it.
        namespace: any string, or the ids of a user and a session; one memory's alone.
        key_prefix: what the key begins with.
        key_ttl: seconds after which a namespace that nobody reads or writes is gone; None: never.
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text, a key of `Fernet.generate_key()`; None: none is.

    Raises:
        InvalidArgumentError: an argument is none of that.
    """

    def __init__(
        self,
        url_or_pool: str | ConnectionPool | Client,
        namespace: str | tuple[str, str] = "default",
        *,
        key_prefix: str = "",
        key_ttl: int | None = None,
        compress_above: int | None = None,
        encryption_key: bytes | str | None = None,
    ) -> None:
        super().__init__(Packing(compress_above, encryption_key))
        check_keys(key_prefix, key_ttl)
        self._own = client_for(url_or_pool) if isinstance(url_or_pool, str) else None
        self._client = self._own or client_over(url_or_pool)
        name = as_namespace(namespace)
        self._key, self._ttl = f"{key_prefix}context_compressor:{{{name}}}:texts", key_ttl

    async def close(self) -> None:
        """Close the client, if it was made here."""
        if self._own is not None:
            await self._own.aclose()

    async def _ask(self, command: str, *arguments: Any) -> Any:
        answer = await getattr(self._client, command)(self._key, *arguments)
        if self._ttl is not None:
            await self._client.expire(self._key, self._ttl)
        return answer

    # Values are base64, so that a client which decodes responses gives the same back.

    async def _put(self, ref: str, data: bytes) -> bool:
        return bool(await self._ask("hsetnx", digits(ref), b64encode(data).decode("ascii")))

    async def _replace(self, ref: str, data: bytes) -> None:
        await self._ask("hset", digits(ref), b64encode(data).decode("ascii"))

    async def _get(self, ref: str) -> bytes | None:
        found = await self._ask("hget", digits(ref))
        return None if found is None else b64decode(found)

    async def _remove(self, ref: str) -> None:
        await self._ask("hdel", digits(ref))

    async def _list(self) -> list[str]:
        return [f"{REF_PREFIX}{as_text(one)}" for one in await self._ask("hkeys")]
