"""Which sessions a user has in Redis: a key for each user, kept up by whoever writes or reads a session."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from context_compressor.backends.records import Standing, pack_ascii, unpack_ascii
from context_compressor.backends.redis.clients import make_ready
from context_compressor.backends.redis.scripts import PARTS, as_text, stem_of
from context_compressor.memory.history import WriteNumber

_AT_ONCE = 500
"""Sessions that one round trip asks for."""

_NOTE = """
-- KEYS: sessions of a user; ARGV: 1 seconds for which the name is kept or "", 2 the session
local now = tonumber(redis.call('TIME')[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', '(' .. now)
redis.call('ZADD', KEYS[1], ARGV[1] == '' and '+inf' or now + ARGV[1], ARGV[2])
local last = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
if last == 'inf' then redis.call('PERSIST', KEYS[1])
else redis.call('EXPIREAT', KEYS[1], math.ceil(tonumber(last))) end
return 1
"""
"""The key lives as long as the name in it that lives longest."""


class UserSessions:
    """The names of a user's sessions.

    A session that lives for a time is noted again when half of that is over, and its name kept for half as
    long again: so it is not forgotten before the session is, and not kept for much longer.

    Args:
        client: of Redis.
        user_id: whose they are.
        key_prefix: what all keys begin with.
        key_ttl: as `RedisMemory` has it.
    """

    def __init__(self, client: Any, user_id: str, key_prefix: str, key_ttl: int | None) -> None:
        self._client = client
        self._prefix, self._user, self._ttl = key_prefix, user_id, key_ttl
        self._key = f"{stem_of(key_prefix, user_id)}sessions"
        self._script = client.register_script(_NOTE)
        self._noted: dict[str, float] = {}

    async def renew(self, session_ids: Sequence[str]) -> None:
        """Let sessions live on, whole, that would end earlier than one that is read now."""
        if self._ttl is None:
            return
        for start in range(0, len(session_ids), _AT_ONCE):
            some = session_ids[start : start + _AT_ONCE]
            pipe = self._client.pipeline(transaction=False)
            for name in some:
                pipe.ttl(f"{stem_of(self._prefix, self._user, name)}head")
            left = await pipe.execute()
            pipe = self._client.pipeline(transaction=False)
            # Whoever keeps one for longer, or for good, is not to lose it.
            ending = [name for name, seconds in zip(some, left, strict=True) if 0 <= seconds < self._ttl]
            for name in ending:
                for part in PARTS:
                    pipe.expire(f"{stem_of(self._prefix, self._user, name)}{part}", self._ttl)
            if ending:
                await pipe.execute()
            for name in ending:
                await self.note(name)

    async def note(self, session_id: str, *, is_new: bool = False) -> None:
        """Note that a session is there, unless that was done lately.

        Args:
            session_id: its id.
            is_new: whether it was not there before: then it is noted in any case.
        """
        noted = self._noted.get(session_id)
        if not is_new and (
            self._ttl is None or (noted is not None and time.monotonic() - noted < self._ttl / 2)
        ):
            return
        self._noted[session_id] = time.monotonic()
        kept = "" if self._ttl is None else str(self._ttl + self._ttl // 2 + 1)
        await self._script([self._key], [kept, pack_ascii({"session_id": session_id})])

    async def remove(self, session_id: str) -> None:
        """Remove a session: everything in it, the texts of a `RedisOffloadStore` of its own, and its name."""
        await make_ready(self._client)
        stem = stem_of(self._prefix, self._user, session_id)
        await self._client.delete(*(f"{stem}{part}" for part in PARTS))
        await self._client.zrem(self._key, pack_ascii({"session_id": session_id}))
        if await self._client.exists(f"{stem}head"):  # somebody began it anew meanwhile
            await self.note(session_id, is_new=True)

    async def names(self) -> list[str]:
        """Return the ids of all sessions, those included that are gone since a short while."""
        await make_ready(self._client)
        found = await self._client.zrange(self._key, 0, -1)
        return [str(unpack_ascii(one)["session_id"]) for one in found]

    async def standings(self) -> list[Standing]:
        """Return where the user's sessions stand, those that hold something."""
        names, found = await self.names(), list[Standing]()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            pipe = self._client.pipeline(transaction=False)
            for name in some:
                pipe.hmget(f"{stem_of(self._prefix, self._user, name)}head", ["number", "writes", "size"])
            answers = await pipe.execute()
            for name, (number, names_of_writes, size) in zip(some, answers, strict=True):
                if number is not None:
                    at = WriteNumber(int(number), as_text(names_of_writes or ""))
                    found.append(Standing(name, at, int(size or 0)))
        return found
