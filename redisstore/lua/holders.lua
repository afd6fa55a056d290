-- Who holds. Included by scripts that change it; `now` is the server's time in µs.
--
-- lock    string: the token of who holds alone, with PX
--         or zset, of those who hold a part: token → ms at which it expires
-- signs   hash: "#" → the sum of the weights in the zset
--               "=" token → "weight fence client" of one who holds a part
--               "=" → "fence client token" of who holds alone, since it was extended
--               and what queue.lua keeps there

local KEEP = 60000 -- ms that the queue's keys outlive their last use

-- outlive makes a key live for so many ms at least.
local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

local function integer(n) return string.format('%.0f', n) end

-- note records the fence and client of who holds alone; "-" is a client not known.
local function note(token, fence, client)
  redis.call('HSET', signs, '=', integer(fence) .. ' ' .. client .. ' ' .. token)
  outlive(signs, redis.call('PTTL', lock))
end

-- drop takes out one who holds a part, of what is held, and returns what is left.
local function drop(token, used)
  local weight = tonumber(string.match(redis.call('HGET', signs, '=' .. token) or '0', '^%d+'))
  redis.call('ZREM', lock, token)
  if used > weight then
    redis.call('HDEL', signs, '=' .. token)
    redis.call('HINCRBY', signs, '#', -weight)
  else
    redis.call('HDEL', signs, '=' .. token, '#')
  end
  return used - weight
end

-- taken returns how much is held: math.huge, and by whom, if somebody holds alone;
-- else the weights of those who hold a part and whose time is not over. seen is what
-- a GET has said of the lock, if it was asked already.
local function taken(seen)
  local holder = seen
  if holder == nil then holder = redis.pcall('GET', lock) end
  if not holder then return 0 end
  if type(holder) == 'string' then return math.huge, holder end
  local used = tonumber(redis.call('HGET', signs, '#'))
  if not used then error(holder.err, 0) end -- a key that is not ours
  for _, token in ipairs(redis.call('ZRANGEBYSCORE', lock, '-inf', math.floor(now / 1000))) do
    used = drop(token, used)
  end
  return used
end

-- part gives a token a part of what is held in parts, and returns how much is then.
local function part(token, weight, ttl, fence, client, used)
  if used == 0 then
    redis.call('DEL', lock) -- who held alone is leaving
    if redis.call('HEXISTS', signs, '#') == 1 then -- the last ones all expired
      for _, field in ipairs(redis.call('HKEYS', signs)) do
        if string.sub(field, 1, 1) == '=' then redis.call('HDEL', signs, field) end
      end
    end
  end
  -- `now` may be when a client sent a release, as it reckons: a part counts from when
  -- it is granted, as a PX does.
  local time = redis.call('TIME')
  redis.call('ZADD', lock, time[1] * 1000 + math.ceil(time[2] / 1000) + ttl, token)
  redis.call('HSET', signs, '#', integer(used + weight), '=' .. token, integer(weight) .. ' ' .. integer(fence) .. ' ' .. client)
  if used == 0 then redis.call('PEXPIRE', lock, ttl) else outlive(lock, ttl) end
  outlive(signs, ttl + KEEP)
  return used + weight
end
