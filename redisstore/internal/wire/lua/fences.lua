-- Reserves fences for an exclusive lease: it raises the fence high-water mark, and changes nothing
-- of the lease. Atomic. If a reply is lost, the fences of that call are wasted.
--
-- KEYS   1 lock, 2 meta, 3 highwater
-- ARGV   1  token
--        2  how many fences
--        3  the last one is at least this
--        4  the fence of the lease, "0" if unknown
-- Reply  the last one; 0 if the token does not hold

--#include record.lua
--#include read_record.lua

local lock, meta, highwater, token = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
if redis.call('GET', lock) ~= token then return 0 end
local client = ARGV[4] ~= '0' and string.match(token, '^([^:%s]+:%d+:[^:%s]+):%w+')
if client and not read_record(redis.call('HGET', meta, '='), token) then
  -- Without a record, revoke compares the fence with the high-water mark, which changes now.
  redis.call('HSET', meta, '=', make_record(token, ARGV[4], client))
  local ms = redis.call('PTTL', lock)
  if redis.call('PTTL', meta) < ms then redis.call('PEXPIRE', meta, ms) end
end
local last = math.max((tonumber(redis.call('GET', highwater)) or 0) + tonumber(ARGV[2]), tonumber(ARGV[3]))
redis.call('SET', highwater, string.format('%.0f', last))
return last
