-- Reserves fences for an exclusive lease: it raises the fence high-water mark, and changes nothing
-- of the lease. Atomic. If a reply is lost, the fences of that call are wasted.
--
-- KEYS   1 lock, 2 highwater
-- ARGV   1  token
--        2  how many fences
--        3  the last one is at least this
-- Reply  the last one; 0 if the token does not hold

--#include value.lua

local lock, highwater = KEYS[1], KEYS[2]
if split_value(redis.call('GET', lock) or '') ~= ARGV[1] then return 0 end
local last = math.max((tonumber(redis.call('GET', highwater)) or 0) + tonumber(ARGV[2]), tonumber(ARGV[3]))
redis.call('SET', highwater, string.format('%.0f', last))
return last
