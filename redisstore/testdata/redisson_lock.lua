-- Enters a free name as an RLock of Redisson, for 50 ms.
--
-- KEYS   lock
-- ARGV   the holder
-- Reply  2 if it has entered

if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
return redis.call('HSET', KEYS[1], ARGV[1], 1) + redis.call('PEXPIRE', KEYS[1], 50)
