-- Asks for a notification of the next waiter, for one holder. Atomic; idempotent. It also
-- removes dead entries from the head of the queue: the notification is sent when an entry
-- joins an empty queue.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1  token
--        2  client
-- Reply  {the server's time in µs, 1 or 0}: whether a request waits already. Then no
--        notification follows. 0 also if the token does not hold

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--#include fence.lua
--#include holders.lua
--#include queue.lua

local MAX_ASKED = 64 -- holders that are notified at most
local MAX_DEAD = 64  -- dead entries that one call looks at

local holder = redis.call('GET', lock)
local shared = holder and string.sub(holder, 1, #SHARED) == SHARED

local function holds(token)
  if not shared then return holder and split_value(holder) == token end
  local expires = tonumber(redis.call('ZSCORE', holders, token) or 0)
  return expires > math.floor(now / 1000)
end

-- has_waiters reports whether a live entry is in the queue, or more dead ones than this call
-- looks at.
local function has_waiters()
  local list, dead = redis.call('ZRANGE', queue, 0, MAX_DEAD - 1, 'WITHSCORES'), {}
  for i = 1, #list, 2 do
    if is_alive(list[i], (decode_score(list[i + 1]))) then return true end
    dead[#dead + 1] = list[i]
  end
  remove_entries(dead)
  return #dead == MAX_DEAD
end

if not holds(ARGV[1]) then return { now, 0 } end
if has_waiters() then return { now, 1 } end
--#redisson if foreign_client_waits() then return { now, 1 } end

local asked = { ARGV[2] .. ' ' .. ARGV[1] }
for _, other in ipairs(cjson.decode(redis.call('HGET', meta, '!') or '[]')) do
  local token = string.match(other, '^%S+ (.*)$')
  if #asked < MAX_ASKED and token ~= ARGV[1] and holds(token) then asked[#asked + 1] = other end
end
redis.call('HSET', meta, '!', cjson.encode(asked))
ensure_ttl(meta, redis.call('PTTL', lock) + (shared and AUX_TTL or 0))
return { now, 0 }
