-- Acquires a free lock, or joins its queue. Does not remove waiters that have died.
-- KEYS  the lock, the queue (list)
-- ARGV  the token, TTL in ms, the waiter's channel
-- Reply 1 acquired, 0 queued
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[3] .. ' ' .. ARGV[1])
return 0
