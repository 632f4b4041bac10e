"""The sessions of a Redis, under one prefix."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from redis.exceptions import RedisError

from context_compressor.backends.admin.sessions import (
    RemovedObject,
    SessionDirectory,
    SessionInfo,
    StoredObject,
)
from context_compressor.backends.records import digest, unpack_ascii
from context_compressor.backends.redis.clients import Client, check_keys, client_for, close, make_ready
from context_compressor.backends.redis.history import RedisHistory
from context_compressor.backends.redis.scripts import as_text, digests_under, keys_like, stem_under
from context_compressor.backends.redis.states import RedisStates
from context_compressor.backends.redis.users import UserSessions
from context_compressor.compression.edits import refs_in
from context_compressor.errors import InvalidArgumentError, shown_url
from context_compressor.memory.history import Change, Head

_FIELDS = 500
_REMOVE = """
-- KEYS: all of a session. Returns what they held: key, field, bytes.
local told = {}
for _, key in ipairs(KEYS) do
    local kind = redis.call('TYPE', key)['ok']
    if kind == 'hash' then
        for _, field in ipairs(redis.call('HKEYS', key)) do
            told[#told + 1] = {key, field, redis.call('HSTRLEN', key, field)}
        end
    elseif kind == 'zset' then
        for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
            told[#told + 1] = {key, member, #member}
        end
    elseif kind == 'string' then
        told[#told + 1] = {key, '', redis.call('STRLEN', key)}
    elseif kind ~= 'none' then
        told[#told + 1] = {key, '', 0}
    end
    redis.call('DEL', key)
end
return told
"""


class RedisSessions(SessionDirectory):
    """The sessions of a Redis, under one prefix.

    Args:
        client: by which to ask.
        key_prefix: what all keys begin with.
        key_ttl: seconds for which a restored session lives; None: for ever.
        is_own: whether `close` closes the client.
        place: what to call it.
    """

    def __init__(
        self, client: Client, key_prefix: str, *, key_ttl: int | None = None, is_own: bool, place: str
    ) -> None:
        check_keys(key_prefix, key_ttl)
        self.client = client
        self.prefix = key_prefix
        self._ttl = key_ttl
        self._is_own = is_own
        self.place = place
        self.reminders = [
            "the append-only file until BGREWRITEAOF, dumps until the next one, replicas, backups"
        ]
        self._remove = client.register_script(_REMOVE)

    @classmethod
    def at(cls, url: str, key_prefix: str) -> RedisSessions:
        """Return the sessions behind a URL.

        Raises:
            InvalidArgumentError: it is no URL of Redis, or the prefix has braces.
        """
        check_keys(key_prefix, None)
        return cls(client_for(url), key_prefix, is_own=True, place=shown_url(url))

    @classmethod
    def beside(cls, history: RedisHistory) -> tuple[RedisSessions, str, str]:
        """Return the sessions beside one, its user and its session."""
        names = unpack_ascii(history._names)
        prefix = history._head.partition("context_compressor:{")[0]
        made = cls(history.client, prefix, key_ttl=history._ttl, is_own=False, place="Redis")
        return made, names["user_id"], names["session_id"]

    async def check(self, *, may_make: bool = False) -> None:  # noqa: ARG002
        """Look whether the server can be reached.

        Raises:
            InvalidArgumentError: it cannot.
        """
        try:
            await make_ready(self.client)
            await self.client.exists("context_compressor")
        except (RedisError, OSError) as error:
            raise InvalidArgumentError(f"{self.place}: cannot be used: {error}") from error

    async def infos(self, user_id: str | None = None) -> list[SessionInfo]:
        """Return the sessions, of all users or of one, sorted by user and session."""
        found: list[SessionInfo] = []
        for stem in await self._stems():
            told: Any = await self.client.hmget(f"{stem}head", ["names", "number", "size"])
            if told[0] is None:
                continue  # it ended meanwhile
            names, head = unpack_ascii(told[0]), Head(int(told[1]), int(told[2] or 0), "")
            if user_id in (None, names["user_id"]):
                edits = sum([1 async for _ in self._edits(stem)])
                found.append(SessionInfo(names["user_id"], names["session_id"], head, edits, None))
        return sorted(found, key=lambda one: one[:2])

    def history(self, user_id: str, session_id: str) -> RedisHistory:
        """Return the history of a session."""
        return RedisHistory(
            self.client,
            user_id=user_id,
            session_id=session_id,
            key_prefix=self.prefix,
            key_ttl=self._ttl,
        )

    async def named_refs(self, but: tuple[str, str] | None = None) -> list[set[str]]:
        """Return the refs that live ledgers name, a set for each session that names some; but for one's."""
        left_out = None if but is None else self._stem(digest(*but))
        stems = [stem for stem in await self._stems() if stem != left_out]
        found = [set(refs_in([edit async for edit in self._edits(stem)])) for stem in stems]
        return [*(refs for refs in found if refs), *await self._refs_of_states()]

    def states(self) -> RedisStates:
        """Return the states of adapters under the prefix."""
        return RedisStates(self.client, key_prefix=self.prefix)

    async def restore(self, user_id: str, session_id: str, changes: Sequence[Change]) -> None:
        """Make a session of these changes, in one script.

        Raises:
            ConflictError: it exists.
        """
        await self.history(user_id, session_id).write(changes, at=0)

    async def objects(self, user_id: str, session_id: str) -> dict[str, StoredObject]:
        """Return the fields and members of a session's keys."""
        found: dict[str, StoredObject] = {}
        for key in await self._keys_of(user_id, session_id):
            kind = as_text(await self.client.type(key))
            values: Any = []
            if kind == "hash":
                told: Any = await self.client.hgetall(key)
                values = told.items()
            elif kind == "zset":
                values = await self.client.zrange(key, 0, -1, withscores=True)
            elif kind == "string":
                values = [("", await self.client.get(key))]
            for field, value in values:
                said = repr(value).encode()
                size = len(value) if kind != "zset" else len(field)
                where = f"{key} {as_text(field)}".rstrip()
                found[where] = StoredObject("redis key", size, hashlib.sha256(said).hexdigest())
        return found

    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove a session's keys, whatever they are, in one script, and its name; return what they held."""
        told: Any = await self._remove(await self._keys_of(user_id, session_id))
        await UserSessions(self.client, user_id, self.prefix, self._ttl).remove(session_id)
        return [
            RemovedObject("redis key", f"{as_text(key)} {as_text(field)}".rstrip(), int(size))
            for key, field, size in told
        ]

    async def close(self) -> None:
        """Close the client, if it was made here."""
        if self._is_own:
            await close(self.client)

    async def _keys_of(self, user_id: str, session_id: str) -> list[str]:
        """Return the keys that a session has, or may get while one looks."""
        known = self.history(user_id, session_id)._keys
        return sorted({*known, *await keys_like(self.client, self._stem(digest(user_id, session_id)))})

    def _stem(self, session: str) -> str:
        return stem_under(self.prefix, session)

    async def _stems(self) -> list[str]:
        return [self._stem(one) for one in await digests_under(self.client, self.prefix, "head")]

    async def _edits(self, stem: str) -> AsyncIterator[Any]:
        """Yield the edits of a ledger that hold, as they were written."""
        async for _, told in self.client.hscan_iter(f"{stem}ledger", count=_FIELDS):
            edit = unpack_ascii(told)["edit"]
            if edit is not None:
                yield edit
