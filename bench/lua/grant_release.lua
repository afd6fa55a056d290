-- Grants the lock to the head of the queue. Does not check the current holder.
-- KEYS  the lock, the queue (list)
-- ARGV  TTL in ms
local head = redis.call('LPOP', KEYS[2])
if not head then return redis.call('DEL', KEYS[1]) end
local channel, token = string.match(head, '^(%S+) (%S+)$')
redis.call('SET', KEYS[1], token, 'PX', ARGV[1])
return redis.call('PUBLISH', channel, token)
