"""What Redis runs as a whole: a write, a claim, and another life for all keys of a session."""

from __future__ import annotations

WRITE = """
-- KEYS: head, messages, ids, order, changed, marks, ledger, edits, gone, leases, bodies, texts, stored
-- ARGV: 1 number expected, 2 token of this write, 3 TTL in seconds or "", 4 what to do, as JSON
local number = tonumber(redis.call('HGET', KEYS[1], 'number') or '0')
if number ~= tonumber(ARGV[1]) then
    if redis.call('HGET', KEYS[1], 'token') == ARGV[2] then return {1, number} end  -- sent twice
    return {0, number}
end
local plan = cjson.decode(ARGV[4])
number = number + 1
for _, name in ipairs(plan.keys) do
    local key = KEYS[name[1]]
    for i = 2, #name do
        local command = name[i]
        redis.call(command[1], key, unpack(command, 2))
    end
end
redis.call('HSET', KEYS[1], 'number', number, 'token', ARGV[2])
for _, key in ipairs(KEYS) do
    if ARGV[3] ~= '' then redis.call('EXPIRE', key, ARGV[3]) end
end
return {1, number}
"""
"""Nothing in it can fail half way: it knows the number it goes on from, and only sets and removes."""
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
if held and string.match(held, ' (.*)$') ~= ARGV[2] then return 0 end
if tonumber(ARGV[3]) == 0 then return redis.call('HDEL', KEYS[1], ARGV[1]) end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f %s', now + ARGV[3], ARGV[2]))
if ARGV[4] ~= '' then redis.call('EXPIRE', KEYS[1], ARGV[4]) end
return 1
"""
TOUCH = "for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, ARGV[1]) end return 1"
