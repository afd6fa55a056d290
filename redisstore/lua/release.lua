-- Ends a holding and hands the lock to the first waiter, in one step. Compares
-- the whole value before it deletes. With a place it also leaves the queue.
--
-- KEYS   as in queue.lua
-- ARGV   1  token
--        2  the holder's fence, "0" if unknown
--        3  the server's time in µs as the client reckons it, "0" if it cannot
--        4  keep: ms for which the lock stays taken, "0" to free it
--        5  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        6  the place to leave, token included, or ""
-- Reply  1 the token held, 0 it did not

local token, keep, place = ARGV[1], ARGV[4], ARGV[6]

if place ~= '' then
  redis.call('ZREM', KEYS[2], place)
  redis.call('HDEL', KEYS[3], place, '?' .. place)
end
if redis.call('GET', KEYS[1]) ~= token then return 0 end

if keep ~= '0' then
  redis.call('PEXPIRE', KEYS[1], keep)
  local head = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  if head then -- it asks again, to learn when the lock ends now
    local client, waits = string.match(head, '^%x+ %d+ %d+/%d+ (%S+) (.*)$')
    redis.pcall('PUBLISH', 'dibs:c:' .. client, '0 0 0 ' .. waits)
  end
  return 1
end

local head = redis.call('ZPOPMIN', KEYS[2])
if not head[1] then -- the usual case: nobody waits
  redis.call('DEL', KEYS[1], KEYS[3])
  return 1
end

--#include fence.lua
--#include queue.lua

local fence, now = tonumber(ARGV[2]), tonumber(ARGV[3])
if fence == 0 or now == 0 then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
if not serve(math.max(fence + 1, now), now, ARGV[5], head) then redis.call('DEL', KEYS[1], KEYS[3]) end
return 1
