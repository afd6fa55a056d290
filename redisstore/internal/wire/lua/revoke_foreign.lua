-- Ends a lock of another library, if it is still the one that was described, and serves
-- the queue of dibs. Notifies the other library's waiters by its own messages. Atomic.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6… the other library's queue, a list; and on a cluster the channel, so that
--        SPUBLISH finds it in this slot. Each of them or none
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  the type of the lock: "string" or "hash"
--        3  ms of the server's clock at which the lock expires, or "" not to compare it
--        4  "PUBLISH" or "SPUBLISH", or "" to notify nobody
--        5  the channel
--        6  the message
--        7… the value of a string; or each field of a hash and its value
-- Reply  {the server's time in µs, 1 it was ended, 0 it is another lock or none,
--         how many subscribers were notified}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--#include fence.lua
--#include holders.lua
--#include queue.lua

-- is_same reports whether the lock has the value that was described.
local function is_same()
  if redis.call('TYPE', lock).ok ~= ARGV[2] then return false end
  if ARGV[2] == 'string' then return redis.call('GET', lock) == ARGV[7] end
  if redis.call('HLEN', lock) ~= (#ARGV - 6) / 2 then return false end
  for i = 7, #ARGV, 2 do
    if redis.call('HGET', lock, ARGV[i]) ~= ARGV[i + 1] then return false end
  end
  return true
end

-- If a value is not unique, its expiry is also compared. The two clock readings are rounded, so
-- they differ by 2 ms at most.
local function expires_as_described()
  local ttl = redis.call('PTTL', lock)
  if ttl < 0 then return false end -- it may be anything by now
  if ARGV[3] == '' then return true end
  return math.abs(math.floor(now / 1000) + ttl - tonumber(ARGV[3])) <= 2
end

-- notify publishes on a channel, as the other library would. On a cluster its clients may
-- listen in either way: see redisson.lua. Older servers have no SPUBLISH.
local function notify(channel)
  local count = 0
  for _, command in ipairs({ 'PUBLISH', ARGV[4] == 'SPUBLISH' and 'SPUBLISH' or nil }) do
    local received = ARGV[4] ~= '' and redis.pcall(command, channel, ARGV[6])
    if type(received) == 'number' then count = count + received end
  end
  return count
end

-- notify_first notifies the first waiter in the other library's queue, on a channel of its
-- own.
local function notify_first()
  if not KEYS[6] or redis.call('TYPE', KEYS[6]).ok ~= 'list' then return 0 end
  return notify(ARGV[5] .. ':' .. redis.call('LINDEX', KEYS[6], 0))
end

if not is_same() or not expires_as_described() then return { now, 0, 0 } end

-- Raise an error before the first write if one of the other keys has another type.
redis.call('HLEN', meta)
redis.call('ZCARD', queue)
redis.call('ZCARD', holders)
redis.call('GET', highwater)

redis.call('DEL', lock)
local notified = notify(ARGV[5]) + notify_first()
local used = serve_queue(0, now, ARGV[1], true)
flush_shared(used)
if used == 0 and redis.call('EXISTS', queue) == 0 then redis.call('DEL', meta, holders) end
return { now, 1, notified }
