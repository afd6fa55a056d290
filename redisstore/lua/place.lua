-- What becomes of a claim that has to wait. Included after queue.lua.

-- first returns the token that expires first, in how many ms, of what taken found.
-- A lock that nobody holds is kept for somebody who may be dead.
local function first(used, holder)
  if holder then return holder, redis.call('PTTL', lock) end
  if used == 0 then return '', 5000 end
  local head = redis.call('ZRANGE', lock, 0, 0, 'WITHSCORES')
  return head[1], tonumber(head[2]) - math.ceil(now / 1000)
end

-- What this call knows of a queue, until it serves somebody: its length, and which
-- of its keys it has prolonged.
local length, kept = nil, {}

local function keep(key)
  if kept[key] then return end
  kept[key] = true
  if key == queue then redis.call('PEXPIRE', key, KEEP) else outlive(key, KEEP) end
end

-- stand joins the queue, or keeps the place there, and is its sign of life.
local function stand(place, ticket)
  local position
  if redis.call('ZADD', queue, 'NX', ticket, place) == 1 then
    length = length and length + 1 or redis.call('ZCARD', queue)
    position = length
    if position == 1 then keep(queue) end
    return ticket, position
  end
  ticket = redis.call('ZSCORE', queue, place)
  position = redis.call('ZRANK', queue, place) + 1
  keep(queue)
  -- The next sign comes before the ticket is too old for one.
  if now - tonumber(ticket) > YOUNG or redis.call('HEXISTS', signs, '?' .. place) == 1 then
    redis.call('HSET', signs, place, integer(now))
    keep(signs)
  end
  return ticket, position
end
