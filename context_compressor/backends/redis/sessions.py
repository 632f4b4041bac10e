"""The sessions of a Redis, under one prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from redis.exceptions import RedisError

from context_compressor.backends.admin.sessions import RemovedObject, SessionDirectory, SessionInfo
from context_compressor.backends.records import digest, name_digest, pack_ascii, unpack_ascii
from context_compressor.backends.redis.clients import Client, Server, make_ready
from context_compressor.backends.redis.history import RedisHistory
from context_compressor.backends.redis.scripts import as_text, digests_under, keys_like, stem_of, stem_under
from context_compressor.backends.redis.states import RedisStates
from context_compressor.backends.redis.users import UserSessions
from context_compressor.core.edits import Edit, edit_to_dict, name_of, refs_in
from context_compressor.errors import InvalidArgumentError, shown_url
from context_compressor.memory.history import Entry, Head

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


class RedisSessions(Server, SessionDirectory):
    """The sessions of a Redis, under one prefix.

    Args:
        url_or_client: by which to ask.
        key_prefix: what all keys begin with.
        key_ttl: seconds for which a restored session lives; None: for ever.

    Raises:
        InvalidArgumentError: it is no URL of Redis, or the prefix has braces.
    """

    def __init__(self, url_or_client: str | Client, key_prefix: str, key_ttl: int | None = None) -> None:
        super().__init__(url_or_client, key_prefix, key_ttl)
        self.place = shown_url(url_or_client) if isinstance(url_or_client, str) else "Redis"
        self.reminders = [
            "the append-only file until BGREWRITEAOF, dumps until the next one, replicas, backups"
        ]
        self._remove = self._client.register_script(_REMOVE)

    @classmethod
    def beside(cls, history: RedisHistory) -> tuple[RedisSessions, str, str]:
        """Return the sessions beside one, its user and its session."""
        names = unpack_ascii(history._names)
        prefix = history._head.partition("context_compressor:{")[0]
        return cls(history.client, prefix, history._ttl), names["user_id"], names["session_id"]

    async def check(self, *, may_make: bool = False) -> None:  # noqa: ARG002
        """Look whether the server can be reached.

        Raises:
            InvalidArgumentError: it cannot.
        """
        try:
            await make_ready(self._client)
            await self._client.exists("context_compressor")
        except (RedisError, OSError) as error:
            raise InvalidArgumentError(f"{self.place}: cannot be used: {error}") from error

    async def _infos(self) -> list[SessionInfo]:
        found: list[SessionInfo] = []
        for session in await digests_under(self._client, self._prefix, "head"):
            stem = stem_under(self._prefix, session)
            told: Any = await self._client.hmget(f"{stem}head", ["names", "number", "size"])
            if told[0] is not None:  # else it ended meanwhile
                names, head = unpack_ascii(told[0]), Head(int(told[1]), int(told[2] or 0), "")
                edits = sum([1 async for _ in self._edits(stem)])
                found.append(SessionInfo(names["user_id"], names["session_id"], head, edits, None))
        return found

    async def _refs(self, but: str | None) -> list[set[str]]:
        return [
            set(refs_in([edit async for edit in self._edits(stem_under(self._prefix, session))]))
            for session in await digests_under(self._client, self._prefix, "head")
            if session != but
        ]

    def history(self, user_id: str, session_id: str) -> RedisHistory:
        """Return the history of a session."""
        return RedisHistory(
            self._client,
            user_id=user_id,
            session_id=session_id,
            key_prefix=self._prefix,
            key_ttl=self._ttl,
        )

    def states(self) -> RedisStates:
        """Return the states of adapters under the prefix."""
        return RedisStates(self._client, key_prefix=self._prefix)

    def lost(
        self,
        user_id: str,
        session_id: str,
        entries: Iterable[Entry],
        edits: Iterable[Edit],
        *,
        learnt: bool,
    ) -> list[RemovedObject]:
        """Return the fields and members that a write removed and rewrote."""
        stem = stem_of(self._prefix, user_id, session_id)

        def field(part: str, name: str, said: Any = None, action: str = "rewritten") -> RemovedObject:
            size = 0 if said is None else len(pack_ascii(said))
            return RemovedObject("redis key", f"{stem}{part} {name}", size, action)

        of_head = ["held", "number", "size", "token", "writes", *(["learnt"] if learnt else [])]
        found = [field("head", name) for name in of_head]
        for entry in entries:
            key = digest(entry.key)
            found += [field("messages", key), field("changed", key)]
            found.append(field("bodies", key, entry.msg and entry.msg.to_dict(), "removed"))
            members = [f"{digest(mark)}:{key}" for mark in entry.marks]
            found += [field("marks", one, action="removed")._replace(bytes=len(one)) for one in members]
        for edit in edits:
            name = name_digest(name_of(edit))
            found += [field("ledger", name, edit_to_dict(edit)), field("edits", name)]
        return found

    async def remove(self, user_id: str, session_id: str) -> list[RemovedObject]:
        """Remove a session's keys, whatever they are, in one script, and its name; return what they held."""
        told: Any = await self._remove(await self._keys_of(user_id, session_id))
        await UserSessions(self._client, user_id, self._prefix, self._ttl).remove(session_id)
        return [
            RemovedObject("redis key", f"{as_text(key)} {as_text(field)}".rstrip(), int(size))
            for key, field, size in told
        ]

    async def _keys_of(self, user_id: str, session_id: str) -> list[str]:
        """Return the keys that a session has, or may get while one looks."""
        known = self.history(user_id, session_id)._keys
        return sorted({*known, *await keys_like(self._client, stem_of(self._prefix, user_id, session_id))})

    async def _edits(self, stem: str) -> AsyncIterator[Any]:
        """Yield the edits of a ledger that hold, as they were written."""
        async for _, told in self._client.hscan_iter(f"{stem}ledger", count=_FIELDS):
            edit = unpack_ascii(told)["edit"]
            if edit is not None:
                yield edit
