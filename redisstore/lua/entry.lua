-- What becomes of a claim that has to wait. Included after queue.lua.

-- first returns the token that expires first, in how many ms, of what taken found.
-- Nobody's, in 5000 ms: the lock is kept for somebody who may be dead. In none: this
-- call did not get to the end of the queue, and has to be repeated.
local function first(used, holder)
  if more then return '', 0 end
  if holder then return holder, redis.call('PTTL', lock) end
  if used == 0 then return '', 5000 end
  local head = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
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

-- sign writes a place's heartbeat.
local function sign(place)
  redis.call('HSET', meta, place, integer(now))
  keep(meta)
end

-- stand joins the queue, or keeps the place there, and is its heartbeat. Whoever
-- was passed over has its place back.
local function stand(place, ticket)
  here[place] = true
  if redis.call('ZADD', queue, 'NX', ticket, place) == 1 then
    length = length and length + 1 or redis.call('ZCARD', queue)
    if length == 1 then keep(queue) end
    return ticket, length
  end
  local passed
  ticket, passed = ticketed(redis.call('ZSCORE', queue, place))
  keep(queue)
  if passed then
    redis.call('ZADD', queue, integer(ticket), place)
    redis.call('HSET', meta, '?' .. place, integer(now))
    sign(place)
  elseif now - ticket > YOUNG then -- the next sign comes before the ticket is too old for one
    sign(place)
  end
  return integer(ticket), redis.call('ZRANK', queue, place) + 1
end
