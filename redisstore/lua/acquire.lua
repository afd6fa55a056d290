-- Takes the lock, or a part of it, refreshes a holding, or joins or keeps a place in
-- the queue. Atomic; idempotent by token. Serves several claims on one name, in order.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1    check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        then for each claim:
--        +1   token
--        +2   TTL in ms
--        +3   until: µs of the server's clock after which the claim is void
--        +4   the place, without its token, or "" not to queue
--        +5   "weight/limit client" to share the lock, "" to hold it exclusively
-- Reply  {the server's time in µs, then an answer for each claim}. An answer is
--        "fence"                   held
--        {ticket, position, ms until the first holder expires, its token}
--                                  not held; ticket "0" and position 0 if not queued;
--                                  no token, and 5000 ms, if it is kept for somebody;
--                                  no token, and 0 ms: ask again at once, the queue was
--                                  too long for one call
--        0                         void: it came too late
--        For a single claim whose fence is the server's time: that, as an integer.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local there = ARGV[6] == '' and redis.call('EXISTS', lock, queue, meta) or redis.call('EXISTS', lock, queue, meta, holders)
local free = there == 0 -- and nobody waits

-- The usual case, a single exclusive claim and nobody there, makes no functions:
-- that would cost more than all it does.
local usual = free and not ARGV[7] and ARGV[6] == '' and now <= tonumber(ARGV[4])
local before = usual and redis.pcall('SET', highwater, stamp, 'GET')
if usual and (not before or type(before) == 'string' and tonumber(before) < now) then
  redis.call('SET', lock, ARGV[2], 'PX', ARGV[3])
  return now
end

-- The usual case when it is held exclusively: to be told so, or to join the queue.
local holding
if free then
  holding = false
elseif not ARGV[7] and now <= tonumber(ARGV[4]) then
  holding = redis.call('GET', lock)
end
if holding and holding ~= ARGV[2] and string.sub(holding, 1, 12) ~= 'dibs:shared ' then
  if ARGV[5] == '' then return { now, { '0', 0, redis.call('PTTL', lock), holding } } end
  if redis.call('ZADD', queue, 'NX', stamp, ARGV[5] .. ' ' .. ARGV[2]) == 1 then
    local position = redis.call('ZCARD', queue)
    if position == 1 then redis.call('PEXPIRE', queue, 60000) end
    return { now, { stamp, position, redis.call('PTTL', lock), holding } }
  end
end

-- The usual case when it is shared, or is to be: to join those who share it, if there
-- is room even beside those who have expired and are not removed yet.
local sum, all, weight, limit, client
if ARGV[6] ~= '' and (free or there == 3 and holding) and redis.call('EXISTS', queue) == 0 then
  sum = free and 0 or tonumber(string.match(holding, '^dibs:shared (%d+)$'))
  weight, limit, client = string.match(ARGV[6], '^(%d+)/(%d+) (.*)$')
  all = sum and sum + weight
end
if all and all <= tonumber(limit) and not ARGV[7] and now <= tonumber(ARGV[4]) then
  local token, ttl, last = ARGV[2], tonumber(ARGV[3]), redis.pcall('SET', highwater, stamp, 'GET')
  local ms = time[1] * 1000 + math.ceil(time[2] / 1000) + ttl
  if (not last or type(last) == 'string') and redis.call('ZADD', holders, 'NX', ms, token) == 1 then
    local fence = now
    if last and tonumber(last) >= now then
      fence = last + 1
      redis.call('SET', highwater, fence)
    end
    fence = string.format('%.0f', fence)
    redis.call('HSET', meta, '=' .. token, weight .. ' ' .. fence .. ' ' .. client)
    if not free then ttl = math.max(ttl, redis.call('PTTL', lock)) end
    redis.call('SET', lock, 'dibs:shared ' .. string.format('%.0f', all), 'PX', ttl)
    if free or redis.call('PTTL', holders) < ttl + 30000 then -- see settle
      redis.call('PEXPIRE', holders, ttl + 60000)
      redis.call('PEXPIRE', meta, ttl + 60000)
    end
    return { now, fence }
  end
end

--#include fence.lua

if usual then
  local fence = raised(before, now)
  redis.call('SET', lock, ARGV[2], 'PX', ARGV[3])
  return { now, string.format('%.0f', fence) }
end

--#include holders.lua
--#include queue.lua
--#include entry.lua

local used, holder = taken(holding, free)
local waiting = not free and not holder and redis.call('EXISTS', queue) == 1
local served, passed = false, false -- passed: those who wait were passed over, as yet

--#include grant.lua

local reply, held, left = { now }, nil, nil

for i = 2, #ARGV, 5 do
  local token, ttl, place = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 3]
  weight, limit, client = string.match(ARGV[i + 4], '^(%d+)/(%d+) (.*)$')
  weight, limit = tonumber(weight), tonumber(limit)
  if place ~= '' then place = place .. ' ' .. token end
  local answer
  if now > tonumber(ARGV[i + 2]) then
    answer = 0
  else
    if waiting and not served and not holder and not holds(token) then
      -- Something expired, or was deleted by one that does not hand on: those who
      -- wait come first, and this claim is one of them.
      if place ~= '' then stand(place, integer(now)) end
      local front
      used, holder, front = serve(used, now, ARGV[1], false)
      served, passed = true, not front and not more
      waiting = not passed or redis.call('EXISTS', queue) == 1
      held, left, length, kept = nil, nil, nil, {}
    end
    if holds(token) then
      answer = refresh(token, ttl, place, weight, now)
    elseif (not waiting or passed and place ~= '') and used + (weight or 1) <= (limit or 1) then
      if waiting then -- it goes before those, and may be one of them
        redis.call('ZREM', queue, place)
        redis.call('HDEL', meta, place, '?' .. place)
      end
      answer = take(token, ttl, weight, client, now)
      held, left = nil, nil
    else
      if not held then held, left = first(used, holder) end
      if place == '' then
        answer = { '0', 0, left, held }
      else
        local ticket, position = stand(place, integer(now))
        waiting, passed = true, false
        answer = { ticket, position, left, held }
      end
    end
  end
  reply[#reply + 1] = answer
end
settle(used)
return reply
