-- What becomes of a claim that holds, or may. Included after entry.lua; `used` and
-- `holder` are what taken has found, `at` is the least fence.

-- holds tells whether a token does, exclusively or shared.
local function holds(token)
  if holder then return holder == token end
  return used > 0 and redis.call('ZSCORE', holders, token)
end

-- refresh answers a claim whose token holds already. It never shortens.
local function refresh(token, ttl, place, weight, at)
  local fence = mint(at)
  if holder then
    outlive(lock, ttl)
    note(token, fence, string.match(place, '^%x+ %d+ %S+ (%S+)') or '-')
    return integer(fence)
  end
  local noted, client = string.match(redis.call('HGET', meta, '=' .. token) or '', '^(%d+) %d+ (.*)$')
  ttl = math.max(ttl, tonumber(redis.call('ZSCORE', holders, token)) - math.ceil(now / 1000))
  part(token, tonumber(noted or weight or 1), ttl, fence, client or '-', used)
  return integer(fence)
end

-- take makes a token a holder, exclusive or, with a weight, a shared one.
local function take(token, ttl, weight, client, at)
  local fence = mint(at)
  if weight then
    used = part(token, weight, ttl, fence, client, used)
  else
    redis.call('HDEL', meta, '=')
    redis.call('SET', lock, token, 'PX', ttl)
    used, holder = math.huge, token
  end
  return integer(fence)
end
