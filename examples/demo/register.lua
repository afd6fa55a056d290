-- Accepts a write, unless there was one with a larger fence. Atomic.
--
-- KEYS   1  the largest fence so far
-- ARGV   1  the fence of this write
--        2  TTL of the register in ms
-- Reply  1 accepted, 0 rejected

local seen = tonumber(redis.call('GET', KEYS[1]) or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
