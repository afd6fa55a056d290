-- Takes the lock, refreshes a holding, or joins or keeps a place in the queue.
-- Atomic; idempotent by token. Serves several claims on one name, in order.
--
-- KEYS   as in queue.lua
-- ARGV   1    check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        then for each claim:
--        +1   token
--        +2   TTL in ms
--        +3   until: µs of the server's clock after which the claim is void
--        +4   the place, without its token, or "" not to queue
-- Reply  {the server's time in µs, then an answer for each claim}. An answer is
--        "fence"                   held
--        {ticket, position, ms until the holder expires, holder's token}
--                                  not held; ticket "0" and position 0 if not queued
--        0                         void: it came too late
--        For a single claim whose fence is the server's time: that, as an integer.

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local free = redis.call('EXISTS', KEYS[1], KEYS[2]) == 0 -- and nobody waits

-- The usual case, a single claim and nobody there, makes no functions: that would
-- cost more than all it does.
local usual = free and not ARGV[6] and now <= tonumber(ARGV[4])
local floor = usual and redis.pcall('SET', KEYS[4], stamp, 'GET')
if usual and (not floor or type(floor) == 'string' and tonumber(floor) < now) then
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return now
end

--#include fence.lua

if usual then
  local fence = raised(floor, now)
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
  return { now, string.format('%.0f', fence) }
end

--#include queue.lua

local reply = { now }

-- hold answers a claim whose token holds the lock already. It never shortens.
local function hold(ttl)
  if redis.call('PTTL', KEYS[1]) < tonumber(ttl) then redis.call('PEXPIRE', KEYS[1], ttl) end
  return string.format('%.0f', mint(now))
end

-- What this call knows of the queue, until it serves somebody: its length, and
-- which of its keys it has prolonged.
local length, kept = nil, {}

local function keep(key)
  if not kept[key] then redis.call('PEXPIRE', key, KEEP) end
  kept[key] = true
end

-- queue answers a claim that has to wait.
local function queue(place, holder, left)
  local ticket, position = string.format('%.0f', now), 0
  if redis.call('ZADD', KEYS[2], 'NX', ticket, place) == 1 then
    length = length and length + 1 or redis.call('ZCARD', KEYS[2])
    position = length
    if position == 1 then keep(KEYS[2]) end
  else
    ticket = redis.call('ZSCORE', KEYS[2], place)
    position = redis.call('ZRANK', KEYS[2], place) + 1
    keep(KEYS[2])
    -- The next sign comes before the ticket is too old for one.
    if now - tonumber(ticket) > YOUNG or redis.call('HEXISTS', KEYS[3], '?' .. place) == 1 then
      redis.call('HSET', KEYS[3], place, now)
      keep(KEYS[3])
    end
  end
  return { ticket, position, left, holder }
end

local holder = not free and redis.call('GET', KEYS[1])
local left

for i = 2, #ARGV, 4 do
  local token, ttl, place = ARGV[i], ARGV[i + 1], ARGV[i + 3]
  local answer
  if now > tonumber(ARGV[i + 2]) then
    answer = 0
  elseif free then
    answer = string.format('%.0f', mint(now))
    redis.call('SET', KEYS[1], token, 'PX', ttl)
    free, holder, left = false, token, tonumber(ttl)
  elseif holder == token then
    answer = hold(ttl)
  else
    if not holder and place ~= '' then
      -- Expired, or deleted by something that does not hand on: those who wait come first.
      queue(place .. ' ' .. token, '', -2)
      serve(now, now, ARGV[1])
      length, kept = nil, {}
      holder = redis.call('GET', KEYS[1])
    elseif not holder then
      serve(now, now, ARGV[1])
      length, kept = nil, {}
      holder = redis.call('GET', KEYS[1])
    end
    if not holder then
      answer = string.format('%.0f', mint(now))
      redis.call('SET', KEYS[1], token, 'PX', ttl)
      holder = token
    elseif holder == token then
      answer = hold(ttl)
    else
      left = left or redis.call('PTTL', KEYS[1])
      if place == '' then
        answer = { '0', 0, left, holder }
      else
        answer = queue(place .. ' ' .. token, holder, left)
      end
    end
  end
  reply[#reply + 1] = answer
end
return reply
