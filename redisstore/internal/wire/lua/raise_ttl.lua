-- Raises the TTL of locks. Included by scripts that extend leases.

-- PEXPIRE has the option GT since Redis 7.0, as redis has this field.
local has_gt = redis.REDIS_VERSION_NUM ~= nil

-- raise_ttl makes the lock live for at least this many ms, and returns its TTL. Its
-- PEXPIRE is the first write, and always happens: a server that is out of memory never
-- refuses PEXPIRE, and after it refuses no write of this script. ttl is text, since each
-- number is formatted for a command. GT changes nothing if the key has no TTL: somebody has
-- removed it. A shared lock then expires with the last of its holders again.
local function raise_ttl(lock, ttl, holders)
  if has_gt and redis.call('PEXPIRE', lock, ttl, 'GT') == 1 then return tonumber(ttl) end
  local left = redis.call('PTTL', lock)
  if left < 0 and holders then left = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2] - math.floor(now / 1000) end
  local ms = math.max(tonumber(ttl), left)
  redis.call('PEXPIRE', lock, ms)
  return ms
end
