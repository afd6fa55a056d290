-- Releases a lock that the token holds.
-- KEYS  the lock
-- ARGV  the token
-- Reply 1 if the token held, else 0
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
