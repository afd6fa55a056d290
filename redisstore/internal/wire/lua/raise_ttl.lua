-- Raises the TTL of locks. Included by scripts that extend leases.

-- PEXPIRE has the option GT since Redis 7.0, as redis has this field.
local has_gt = redis.REDIS_VERSION_NUM ~= nil

-- raise_ttl makes the lock live for at least this many ms, and returns its TTL. Its
-- PEXPIRE is the first write, and always happens: a server that is out of memory never
-- refuses PEXPIRE, and after it refuses no write of this script. ttl is text, since each
-- number is formatted for a command. GT changes nothing if the key has no TTL.
local function raise_ttl(lock, ttl)
  if has_gt and redis.call('PEXPIRE', lock, ttl, 'GT') == 1 then return tonumber(ttl) end
  local ms = math.max(tonumber(ttl), redis.call('PTTL', lock))
  redis.call('PEXPIRE', lock, ms)
  return ms
end
