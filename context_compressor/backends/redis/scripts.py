"""How sessions lie in Redis: their keys, the rows in these, and the scripts that change them as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from context_compressor.backends.records import digest, from_tokens, place_of, to_message, unpack_ascii
from context_compressor.backends.redis.clients import make_ready
from context_compressor.core.edits import message_id
from context_compressor.memory.history import Entry
from context_compressor.messages.skeletons import as_message

PARTS = (
    "head",
    "messages",
    "ids",
    "order",
    "changed",
    "marks",
    "ledger",
    "edits",
    "gone",
    "leases",
    "bodies",
    "texts",
    "stored",
)
"""The keys of a session, behind their stem. `messages` says all of a message but its content, which stands in
`bodies`; the last two are what a `RedisOffloadStore` of its own holds."""
_DIGEST_CHARACTERS = 64
_AT_ONCE = 1_000
"""Keys that a server looks at for one answer."""
_SPECIAL = frozenset("\\[]*?^-")
"""What a pattern does not take as itself."""

_LOST = """
local function held()  -- which keys are there that only writes make
    local told = ''
    for i = 2, 11 do told = told .. ((i ~= 10 and redis.call('EXISTS', KEYS[i]) == 1) and '1' or '0') end
    return told
end
local function lost()  -- the place of a key that is gone while others are there to stay, else 0
    local now, number = held(), redis.call('HGET', KEYS[1], 'number')
    local before = number and redis.call('HGET', KEYS[1], 'held') or ''
    local there, gone = 1, 0
    if not number then
        there, gone = string.find(now, '1'), 1
        if not there then return 0 end
        there = there + 1
    elseif string.match(before, '^%d+') == number then  -- else an earlier release has written since
        before = string.match(before, '%d+$')
        for i = 1, #before do
            if string.sub(before, i, i) == '1' and string.sub(now, i, i) == '0' then gone = i + 1 end
        end
    end
    local left = redis.call('PTTL', KEYS[there])  -- those of one session do not end in the same millisecond
    if left >= 0 and left < 1000 then return 0 end
    return gone
end
"""
HEAD = f"""
-- KEYS: as in WRITE. ARGV: fields of head. Returns the place of a key that was lost, or 0, and the values.
{_LOST}
return {{lost(), redis.call('HMGET', KEYS[1], unpack(ARGV))}}
"""
_WRITE = """
-- KEYS: head, messages, ids, order, changed, marks, ledger, edits, gone, leases, bodies, texts, stored
-- ARGV: 1 number expected, 2 token of this write, 3 TTL in seconds or "", 4 what to do, as JSON,
--       5 names of the last writes expected, 6 name of this write, 7 characters of names that are kept
local gone = lost()
if gone ~= 0 then return {-gone, 0} end
local number = tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
local names = redis.call('HGET', KEYS[1], 'writes') or ''
if number ~= tonumber(ARGV[1]) or names ~= ARGV[5] then
    if redis.call('HGET', KEYS[1], 'token') == ARGV[2] then return {1, number, names} end  -- sent twice
    return {0, number}
end
names = string.sub(ARGV[6] .. names, 1, tonumber(ARGV[7]))
local plan = cjson.decode(ARGV[4])
number = number + 1
for _, name in ipairs(plan.keys) do
    local key = KEYS[name[1]]
    for i = 2, #name do
        local command = name[i]
        redis.call(command[1], key, unpack(command, 2))
    end
end
local held_now = string.format('%d:%s', number, held())
redis.call('HSET', KEYS[1], 'number', number, 'token', ARGV[2], 'writes', names, 'held', held_now)
local left = redis.call('PTTL', KEYS[1])
for _, key in ipairs(KEYS) do
    if ARGV[3] ~= '' then redis.call('EXPIRE', key, ARGV[3])
    elseif left > 0 then redis.call('PEXPIRE', key, left) end  -- a new key ends with the session
end
return {1, number, names}
"""
"""Nothing in it can fail half way: it knows the number it goes on from, and only sets and removes."""
WRITE = _LOST + _WRITE
CLAIM = """
-- KEYS: leases
-- ARGV: 1 name, 2 holder, 3 milliseconds, 4 TTL in seconds or ""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do  -- there are few
    local lease = redis.call('HGET', KEYS[1], name)
    if tonumber(string.match(lease, '^%d+')) <= now then redis.call('HDEL', KEYS[1], name) end
end
local held = redis.call('HGET', KEYS[1], ARGV[1])
if held and string.match(held, ' (.*)$') ~= ARGV[2] then
    -- One that is to last for longer than any was granted for is from before the clock was set back.
    if tonumber(ARGV[3]) == 0 or tonumber(string.match(held, '^%d+')) <= now + 2 * ARGV[3] then return 0 end
end
if tonumber(ARGV[3]) == 0 then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + ARGV[3], ARGV[2]))
if ARGV[4] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[4]) end
return 1
"""
TOUCH = "for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end return 1"


# Keys


def stem_of(key_prefix: str, *ids: str) -> str:
    """Return how the keys of a session, or of a user, begin; those of one lie in one slot of a cluster."""
    return stem_under(key_prefix, digest(*ids))


def stem_under(key_prefix: str, name: str) -> str:
    """Return the same for the digest of the ids, or of a namespace."""
    return f"{key_prefix}context_compressor:{{{name}}}:"


async def keys_like(client: Any, stem: str, end: str = "") -> list[str]:
    """Return the keys that begin and end so, sorted; every key of the server is looked at."""
    await make_ready(client)
    escaped = "".join(f"\\{one}" if one in _SPECIAL else one for one in stem)
    found: Any = client.scan_iter(f"{escaped}*{end}", _AT_ONCE)
    return sorted({as_text(key) async for key in found})


async def digests_under(client: Any, key_prefix: str, part: str) -> list[str]:
    """Return what stands in the braces of the keys for one part of sessions, or namespaces, sorted."""
    stem, end = f"{key_prefix}context_compressor:{{", f"}}:{part}"
    found = (key.removeprefix(stem).removesuffix(end) for key in await keys_like(client, stem, end))
    return [one for one in found if len(one) == _DIGEST_CHARACTERS]


# What is in them


def as_text(value: str | bytes) -> str:
    """Return what a client gave, decoded or not, as text; what others wrote may be no UTF-8."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def as_texts(values: Iterable[str | bytes]) -> list[str]:
    return [as_text(value) for value in values]


def by_name(fields: Mapping[str | bytes, str | bytes]) -> dict[str, str | bytes]:
    return {as_text(name): value for name, value in fields.items()}


def entry_of(one: Mapping[str, Any], body: str | bytes | None) -> Entry:
    """Return a message; one whose content is gone was deleted, if only since its row was read."""
    place, changed, key = place_of(*one["place"]), one["changed"], one["key"]
    if body is None or not one["is_there"]:
        return Entry(place, changed, key, None)
    msg, tokens = to_message(unpack_ascii(body)), from_tokens(one["tokens"])
    return Entry(place, changed, key, msg, tuple(one["marks"]), tokens)


def outlined_of(one: Mapping[str, Any]) -> Entry:
    key, changed, added = one["key"], one["changed"], one["added"]
    msg, tokens = as_message(message_id(key), one["skeleton"]), from_tokens(one["tokens"])
    return Entry(place_of(*one["place"]), changed, key, msg, tuple(one["marks"]), tokens, added)
