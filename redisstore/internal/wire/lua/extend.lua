-- Extends leases. Atomic; never shortens a lease, never revives one. All keys are in one
-- slot if the server is a cluster.
--
-- KEYS   for each: lock, and with details: meta, holders: see holders.lua
-- ARGV   1  how many leases are without details: exclusive ones whose fence is in the value, and
--           whose client is in the token. They come first, and are most
--        then for each: the value of the lock, as the client knows it: see value.lua
--        TTL in ms
--        details, if it has some: "weight fence client", of which weight and fence may be "0"
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds a value of another type, "s" the lock is
--        shared: send the lease with its details}

local AUX_TTL = 60000 -- see holders.lua

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

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

--#include value.lua

-- record writes fence and client of an exclusive holder to the metadata. After a larger fence
-- this call is late.
local function record(meta, token, fence, client, ms)
  local stored = redis.call('HGET', meta, '=')
  local stored_fence = read_record(stored, token)
  local wanted = fence .. ' ' .. client .. ' ' .. token
  if stored ~= wanted and tonumber(stored_fence or 0) <= tonumber(fence) then redis.call('HSET', meta, '=', wanted) end
  if redis.call('PTTL', meta) < ms then redis.call('PEXPIRE', meta, ms) end
end

-- extend_exclusive extends the exclusive holder. A node of a quorum may have issued a smaller
-- fence than that of the lease, which replaces it.
local function extend_exclusive(lock, meta, holder, value, ttl, details)
  local ms = raise_ttl(lock, ttl)
  local token, fence = split_value(value)
  local _, stored_fence = split_value(holder)
  local raises = stored_fence and fence and tonumber(stored_fence) < tonumber(fence)
  if raises or not stored_fence and not details then redis.call('SET', lock, value, 'PX', ms) end
  if not details then return end
  local known_fence, client = string.match(details, '^%d+ (%d+) (.+)$')
  if known_fence == '0' then known_fence = stored_fence or read_record(redis.call('HGET', meta, '='), token) end
  if known_fence then record(meta, token, known_fence, client, ms) end
end

-- extend_shared extends a shared holder, and reports whether the token is one. It
-- restores the holder's metadata if they were lost.
local function extend_shared(lock, meta, holders, token, ttl, details)
  local expires = tonumber(redis.call('ZSCORE', holders, token) or 0)
  if expires <= math.floor(now / 1000) then return false end
  local ms = raise_ttl(lock, ttl, holders) + AUX_TTL
  local new_expiry = math.ceil(now / 1000) + tonumber(ttl)
  if new_expiry > expires then redis.call('ZADD', holders, new_expiry, token) end
  if string.find(details, '^[1-9]%d* [1-9]') and redis.call('HEXISTS', meta, '=' .. token) == 0 then
    redis.call('HSET', meta, '=' .. token, details)
  end
  redis.call('PEXPIRE', holders, ms)
  redis.call('PEXPIRE', meta, ms)
  return true
end

-- extend extends a lease, and returns its status.
local function extend(lock, meta, holders, value, ttl, details)
  local holder = redis.pcall('GET', lock)
  if type(holder) == 'table' then return 'x' end
  if not holder then return '0' end
  if string.sub(holder, 1, 12) == 'dibs:shared ' then
    if not details then return 's' end
    return extend_shared(lock, meta, holders, split_value(value), ttl, details) and '1' or '0'
  end
  if split_value(holder) ~= split_value(value) then return '0' end
  extend_exclusive(lock, meta, holder, value, ttl, details)
  return '1'
end

local reply, bare = {}, tonumber(ARGV[1])
for i = 1, bare do
  local lock, value, ttl = KEYS[i], ARGV[2 * i], ARGV[2 * i + 1]
  if redis.pcall('GET', lock) == value then -- most renewals
    if not has_gt or redis.call('PEXPIRE', lock, ttl, 'GT') == 0 then raise_ttl(lock, ttl) end
    reply[i] = '1'
  else
    reply[i] = extend(lock, nil, nil, value, ttl, nil)
  end
end
local a = 2 * bare + 2
for k = bare + 1, #KEYS, 3 do
  reply[#reply + 1] = extend(KEYS[k], KEYS[k + 1], KEYS[k + 2], ARGV[a], ARGV[a + 1], ARGV[a + 2])
  a = a + 3
end
return { now, table.concat(reply) }
