-- Who holds. Included by scripts that change it; `now` is the server's time in µs.
--
-- lock     string, with PX: the token of the exclusive holder; or SHARED and the sum
--          of the weights of the shared holders, until the last of them expires
-- holders  zset, of the shared holders: token → ms at which it expires. It counts only
--          while the lock says SHARED: whatever else the lock is, or none, they hold
--          no more
-- meta    hash: "=" token → "weight fence client" of a shared holder
--                "=" → "fence client token" of the exclusive holder, since it was extended
--                and what queue.lua keeps there

local SHARED = 'dibs:shared ' -- no token begins with it
local KEEP = 60000            -- ms that the other keys outlive their last use
local MOST = 200              -- expired holders that one call removes

-- more says that this call stopped before it was done, to bound its time: whoever
-- waits has to ask again.
local more = false

-- What settle has to write: the shared holders changed, there are new ones.
local unsettled, grown = false, false

-- outlive makes a key live for so many ms at least.
local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

local function integer(n) return string.format('%.0f', n) end

-- note records the fence and client of the exclusive holder; "-" is a client not known.
local function note(token, fence, client)
  redis.call('HSET', meta, '=', integer(fence) .. ' ' .. client .. ' ' .. token)
  outlive(meta, redis.call('PTTL', lock))
end

-- drop removes a shared holder, of what is held, and returns what is left. A weight
-- that was lost with the meta counts as the least, until nobody holds: rather too
-- much is held than too little.
local function drop(token, used)
  local weight = tonumber(string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+')) or 1
  redis.call('ZREM', holders, token)
  redis.call('HDEL', meta, '=' .. token)
  unsettled = true
  if used > weight and redis.call('EXISTS', holders) == 1 then return used - weight end
  return 0
end

-- clear removes the shared holders that the lock does not count: they expired with it,
-- or it was deleted or overwritten from outside. Of very many the meta keep a few
-- fields, which mean nothing, until they end.
local function clear()
  local left = redis.call('ZRANGE', holders, 0, MOST - 1)
  if not left[1] then return end
  for i, token in ipairs(left) do left[i] = '=' .. token end
  redis.call('DEL', holders)
  redis.call('HDEL', meta, unpack(left))
end

-- taken returns how much is held: math.huge, and by whom, if exclusively; else the
-- weights of the shared holders that have not expired. If these are lost, the name is
-- taken by nobody that is known until the lock expires. seen is what a GET has said of
-- the lock, if it was asked already; free says that nothing is left of shared holders.
local function taken(seen, free)
  local value = seen
  if value == nil then value = redis.call('GET', lock) end
  if not value then
    if not free then clear() end
    return 0
  end
  if string.sub(value, 1, #SHARED) ~= SHARED then return math.huge, value end
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  local used = tonumber(string.sub(value, #SHARED + 1))
  if not first[1] or not used then return math.huge, value end
  local ms = math.floor(now / 1000)
  if tonumber(first[2]) > ms then return used end
  local expired = redis.call('ZRANGEBYSCORE', holders, '-inf', ms, 'LIMIT', 0, MOST)
  for _, token in ipairs(expired) do used = drop(token, used) end
  more = more or #expired == MOST
  return used
end

-- part makes a token a shared holder, and returns how much is held then.
local function part(token, weight, ttl, fence, client, used)
  if used == 0 then clear() end
  redis.call('ZADD', holders, math.ceil(now / 1000) + ttl, token)
  redis.call('HSET', meta, '=' .. token, integer(weight) .. ' ' .. integer(fence) .. ' ' .. client)
  unsettled, grown = true, true
  return used + weight
end

-- settle writes to the lock what drop and part have changed, once for all of it.
local function settle(used)
  if not unsettled then return end
  unsettled = false
  if used == math.huge then return end
  if used == 0 then
    redis.call('DEL', lock)
    return
  end
  local last = redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
  local ms = math.max(tonumber(last) - math.ceil(now / 1000), 1)
  redis.call('SET', lock, SHARED .. integer(used), 'PX', ms)
  -- The meta live as long as the holders, or longer. Not at each grant: that would
  -- cost more than to look.
  if grown and redis.call('PTTL', holders) < ms + KEEP / 2 then
    redis.call('PEXPIRE', holders, ms + KEEP)
    redis.call('PEXPIRE', meta, ms + KEEP)
  end
end
