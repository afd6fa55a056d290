-- Ends a holding and hands the lock to the first waiters that fit, in one step.
-- Compares the whole value before it deletes. With a place it also leaves the queue.
--
-- KEYS   1 lock, 2 queue, 3 signs, 4 floor: see holders.lua and queue.lua
--        5 born, or none
-- ARGV   1  token
--        2  the holder's fence, "0" if unknown
--        3  until: µs of the server's clock after which the release is void
--        4  keep: ms for which the lock stays taken, by the token and " kept", "0" to
--           free it
--        5  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        6  the place to leave, token included, or ""
--        7… with the fifth key, a ballot: see serving in born.lua
-- Reply  1 the token held, 0 it did not; else the server's time in µs: it came too late

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return now end

local token, place = ARGV[1], ARGV[6]
local lock, queue, signs, floor = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local left = false
if place ~= '' then
  left = redis.call('ZREM', queue, place) == 1
  redis.call('HDEL', signs, place, '?' .. place)
end

local holder = redis.pcall('GET', lock)
local head
if holder == token and ARGV[4] == '0' then
  head = redis.call('ZPOPMIN', queue)
  if not head[1] then -- the usual case: nobody waits
    redis.call('DEL', lock, signs)
    return 1
  end
elseif type(holder) == 'string' and holder ~= token or not holder and redis.call('EXISTS', queue) == 0 then
  return 0
end

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include born.lua

local least = KEYS[5] and serving(KEYS[5], 7) or math.max(tonumber(ARGV[2]) + 1, now)

local used, mine = 0, holder == token
if type(holder) == 'table' then
  used = taken(holder)
  mine = used > 0 and redis.call('ZSCORE', lock, token) ~= false
end
if mine and ARGV[4] ~= '0' then
  -- The token holds no more, or a renewal that is under way would prolong it.
  local ms, kept = tonumber(ARGV[4]), token .. ' kept'
  if used > 0 then
    local weight, fence, client = string.match(redis.call('HGET', signs, '=' .. token), '^(%d+) (%d+) (.*)$')
    used = drop(token, used)
    part(kept, tonumber(weight), ms, tonumber(fence), client, used)
  else
    redis.call('SET', lock, kept, 'PX', ms)
    if ARGV[2] ~= '0' then note(kept, tonumber(ARGV[2]), '-') end
  end
  local front = redis.call('ZRANGE', queue, 0, 0)[1]
  if front then -- it asks again, to learn when the lock ends now
    local _, _, _, _, client, waits = cut(front)
    tell(client, '0', '0', '0', waits)
  end
  return 1
end
if mine and used > 0 then used = drop(token, used) end
used = serve(used, least, ARGV[5], true, head)
if used == 0 then
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', signs) end
end
return mine and 1 or 0
