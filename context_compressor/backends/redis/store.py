"""`RedisOffloadStore`: texts in Redis."""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from math import inf
from typing import Any

from redis.asyncio import ConnectionPool
from redis.exceptions import OutOfMemoryError

from context_compressor.backends.records import as_namespace, digest
from context_compressor.backends.redis.clients import Client, Server, make_ready
from context_compressor.backends.redis.scripts import as_text, digests_under, stem_under
from context_compressor.offload.packed import PackedOffloadStore, Packing, digits, label_of
from context_compressor.offload.store import REF_PREFIX, StoredText

_KEEP = """
-- KEYS: texts, stored
-- ARGV: 1 digits of the ref, 2 what to store, 3 its bytes, 4 seconds since the epoch, 5 whether to replace
local is_new = 1
if ARGV[5] == '1' then
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
else
    is_new = redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
end
local bytes = ARGV[3]
if is_new == 0 then  -- it stays as it is, however large it would be here
    bytes = string.match(redis.call('HGET', KEYS[2], ARGV[1]) or bytes, '^%d+')
end
redis.call('HSET', KEYS[2], ARGV[1], bytes .. ' ' .. ARGV[4])
return is_new
"""
_FORGET = "redis.call('HDEL', KEYS[2], ARGV[1]) return redis.call('HDEL', KEYS[1], ARGV[1])"


class RedisOffloadStore(Server, PackedOffloadStore):
    """Keep texts in Redis: two hashes for each namespace, of texts, and of their sizes and times.

    Args:
        url_or_pool: as `RedisMemory` takes it.
        namespace: any string, or the ids of a user and a session; one memory's alone.
        key_prefix: what the key begins with.
        key_ttl: seconds after which a namespace that nobody reads or writes is gone; None: never.
        compress_above: bytes above which a text is compressed by zstd; None: never.
        encryption_key: encrypts every text, a key of `Fernet.generate_key()`; None: none is.
        max_bytes: bytes that the namespace may hold; a text that does not fit is refused. None: any.

    Raises:
        InvalidArgumentError: an argument is none of that.
    """

    def __init__(
        self,
        url_or_pool: str | ConnectionPool | Client,
        namespace: str | tuple[str, str] | None = "default",
        *,
        key_prefix: str = "",
        key_ttl: int | None = None,
        compress_above: int | None = None,
        encryption_key: bytes | str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        packing, name = Packing(compress_above, encryption_key), as_namespace(namespace)
        PackedOffloadStore.__init__(self, label_of(namespace), packing, max_bytes, name)
        Server.__init__(self, url_or_pool, key_prefix, key_ttl)
        self._write, self._delete = map(self._client.register_script, (_KEEP, _FORGET))

    @property
    def _keys(self) -> list[str]:
        stem = stem_under(self._prefix, self._name)
        return [f"{stem}texts", f"{stem}stored"]

    def _is_full(self, error: Exception) -> bool:
        return isinstance(error, OutOfMemoryError)

    async def _renew_all(self) -> None:
        """Let the namespace live on: whoever reads it keeps it."""
        if self._ttl is not None:
            for key in self._keys:
                await self._client.expire(key, self._ttl)

    async def _store(self, ref: str, data: bytes, *, replace: bool) -> bool:
        await make_ready(self._client)
        # Values are base64, so that a client which decodes responses gives the same back.
        packed = b64encode(data).decode("ascii")
        said: list[str | int] = [digits(ref), packed, len(data), int(time.time()), int(replace)]
        is_new = await self._write(self._keys, said)
        await self._renew_all()
        return bool(is_new)

    async def _put(self, ref: str, data: bytes) -> bool:
        return await self._store(ref, data, replace=False)

    async def _replace(self, ref: str, data: bytes) -> None:
        await self._store(ref, data, replace=True)

    async def _touch(self, ref: str, data: bytes) -> None:
        """Do nothing: `_put` has noted the time."""

    async def _get(self, ref: str) -> bytes | None:
        await make_ready(self._client)
        found: Any = await self._client.hget(self._keys[0], digits(ref))
        await self._renew_all()
        return None if found is None else b64decode(found)

    async def _remove(self, ref: str) -> None:
        await make_ready(self._client)
        await self._delete(self._keys, [digits(ref)])

    async def _list(self) -> list[StoredText]:
        await make_ready(self._client)
        names: Any = await self._client.hkeys(self._keys[0])
        told: Any = await self._client.hgetall(self._keys[1])
        await self._renew_all()
        stored = {as_text(name): as_text(one).split() for name, one in told.items()}
        now, found = time.time(), []
        for name in map(as_text, names):
            size, at = map(int, stored.get(name, ("0", "0")))
            found.append(StoredText(f"{REF_PREFIX}{name}", size, max(now - at, 0.0) if at else inf))
        return found

    async def _names(self) -> list[str]:
        return await digests_under(self._client, self._prefix, "texts")

    def _be(self, name: str) -> None:
        self._is_own, self.label = False, f"sha256:{name[:12]}"  # no more is known of it

    def is_of(self, user_id: str, session_id: str) -> bool:
        """Tell whether the namespace is these ids of a user and a session: nothing else uses it."""
        return self._name == digest(user_id, session_id)

    def where(self, ref: str) -> str:
        """Return where a text lies, for people."""
        return f"{self._keys[0]} {digits(ref)}"
