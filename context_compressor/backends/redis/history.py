"""`RedisMemory`: history and ledger in Redis, Redis Cluster or Valkey."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Self
from uuid import uuid4
from weakref import WeakKeyDictionary, WeakValueDictionary

from context_compressor.errors import ConflictError, InvalidArgumentError, InvalidStateError, naming_extras

with naming_extras():
    from redis.asyncio import ConnectionPool

from context_compressor.backends.batch import TOLD_WRITES, Batch, Place, Row, check, touched_by
from context_compressor.backends.records import (
    DEFAULT_SESSION,
    DEFAULT_USER,
    as_name,
    digest,
    from_name,
    name_digest,
    pack_ascii,
    place_of,
    place_parts,
    to_edit,
    to_name,
    to_tokens,
    unpack_ascii,
)
from context_compressor.backends.redis.clients import (
    Client,
    check_keys,
    client_at,
    client_for,
    client_over,
    close,
    look_at_eviction,
    make_ready,
)
from context_compressor.backends.redis.scripts import (
    CLAIM,
    HEAD,
    PARTS,
    TOUCH,
    WRITE,
    as_text,
    as_texts,
    by_name,
    entry_of,
    outlined_of,
    stem_of,
)
from context_compressor.backends.redis.users import UserSessions
from context_compressor.core.edits import edit_to_dict
from context_compressor.memory.base import MemoryBase
from context_compressor.memory.history import (
    NAMES_CHARACTERS,
    Change,
    Entry,
    Head,
    LedgerEntry,
    WriteNumber,
    conflict,
    is_same,
    ledger_entries,
    new_name,
)
from context_compressor.memory.loops import LoopLock
from context_compressor.messages.skeletons import skeleton_of

_AT_ONCE = 500
"""Fields that one command asks for."""
_ATTEMPTS = 1_000
"""How often a write is tried while others write."""


class _Writers:
    """One writer of a process to a session at a time: of many at once all but one would have to try again."""

    lock = LoopLock()


_WRITERS: WeakKeyDictionary[Client, WeakValueDictionary[str, _Writers]] = WeakKeyDictionary()


class RedisMemory(MemoryBase):
    """Keep a session's messages, marks, summary and ledger in Redis.

    Several processes may use one session at the same time. What was acknowledged survives a crash of the
    server only where that runs with `appendonly yes`, and a power loss with `appendfsync always`.

    Args:
        url_or_pool: a URL, such as "redis://localhost:6379/0", or "redis+cluster://localhost:7000" for a
            node of a cluster, whose connections are closed by `close`; a `ConnectionPool`, a `Redis` or a
            `RedisCluster`, which stay the caller's, for any number of memories. None: `host` and so on.
        session_id: names the session.
        user_id: whose it is. Users never see each other's sessions.
        host: of the server, with `port`, `db` and `password`.
        port: of the server.
        db: the database's number.
        password: of the server.
        connection_pool: as `url_or_pool`.
        key_prefix: what all keys begin with.
        key_ttl: seconds after which a session that nobody reads or writes is gone, whole; None: never.

    Raises:
        InvalidArgumentError: an argument is none of that.
    """

    def __init__(
        self,
        url_or_pool: str | ConnectionPool | Client | None = None,
        *,
        session_id: str | None = DEFAULT_SESSION,
        user_id: str | None = DEFAULT_USER,
        host: str = "localhost",
        port: int = 6379,
        db: int = 0,
        password: str | None = None,
        connection_pool: ConnectionPool | None = None,
        key_prefix: str = "",
        key_ttl: int | None = None,
    ) -> None:
        given = url_or_pool if connection_pool is None else connection_pool
        if url_or_pool is not None and connection_pool is not None:
            raise InvalidArgumentError("url_or_pool and connection_pool: give one of them")
        own: Client | None = None
        if given is None:
            own = client_at(host=host, port=port, db=db, password=password)
        elif isinstance(given, str):
            own = client_for(given)
        client = own or client_over(given)
        super().__init__(
            RedisHistory(
                client, session_id=session_id, user_id=user_id, key_prefix=key_prefix, key_ttl=key_ttl
            )
        )
        self._own = own

    @property
    def history(self) -> RedisHistory:
        """Where the messages live."""
        assert isinstance(self._history, RedisHistory)
        return self._history

    def get_client(self) -> Client:
        """Return the client by which this memory asks."""
        return self.history.client

    async def close(self) -> None:
        """Close the client, if it was made here; nothing that was given."""
        if self._own is not None:
            await close(self._own)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class RedisHistory:
    """A session's history in Redis; `RedisMemory` tells of the arguments.

    All keys of a session lie in one slot of a cluster. Values are ASCII, so that a client which decodes
    responses gives the same back as one that does not.
    """

    def __init__(
        self,
        client: Client,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        key_prefix: str = "",
        key_ttl: int | None = None,
    ) -> None:
        user = as_name(user_id, "user_id", DEFAULT_USER)
        self.session_id = name = as_name(session_id, "session_id", DEFAULT_SESSION)
        check_keys(key_prefix, key_ttl)
        self.client = client
        self._ttl = key_ttl
        self._names = pack_ascii({"user_id": user, "session_id": name})
        self._session, self._sessions = name, UserSessions(client, user, key_prefix, key_ttl)
        stem = stem_of(key_prefix, user, name)
        self._keys = [stem + part for part in PARTS]
        self._head, self._messages, self._ids, self._order = self._keys[:4]
        self._changed, self._marks, self._ledger, self._edits, self._gone, self._leases = self._keys[4:10]
        self._bodies = self._keys[10]
        self._writers = _WRITERS.setdefault(client, WeakValueDictionary()).setdefault(self._head, _Writers())
        self._look = client.register_script(HEAD)
        self._write = client.register_script(WRITE)
        self._touch = client.register_script(TOUCH)
        self._claim = client.register_script(CLAIM)

    # The four verbs

    async def head(self) -> Head:
        """Return where the history stands."""
        await make_ready(self.client)
        await look_at_eviction(self.client, self._ttl is not None)
        number, names, size, summary = await self._told(["number", "writes", "size", "summary"])
        await self._renew()
        if number is not None:
            await self._sessions.note(self._session)
        said = "" if summary is None else str(unpack_ascii(summary)["summary"])
        return Head(WriteNumber(int(number or 0), as_text(names or "")), int(size or 0), said)

    async def read(
        self,
        *,
        after: int = 0,
        ids: Collection[str] | None = None,
        mark: str | None = None,
        limit: int | None = None,
    ) -> list[Entry]:
        """Return messages as `History.read` does."""
        keys: Iterable[str] | None = None
        await make_ready(self.client)
        await self._told(["number"])
        if after:
            keys = as_texts(await self._ask("zrangebyscore", self._changed, f"({after}", "+inf"))
        if mark is not None:
            stem = digest(mark)
            found = await self._ask("zrangebylex", self._marks, f"[{stem}:", f"[{stem};")
            bearing = {one.partition(":")[2] for one in as_texts(found)}
            keys = bearing if keys is None else bearing.intersection(keys)
        if ids is not None:
            named = await self._keys_of(map(digest, dict.fromkeys(ids)))
            wanted = set(named if keys is None else keys)
            keys = [key for key in named if key in wanted]
        told = await self._rows_of(keys)
        if keys is None:
            bodies = by_name(await self._ask("hgetall", self._bodies))
        else:
            bodies = await self._fields(self._bodies, told)
        entries = [entry_of(one, bodies.get(key)) for key, one in told.items()]
        await self._renew()
        there = [entry for entry in entries if after or entry.msg is not None]
        return sorted(there, key=lambda entry: entry.place)[:limit]

    async def outline(self) -> list[Entry]:
        """Return every message as `Outlines.outline` does."""
        told = map(unpack_ascii, await self._ask("hvals", self._messages))
        await self._renew()
        return sorted((outlined_of(one) for one in told if one["is_there"]), key=lambda entry: entry.place)

    async def write(self, changes: Sequence[Change], *, at: int | None = None) -> int:
        """Make changes as `History.write` does, in one script."""
        check(changes)
        async with self._writers.lock:
            return await self._make(changes, at)

    async def _make(self, changes: Sequence[Change], at: int | None) -> int:
        token, name = uuid4().hex, new_name()
        for attempt in range(_ATTEMPTS):
            number, last_place, size = await self._where()
            if at is not None and not is_same(number, at):
                raise conflict(number, at)
            await self._sessions.note(self._session, is_new=number == 0)
            plan = await self._plan(changes, number + 1, last_place, size)
            ttl = "" if self._ttl is None else str(self._ttl)
            told: list[str | int] = [
                int(number),
                token,
                ttl,
                json.dumps(plan),
                number.names,
                name,
                NAMES_CHARACTERS,
            ]
            done, now, *names = await self._write(self._keys, told)
            if done < 0:
                raise self._evicted(-done)
            if done:
                if number == 0:  # or who removed the session meanwhile would have taken its name
                    await self._sessions.note(self._session, is_new=True)
                return WriteNumber(int(now), as_text(names[0]))
            if at is not None:
                raise conflict(int(now), at)
            await asyncio.sleep(random.random() * min(0.05, 0.001 * 2**attempt))
        raise ConflictError("the history changes too fast to write to it; try again", number=int(now))

    async def ledger(self, *, after: int = 0) -> list[LedgerEntry]:
        """Return edits as `History.ledger` does."""
        names = as_texts(await self._ask("zrangebyscore", self._edits, f"({after}", "+inf"))
        told = [unpack_ascii(one) for one in (await self._fields(self._ledger, names)).values()]
        told.sort(key=lambda one: (one["number"], one["position"]))
        learnt, found = None, await self._ask("hget", self._head, "learnt")
        if found is not None and (newest := unpack_ascii(found))["number"] > after:
            learnt = newest["number"], newest["learnt"]
        return ledger_entries(
            ((one["number"], to_edit(one["edit"])) for one in told if one["edit"] is not None),
            ((one["number"], to_name(one["name"])) for one in told if after and one["edit"] is None),
            learnt,
        )

    async def claim(self, name: str, holder: str, seconds: float) -> bool:
        """Claim something as `Leases.claim` does, by the server's clock."""
        await make_ready(self.client)
        ttl = "" if self._ttl is None else str(self._ttl)
        milliseconds = math.ceil(seconds * 1000)
        return bool(await self._claim([self._leases], [digest(name), digest(holder), milliseconds, ttl]))

    async def _told(self, fields: list[str]) -> Any:
        """Return fields of the head; refuse a session that has lost one of its keys."""
        lost, values = await self._look(self._keys, fields)
        if lost:
            raise self._evicted(int(lost))
        return values

    def _evicted(self, place: int) -> InvalidStateError:
        return InvalidStateError(
            f"Redis has lost the key {self._keys[place - 1]} of this session, whose other keys are there: it "
            "evicts keys, or somebody removed it; set maxmemory-policy to noeviction, and restore the "
            "session from a backup, or delete it"
        )

    # Asking

    async def _ask(self, command: str, *arguments: Any) -> Any:
        await make_ready(self.client)
        answer = getattr(self.client, command)(*arguments)
        return await answer

    async def _renew(self) -> None:
        """Let the session live on: whoever reads it keeps it."""
        if self._ttl is not None:
            await self._touch(self._keys, [self._ttl])

    async def _fields(self, key: str, fields: Iterable[str]) -> dict[str, Any]:
        wanted, found = list(fields), dict[str, Any]()
        for start in range(0, len(wanted), _AT_ONCE):
            some = wanted[start : start + _AT_ONCE]
            values = await self._ask("hmget", key, some)
            found |= {name: value for name, value in zip(some, values, strict=True) if value is not None}
        return found

    async def _rows_of(self, keys: Iterable[str] | None) -> dict[str, dict[str, Any]]:
        """Return what is said of messages under these keys, or of all, beside their content."""
        if keys is None:
            told = by_name(await self._ask("hgetall", self._messages))
        else:
            told = await self._fields(self._messages, keys)
        return {key: unpack_ascii(one) for key, one in told.items()}

    async def _keys_of(self, id_digests: Iterable[str]) -> list[str]:
        """Return the digests of the keys of messages under these ids."""
        found = await self._fields(self._ids, id_digests)
        return [key for told in found.values() for key in as_text(told).split()]

    async def _where(self) -> tuple[WriteNumber, int, int]:
        names, *found = await self._ask("hmget", self._head, ["writes", "number", "last_place", "size"])
        number, last_place, size = (int(one or 0) for one in found)
        return WriteNumber(number, as_text(names or "")), last_place, size

    # Writing

    async def _plan(
        self, changes: Sequence[Change], number: int, last_place: int, size: int
    ) -> dict[str, Any]:
        """Return what the script has to do, as commands by the places of their keys."""
        ids, keys, names = touched_by(changes)
        rows, wanted = await self._rows([*await self._keys_of(ids), *keys]), set(keys)
        below = await self._places_below([row for row in rows if digest(row.key) in wanted], changes)
        held = await self._fields(self._ledger, map(name_digest, names))
        live = {name for name, one in held.items() if unpack_ascii(one)["edit"] is not None}
        batch = Batch(
            last_place,
            lambda place: max((one for one in below if one < place), default=None),
            {name for name in names if name_digest(name) in live},
        )
        batch.load(sorted(rows, key=lambda row: row.place))
        batch.make(changes)
        head: list[Any] = [
            "HSET",
            "size",
            size + batch.more,
            "last_place",
            batch.last_place,
            "names",
            self._names,
        ]
        if batch.summary is not None:
            head += ["summary", pack_ascii({"summary": batch.summary})]
        if batch.learnt:
            head += ["learnt", pack_ascii({"number": number, "learnt": dict(batch.learnt)})]
        by_key: dict[int, list[list[Any]]] = {1: [head]}
        await self._plan_rows(batch.touched, number, by_key)
        for position, (name, edit) in enumerate(batch.edits.items()):
            said = None if edit is None else edit_to_dict(edit)
            one = {"number": number, "position": position, "name": from_name(name), "edit": said}
            by_key.setdefault(7, []).append(["HSET", name_digest(name), pack_ascii(one)])
            by_key.setdefault(8, []).append(["ZADD", number, name_digest(name)])
        return {"keys": [[place, *commands] for place, commands in by_key.items()]}

    async def _plan_rows(self, rows: Sequence[Row], number: int, by_key: dict[int, list[list[Any]]]) -> None:
        old = await self._rows_of([digest(row.key) for row in rows if row.add is None])
        known = await self._fields(self._ids, {row.id_digest for row in rows})
        by_id = {one: as_text(told).split() for one, told in known.items()}
        for row in rows:
            key = digest(row.key)
            whole, fraction = place_parts(row.place)
            if row.add is not None:
                one: dict[str, Any] = {"key": row.key, "id": row.id_digest, "place": [whole, fraction]}
                one |= {"tokens": to_tokens(row.add.tokens), "skeleton": skeleton_of(row.add.msg)}
                one |= {"added": number}
                by_key.setdefault(4, []).append(["ZADD", whole, key])
                body = pack_ascii(row.add.msg.to_dict())
                by_key.setdefault(11, []).append(["HSET", key, body])
            else:
                one = old[key]
            one["is_there"] = row.is_there
            if not row.is_there:
                one |= {"tokens": None, "skeleton": None}
                by_key.setdefault(11, []).append(["HDEL", key])
            by_key.setdefault(9, []).append(["ZREM", key] if row.is_there else ["ZADD", number, key])
            one |= {"changed": number, "marks": row.marks}
            by_key.setdefault(2, []).append(["HSET", key, pack_ascii(one)])
            by_key.setdefault(5, []).append(["ZADD", number, key])
            own = by_id.setdefault(row.id_digest, [])
            if key not in own:
                own.append(key)
                by_key.setdefault(3, []).append(["HSET", row.id_digest, " ".join(own)])
            for verb, names in (("ZREM", row.lost), ("ZADD", row.gained if row.is_there else [])):
                for mark in names:
                    member = f"{digest(mark)}:{key}"
                    command = [verb, member] if verb == "ZREM" else [verb, 0, member]
                    by_key.setdefault(6, []).append(command)
        if not all(row.is_there for row in rows):
            await self._plan_tidying(number, {digest(row.key) for row in rows}, by_id, by_key)

    async def _plan_tidying(
        self, number: int, touched: set[str], by_id: dict[str, list[str]], by_key: dict[int, list[list[Any]]]
    ) -> None:
        """Forget deleted messages that were told of for long enough, but none that this write touches."""
        before = f"({number - TOLD_WRITES}"
        found = as_texts(await self._ask("zrangebyscore", self._gone, "-inf", before, 0, _AT_ONCE))
        told = await self._rows_of(key for key in found if key not in touched)
        for key in told:
            for place, verb in ((2, "HDEL"), (4, "ZREM"), (5, "ZREM"), (9, "ZREM")):
                by_key.setdefault(place, []).append([verb, key])
        ids = {one["id"] for one in told.values()}
        known = await self._fields(self._ids, ids - by_id.keys())
        for id in ids:
            own = by_id[id] if id in by_id else as_text(known.get(id, "")).split()
            left = [key for key in own if key not in told]
            by_key.setdefault(3, []).append(["HSET", id, " ".join(left)] if left else ["HDEL", id])

    async def _rows(self, keys: Sequence[str]) -> list[Row]:
        return [
            Row(one["key"], one["id"], place_of(*one["place"]), list(one["marks"]), one["is_there"])
            for one in (await self._rows_of(dict.fromkeys(keys))).values()
        ]

    async def _places_below(self, rows: Sequence[Row], changes: Sequence[Change]) -> list[Place]:
        """Return the places nearest below those of messages in front of which others come to stand."""
        if not any(getattr(change, "before", None) is not None for change in changes):
            return []
        wholes: set[int] = set()
        newest = await self._ask("zrevrange", self._order, 0, 0, True)
        wholes |= {int(score) for _, score in newest}
        for row in rows:
            whole = place_parts(row.place)[0]
            wholes.add(whole)
            nearest = await self._ask("zrevrangebyscore", self._order, f"({whole}", "-inf", 0, 1, True)
            wholes |= {int(score) for _, score in nearest}
        keys = [
            key
            for whole in sorted(wholes)
            for key in as_texts(await self._ask("zrangebyscore", self._order, whole, whole))
        ]
        return [row.place for row in await self._rows(keys)]
