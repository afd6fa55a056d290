-- Who is served next. Included by scripts that grant, after fence.lua and holders.lua.
--
-- queue   zset: place → ticket (µs of the server's clock at which it joined)
-- signs   hash: place → µs of its last sign of life after joining;
--               "?" place → µs at which it was first passed over
-- A place is "seq ttl weight/limit client token": what a hand-off needs to know. With
-- a "+" after the limit it wants more names than this one, and has to ask. With a "*"
-- it came with a ballot (vote.lua): its ticket is by a clock of its own, and a script
-- that does not know which store this is has it ask, too.

local LIFE = 5000000   -- µs that a place lives without a sign of life: the claim TTL
local YOUNG = LIFE / 4 -- µs for which a place needs no sign but its ticket

local node -- which store this is, to those who came with ballots, if it may hand on to them

local function voting(place) return string.find(place, '^%x+ %d+ %d+/%d+%*') end

local function alive(place, ticket)
  if now - tonumber(ticket) < LIFE and not voting(place) then return true end
  local sign = redis.call('HGET', signs, place)
  return sign and now - tonumber(sign) < LIFE
end

-- reached tells whether somebody listens for the client of a place. A process that
-- died closed its connection, and need not cost the others a claim TTL. A live one
-- that cannot be reached is passed over once, and served after its next sign of
-- life, so that nobody starves. It also tells whether it was passed over.
local function reached(place, client)
  local ok = redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
  if ok.err or ok[2] ~= 0 then return true end
  local passed = redis.call('HGET', signs, '?' .. place)
  if passed then
    return tonumber(redis.call('HGET', signs, place) or 0) > tonumber(passed), true
  end
  redis.call('HSET', signs, '?' .. place, integer(now))
  outlive(signs, KEEP)
  return false
end

-- tell pushes a message to a client. A user who may not publish hands on all the
-- same: the waiter asks.
local function tell(client, fence, ticket, sent, token)
  redis.pcall('PUBLISH', 'dibs:c:' .. client, fence .. ' ' .. ticket .. ' ' .. sent .. ' ' .. token)
end

local function cut(place)
  local ttl, weight, limit, mark, client, token = string.match(place, '^%x+ (%d+) (%d+)/(%d+)([+*]?) (%S+) (.*)$')
  local asks = mark == '+' or mark == '*' and not node
  return tonumber(weight), tonumber(limit), asks, tonumber(ttl), client, token
end

-- grant makes the owner of a place a holder, tells its client, and returns what
-- taken would.
local function grant(head, at, used, passed, ttl, weight, limit, client, token)
  local place, ticket = head[1], head[2]
  local fence = mint(at)
  local votes = node and voting(place)
  if passed or votes or now - tonumber(ticket) > YOUNG then redis.call('HDEL', signs, place, '?' .. place) end
  tell(client, integer(fence), ticket, votes and '@' .. node or integer(now), token)
  if weight == limit then
    redis.call('HDEL', signs, '=')
    redis.call('SET', lock, token, 'PX', ttl)
    return math.huge, token
  end
  return part(token, weight, ttl, fence, client, used)
end

-- serve grants to those at the head of the queue that are alive, can be reached and
-- fit: to one that holds alone, or to several. The first that does not fit blocks
-- those behind it, who would overtake it for ever. If none of them can be reached,
-- one is served all the same. It returns what taken would, and the place that blocks.
--
-- used      what is held, 0 also if it is about to be left
-- at        the least fence
-- check     "1" if PUBSUB NUMSUB sees all subscribers, else "0"
-- changed   something became free: who has to ask is told
-- head      the first of the queue, if it was taken out already
local function serve(used, at, check, changed, head)
  local aside, holder, front = {}, nil, nil
  local before = used
  while used ~= math.huge and not front do
    head = head or redis.call('ZPOPMIN', queue)
    local place = head[1]
    if not place then break end
    local weight, limit, asks, ttl, client, token = cut(place)
    if not alive(place, head[2]) then
      redis.call('HDEL', signs, place, '?' .. place)
      changed = true
    else
      local ok, passed = true, nil
      if check ~= '0' then ok, passed = reached(place, client) end
      if not ok then
        aside[#aside + 1] = head
      elseif asks or used + weight > limit then
        front, aside[#aside + 1] = place, head
        if asks and used + weight <= limit and changed then tell(client, '0', '0', '0', token) end
      else
        used, holder = grant(head, at, used, passed, ttl, weight, limit, client, token)
      end
    end
    head = nil
  end
  if used == before and not front then
    for i, spared in ipairs(aside) do
      local weight, limit, asks, ttl, client, token = cut(spared[1])
      if not asks and used + weight <= limit then
        table.remove(aside, i)
        used, holder = grant(spared, at, used, true, ttl, weight, limit, client, token)
        break
      end
    end
  end
  for _, back in ipairs(aside) do redis.call('ZADD', queue, back[2], back[1]) end
  if aside[1] then redis.call('PEXPIRE', queue, KEEP) end -- it may be a new key
  return used, holder, front
end
