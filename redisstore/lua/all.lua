-- Takes several locks, each alone and all together or none, or joins or keeps a place
-- in each of their queues, the same in all. Atomic; idempotent by token.
--
-- KEYS   for each name: lock, queue, signs, floor, holders: see holders.lua and queue.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the claim is void
--        5  the place, without its token, or "" not to queue
-- Reply  {the server's time in µs, answer}. The answer is as in acquire.lua; if it is
--        not held, with a fifth field: which of the names, from 1, is taken.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[4]) then return { now, 0 } end

local token, ttl, place = ARGV[2], tonumber(ARGV[3]), ARGV[5]
if place ~= '' then place = place .. ' ' .. token end

-- Fast path: all names are free, and nobody waits. It creates no functions, because that
-- would cost more than the rest. The stack of Lua limits the number of values of unpack.
local rest = {}
for i = 1, #KEYS, 5 do
  rest[#rest + 1], rest[#rest + 2], rest[#rest + 3], rest[#rest + 4] = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 4]
end
if #rest <= 4000 and redis.call('EXISTS', unpack(rest)) == 0 then
  local fence = now
  for i = 4, #KEYS, 5 do fence = math.max(fence, (tonumber(redis.call('GET', KEYS[i]) or 0)) + 1) end
  fence = string.format('%.0f', fence)
  for i = 1, #KEYS, 5 do
    redis.call('SET', KEYS[i + 3], fence)
    redis.call('SET', KEYS[i], token, 'PX', ttl)
  end
  return { now, fence }
end

local lock, queue, signs, floor, holders -- of the name that is looked at

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include place.lua

local function look(i)
  lock, queue, signs, floor, holders = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
  length, kept = nil, {}
end

if place ~= '' then here[place] = true end
local busy, held, left
for i = 1, #KEYS, 5 do
  look(i)
  local used, holder = taken()
  if holder ~= token then
    local front
    if not holder then used, holder, front = serve(used, now, ARGV[1], false) end
    settle(used)
    if used > 0 or more or front and front ~= place then
      local who, ms = first(used, holder)
      if not busy or ms >= 0 and (left < 0 or ms < left) then
        busy, held, left = (i + 4) / 5, who, ms
      end
    end
  end
end

if not busy then
  local fence = now
  for i = 4, #KEYS, 5 do fence = math.max(fence, tonumber(redis.call('GET', KEYS[i]) or 0) + 1) end
  for i = 1, #KEYS, 5 do
    look(i)
    redis.call('SET', floor, integer(fence))
    local again = redis.call('GET', lock) == token
    redis.call('SET', lock, token, 'PX', math.max(ttl, redis.call('PTTL', lock)))
    if again then note(token, fence, '-') else redis.call('HDEL', signs, '=') end
    if place ~= '' and redis.call('ZREM', queue, place) == 1 then redis.call('HDEL', signs, place, '?' .. place) end
  end
  return { now, integer(fence) }
end

-- A waiter for several names holds none: if it held them and has lost one, it loses the
-- others, which are handed on.
for i = 1, #KEYS, 5 do
  look(i)
  if redis.call('GET', lock) == token then
    local used = serve(0, now, ARGV[1], true)
    settle(used)
    if used == 0 then
      redis.call('DEL', lock)
      if redis.call('EXISTS', queue) == 0 then redis.call('DEL', signs, holders) end
    end
  end
end

if place == '' then return { now, { '0', 0, left, held, busy } } end

-- One ticket in all queues, also in one that has lost the place: if two sets stood in
-- different orders, they would wait for each other.
local ticket = integer(now)
for i = 1, #KEYS, 5 do
  local score = redis.call('ZSCORE', KEYS[i + 1], place)
  if score then ticket = integer((ticketed(score))) end
end
local position = 0
for i = 1, #KEYS, 5 do
  look(i)
  stand(place, ticket)
  position = math.max(position, redis.call('ZRANK', queue, place) + 1)
end
return { now, { ticket, position, left, held, busy } }
