-- Takes a write, unless one with a larger fence was here before. Atomic.
--
-- KEYS   1  the largest fence so far
-- ARGV   1  the fence of this write
--        2  ms after which the register is forgotten
-- Reply  1 taken, 0 refused

local seen = tonumber(redis.call('GET', KEYS[1]) or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
