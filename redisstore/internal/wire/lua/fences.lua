-- Reserves fences for an exclusive lease: it only raises the fence high-water mark. Atomic. If a
-- reply is lost, the fences of that call are wasted.
--
-- KEYS   1 lock, 2 highwater
-- ARGV   1  token
--        2  how many fences
--        3  the last one is at least this
-- Reply  the last one; 0 if the token does not hold

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
local last = math.max((tonumber(redis.call('GET', KEYS[2])) or 0) + tonumber(ARGV[2]), tonumber(ARGV[3]))
redis.call('SET', KEYS[2], string.format('%.0f', last))
return last
