-- The holders of a lock. Included by scripts that change them; `now` is the server's time
-- in µs.
--
-- lock     string, with PX: token and fence of the exclusive holder: see value.lua; or SHARED
--          and the sum of the weights of the shared holders, until the last of them expires
-- holders  zset of the shared holders: token → ms at which it expires. It counts only
--          while the lock says SHARED. Otherwise these tokens do not hold any more
-- meta     hash: "=" token → "weight fence client" of a shared holder;
--                "=" → "fence client token" of an exclusive holder: see value.lua;
--                "!" → the holders to be notified of the next waiter, as a JSON array of
--                "client token"; only while nobody waits: see wanted.lua;
--                and the fields of queue.lua

local SHARED = 'dibs:shared ' -- no token begins with it
local AUX_TTL = 60000         -- ms for which the other keys outlive their last use
local MAX_EXPIRED = 200       -- expired holders that one call removes at most

-- incomplete means that this call stopped early to bound its time. Waiters have to retry.
local incomplete = false

-- What flush_shared has to write: shared holders changed, and some were added.
local shared_changed, shared_added = false, false

-- ensure_ttl makes a key live for at least this many ms.
local function ensure_ttl(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

local function integer(n) return string.format('%.0f', n) end

--#include value.lua

-- The fence in the value of the lock that read_usage has read, or nil.
local holder_fence

-- set_exclusive makes a token the exclusive holder for this many ms. Without a client the
-- token begins with it.
local function set_exclusive(token, ms, fence, client)
  fence = integer(fence)
  if not client or string.sub(token, 1, #client + 1) == client .. ':' and split_value(fence .. ' ' .. token) == token then
    redis.call('SET', lock, fence .. ' ' .. token, 'PX', ms)
    return
  end
  redis.call('SET', lock, token, 'PX', ms)
  redis.call('HSET', meta, '=', fence .. ' ' .. client .. ' ' .. token)
  ensure_ttl(meta, ms)
end

-- remove_shared removes a shared holder and returns the weight still held. A weight that
-- was lost with the metadata counts as 1 until nobody holds: too much counts as held
-- rather than too little.
local function remove_shared(token, used)
  local weight = tonumber(string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+')) or 1
  redis.call('ZREM', holders, token)
  redis.call('HDEL', meta, '=' .. token)
  shared_changed = true
  if used > weight and redis.call('EXISTS', holders) == 1 then return used - weight end
  return 0
end

-- clear_shared removes shared holders that do not hold any more: they expired with the
-- lock, or the lock was deleted or overwritten from outside. With more than MAX_EXPIRED
-- of them, some metadata fields stay until the key expires; they have no meaning.
local function clear_shared()
  local stale = redis.call('ZRANGE', holders, 0, MAX_EXPIRED - 1)
  if not stale[1] then return end
  for i, token in ipairs(stale) do stale[i] = '=' .. token end
  redis.call('DEL', holders)
  redis.call('HDEL', meta, unpack(stale))
end

-- read_usage returns the weight held: math.huge and the token if held exclusively, else
-- the sum of the unexpired shared holders. It sets holder_fence. If the holders key is lost, the name counts as
-- held exclusively, by the lock's value, until the lock expires. known_value is the value
-- of the lock if it was read already. free means that no key of shared holders exists.
local function read_usage(known_value, free)
  local value = known_value
  if value == nil then value = redis.call('GET', lock) end
  if not value then
    if not free then clear_shared() end
    return 0
  end
  if string.sub(value, 1, #SHARED) ~= SHARED then
    local token
    token, holder_fence = split_value(value)
    return math.huge, token
  end
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local used = tonumber(string.sub(value, #SHARED + 1))
  if not first[1] or not used then return math.huge, value end
  local ms = math.floor(now / 1000)
  if tonumber(first[2]) > ms then return used end
  local expired = redis.call('ZRANGEBYSCORE', holders, '-inf', ms, 'LIMIT', 0, MAX_EXPIRED)
  for _, token in ipairs(expired) do used = remove_shared(token, used) end
  incomplete = incomplete or #expired == MAX_EXPIRED
  return used
end

-- add_shared makes a token a shared holder, and returns the weight held then.
local function add_shared(token, weight, ttl, fence, client, used)
  if used == 0 then clear_shared() end
  redis.call('ZADD', holders, math.ceil(now / 1000) + ttl, token)
  redis.call('HSET', meta, '=' .. token, integer(weight) .. ' ' .. integer(fence) .. ' ' .. client)
  shared_changed, shared_added = true, true
  return used + weight
end

-- flush_shared writes to the lock what remove_shared and add_shared have changed: one
-- write per call.
local function flush_shared(used)
  if not shared_changed then return end
  shared_changed = false
  if used == math.huge then return end
  if used == 0 then
    redis.call('DEL', lock)
    return
  end
  local last_expiry = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
  local ms = math.max(tonumber(last_expiry) - math.ceil(now / 1000), 1)
  redis.call('SET', lock, SHARED .. integer(used), 'PX', ms)
  -- The metadata live as long as the holders, or longer. They are not extended at each
  -- grant: the PTTL is cheaper.
  if shared_added and redis.call('PTTL', holders) < ms + AUX_TTL / 2 then
    redis.call('PEXPIRE', holders, ms + AUX_TTL)
    redis.call('PEXPIRE', meta, ms + AUX_TTL)
  end
end
