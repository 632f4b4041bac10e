"""`RedisStates`: states of adapters in Redis."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from redis.asyncio import ConnectionPool

from context_compressor.backends.records import as_key, digest, pack_ascii, to_state, unpack_ascii
from context_compressor.backends.redis.clients import Client, Server, make_ready
from context_compressor.backends.redis.scripts import digests_under, stem_under
from context_compressor.errors import ConflictError, InvalidStateError

_ATTEMPTS = 100
_MOST_READ = 64
_EXCHANGE = """
-- KEYS: state
-- ARGV: 1 SHA-1 of what stands there, or "", 2 what is to, 3 TTL in seconds or ""
local there = redis.call('GET', KEYS[1])
if (there and redis.sha1hex(there) or '') ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
if ARGV[3] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
return 1
"""


class RedisStates(Server):
    """Keep what adapters know of conversations in Redis: `states=RedisStates(url)`.

    It may be the Redis of sessions and texts. Any number of processes may use it at once.

    Args:
        url_or_pool: as `RedisMemory` takes it.
        key_prefix: what the keys begin with.
        key_ttl: seconds after which a state that nobody gets or sets is gone; None: never.

    Raises:
        InvalidArgumentError: an argument has another type, or makes no sense.
    """

    def __init__(
        self,
        url_or_pool: str | ConnectionPool | Client,
        *,
        key_prefix: str = "",
        key_ttl: int | None = None,
    ) -> None:
        super().__init__(url_or_pool, key_prefix, key_ttl)
        self._script = self._client.register_script(_EXCHANGE)
        self._read: OrderedDict[str, Any] = OrderedDict()
        """What was read last, for a change that follows: mostly nobody has changed it meanwhile."""

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return what was set under a key, or None.

        Raises:
            InvalidStateError: what is there cannot be read.
        """
        name = self._name(key)
        await make_ready(self._client)
        found: Any = await self._client.get(name)
        self._read[name] = found
        if len(self._read) > _MOST_READ:
            self._read.popitem(last=False)
        if found is not None and self._ttl is not None:
            await self._client.expire(name, self._ttl)
        return None if found is None else to_state(_state_in, found, key)

    async def set(self, key: str, state: dict[str, Any]) -> None:
        """Keep a state, JSON-like data, under a key."""
        await self.exchange(key, lambda _: state)

    async def exchange(
        self, key: str, change: Callable[[dict[str, Any] | None], dict[str, Any] | None]
    ) -> None:
        """Change the state under a key, while no other process changes it.

        Args:
            key: under which it stands.
            change: takes the state that is there, or None, and returns the new one; None leaves it as it is.

        Raises:
            ConflictError: others changed it at each of many attempts.
        """
        name = self._name(key)
        await make_ready(self._client)
        for _ in range(_ATTEMPTS):
            found: Any = self._read.pop(name) if name in self._read else await self._client.get(name)
            there: Any = None
            if found is not None:
                with suppress(InvalidStateError):  # it is made anew
                    there = to_state(_state_in, found, key)
            changed = change(there)
            if changed is None:
                return
            data = found.encode() if isinstance(found, str) else found
            known = "" if data is None else hashlib.sha1(data, usedforsecurity=False).hexdigest()
            said = pack_ascii({"key": key, "set_at": int(time.time()), "state": changed})
            if await self._script([name], [known, said, self._ttl or ""]):
                return
        raise ConflictError(f"the state under {key!r} changes too fast to write to it; try again", number=0)

    async def delete(self, key: str) -> None:
        """Remove the state under a key; there may be none."""
        await make_ready(self._client)
        await self._client.delete(self._name(key))

    async def keys(self) -> list[str]:
        """Return the keys that have a state, sorted. Looks at every key of the server."""
        return sorted(await self.set_at())

    async def set_at(self) -> dict[str, float | None]:
        """Return when the state under each key was set last, in seconds since 1970; None: not known.

        Looks at every key of the server.
        """
        names = [
            stem_under(self._prefix, one) for one in await digests_under(self._client, self._prefix, "state")
        ]
        found = {name: await self._client.get(f"{name}state") for name in names}
        there = {name: one for name, one in found.items() if one is not None}
        return dict(to_state(_set_in, one, f"{name}state") for name, one in there.items())

    def _name(self, key: str) -> str:
        return f"{stem_under(self._prefix, digest(as_key(key)))}state"


def _state_in(data: str | bytes) -> Any:
    return unpack_ascii(data)["state"]


def _set_in(data: str | bytes) -> tuple[str, float | None]:
    said = unpack_ascii(data)
    return str(said["key"]), said.get("set_at")  # earlier releases did not note it
