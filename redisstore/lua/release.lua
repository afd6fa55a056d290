-- Ends a holding and hands the lock to the first waiters that fit, in one step.
-- Compares the whole value before it deletes. With a place it also leaves the queue.
--
-- KEYS   1 lock, 2 queue, 3 signs, 4 floor, 5 holders: see holders.lua and queue.lua
--        6 born, or none
-- ARGV   1  token
--        2  the holder's fence, "0" if unknown
--        3  until: µs of the server's clock after which the release is void
--        4  keep: ms for which the lock stays taken, by the token and " kept", "0" to
--           free it
--        5  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        6  the place to leave, token included, or ""
--        7… with the sixth key, a ballot: see serving in born.lua
-- Reply  1 the token held, 0 it did not; else the server's time in µs: it came too late

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[3]) then return now end

local token, place = ARGV[1], ARGV[6]
local lock, queue, signs, floor, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

if place ~= '' then
  redis.call('ZREM', queue, place)
  redis.call('HDEL', signs, place, '?' .. place)
end

-- What a server without memory refuses is never written first: a release needs none.
local holder = redis.call('GET', lock)
local mine = holder == token
local shared = holder and not mine and string.sub(holder, 1, 12) == 'dibs:shared '
local head
if mine and ARGV[4] == '0' then
  head = redis.call('ZPOPMIN', queue)
  if not head[1] then -- the usual case: nobody waits
    redis.call('DEL', lock, signs)
    return 1
  end
elseif holder and not mine and not shared or not holder and redis.call('EXISTS', queue) == 0 then
  return 0
end

-- The usual hand-off: the first waiter wants the lock exclusively, has joined lately and
-- can be reached. As above it makes no functions, and does what serve would. The signs
-- know nothing of so young a place: see signed.
local ttl, weight, limit, client, heir
if head and not KEYS[6] and now % 32 ~= 0 then
  ttl, weight, limit, client, heir = string.match(head[1], '^%x+ (%d+) (%d+)/(%d+) (%S+) (.*)$')
end
if ttl and weight == limit and math.abs(now - tonumber(head[2])) < 1250000 then
  local reached = ARGV[5] == '0' or redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
  if reached == true or reached.err or reached[2] ~= 0 then
    local fence = math.max(tonumber(ARGV[2]) + 1, now)
    local before = redis.pcall('SET', floor, string.format('%.0f', fence), 'GET')
    if type(before) ~= 'table' then
      if before and tonumber(before) >= fence then
        fence = tonumber(before) + 1
        redis.call('SET', floor, string.format('%.0f', fence))
      end
      local message = string.format('%.0f %.0f %.0f ', fence, head[2], now) .. heir
      redis.pcall('PUBLISH', 'dibs:c:' .. client, message)
      redis.call('HDEL', signs, '=')
      redis.call('SET', lock, heir, 'PX', ttl)
      return 1
    end
  end
end

-- The usual case of one who shared it: nobody waits, and none has expired.
if shared and ARGV[4] == '0' and redis.call('EXISTS', queue) == 0 then
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
  local weight = string.match(redis.call('HGET', signs, '=' .. token) or '', '^%d+')
  if first and weight and first * 1000 > now and redis.call('ZREM', holders, token) == 1 then
    local sum = string.sub(holder, 13) - weight
    local last = sum > 0 and redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
    if last then
      redis.call('HDEL', signs, '=' .. token)
      local ms = last - time[1] * 1000 - math.ceil(time[2] / 1000)
      redis.call('SET', lock, 'dibs:shared ' .. string.format('%.0f', sum), 'PX', math.max(ms, 1))
    else
      redis.call('DEL', lock, signs, holders)
    end
    return 1
  end
end

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include born.lua

local used = 0
if shared then
  local unknown
  used, unknown = taken(holder)
  if unknown then return 0 end
  mine = used > 0 and redis.call('ZSCORE', holders, token) ~= false
end
if mine and ARGV[4] ~= '0' then
  -- The token holds no more, or a renewal that is under way would prolong it.
  local ms, kept = tonumber(ARGV[4]), token .. ' kept'
  if shared then
    local weight, fence, client = string.match(redis.call('HGET', signs, '=' .. token) or '1 0 -', '^(%d+) (%d+) (.*)$')
    used = drop(token, used)
    used = part(kept, tonumber(weight), ms, tonumber(fence), client, used)
    settle(used)
  else
    redis.call('PEXPIRE', lock, ms)
    redis.call('SET', lock, kept, 'PX', ms)
    if ARGV[2] ~= '0' then note(kept, tonumber(ARGV[2]), '-') end
  end
  local front = redis.call('ZRANGE', queue, 0, 0)[1]
  if front then nudge(front) end -- it asks again, to learn when the lock ends now
  return 1
end
if mine and shared then used = drop(token, used) end
local least = KEYS[6] and serving(KEYS[6], 7) or math.max(tonumber(ARGV[2]) + 1, now)
used = serve(used, least, ARGV[5], true, head)
settle(used)
if used == 0 then
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', signs, holders) end
end
return mine and 1 or 0
