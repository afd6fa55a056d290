-- Enters a name as a free RReadWriteLock of Redisson: one whose hash has no mode.
--
-- KEYS   lock
-- ARGV   "read" or "write", the holder, TTL in ms
-- Reply  nothing if it has entered, else the TTL of the lock in ms

if redis.call('HGET', KEYS[1], 'mode') then return redis.call('PTTL', KEYS[1]) end
redis.call('HSET', KEYS[1], 'mode', ARGV[1])
redis.call('HSET', KEYS[1], ARGV[2], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return nil
