-- What becomes of a claim that holds, or may. Included after place.lua; `used` and
-- `holder` are what taken has found, `at` is the least fence.

-- holds tells whether a token does, alone or a part.
local function holds(token)
  if holder then return holder == token end
  return used > 0 and redis.call('ZSCORE', lock, token)
end

-- refresh answers a claim whose token holds already. It never shortens.
local function refresh(token, ttl, place, at)
  local fence = mint(at)
  if holder then
    outlive(lock, ttl)
    note(token, fence, string.match(place, '^%x+ %d+ %S+ (%S+)') or '-')
    return integer(fence)
  end
  local weight, client = string.match(redis.call('HGET', signs, '=' .. token), '^(%d+) %d+ (.*)$')
  ttl = math.max(ttl, tonumber(redis.call('ZSCORE', lock, token)) - math.ceil(now / 1000))
  part(token, tonumber(weight), ttl, fence, client, used - tonumber(weight))
  return integer(fence)
end

-- take makes a token a holder, alone or, with a weight, of a part.
local function take(token, ttl, weight, client, at)
  local fence = mint(at)
  if weight then
    used = part(token, weight, ttl, fence, client, used)
  else
    redis.call('HDEL', signs, '=')
    redis.call('SET', lock, token, 'PX', ttl)
    used, holder = math.huge, token
  end
  return integer(fence)
end
