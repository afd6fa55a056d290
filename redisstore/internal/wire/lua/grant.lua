-- Answers to requests that hold the lock, or may hold it. Included after entry.lua;
-- `used` and `holder` are the results of read_usage.

-- is_holder reports whether a token holds the lock, exclusive or shared.
local function is_holder(token)
  if holder then return holder == token end
  return used > 0 and redis.call('ZSCORE', holders, token)
end

-- refresh answers a request whose token already holds. It never shortens the TTL.
local function refresh(token, ttl, entry, weight, min_fence)
  local fence = next_fence(min_fence)
  if holder then
    set_exclusive(token, math.max(ttl, redis.call('PTTL', lock)), fence, client)
    return integer(fence)
  end
  local recorded, client = string.match(redis.call('HGET', meta, '=' .. token) or '', '^(%d+) %d+ (.*)$')
  ttl = math.max(ttl, tonumber(redis.call('ZSCORE', holders, token)) - math.ceil(now / 1000))
  add_shared(token, tonumber(recorded or weight or 1), ttl, fence, client or '-', used)
  return integer(fence)
end

-- make_holder makes a token a holder: a shared one if weight is given, else the exclusive
-- one. Without a client, an exclusive token begins with it.
local function make_holder(token, ttl, weight, client, min_fence)
  local fence = next_fence(min_fence)
  if weight then
    used = add_shared(token, weight, ttl, fence, client, used)
  else
    redis.call('HDEL', meta, '=', '!')
    set_exclusive(token, ttl, fence, client)
    used, holder = math.huge, token
  end
  return integer(fence)
end
