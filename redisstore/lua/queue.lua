-- Who is served next. Included by scripts that grant, after fence.lua and holders.lua.
--
-- queue   zset: place → ticket (µs of the server's clock at which it joined); of one
--               that was passed over, PASSED more: it stands behind all others until
--               it gives a heartbeat
-- meta   hash: place → µs of its last heartbeat after joining;
--               "?" place → it was passed over, and came back
-- A place is "seq ttl weight/limit client token": what a hand-off needs to know. With
-- a "+" after the limit it wants more names than this one, and has to ask. With a "*"
-- it came with a ballot (vote.lua): its ticket is by a clock of its own, and a script
-- that does not know which store this is has it ask, too.

local LIFE = 5000000            -- µs that a place lives without a heartbeat: the claim TTL
local YOUNG = LIFE / 4          -- µs for which a place needs no sign but its ticket
local PASSED = 4503599627370496 -- 2^52: larger than each ticket, and the sum is exact
local COST = 4                  -- of a grant, where that of a place that is skipped is 1

local work = 240 -- what this call may yet do
local node       -- which store this is, to those who came with ballots, if it may hand on to them
local here = {}  -- places whose owners wait for this reply
local heard = {} -- clients, and whether somebody listens for them

local function voting(place) return string.find(place, '^%x+ %d+ %d+/%d+%*') end

-- ticketed returns a ticket of a score, and whether its place was passed over.
local function ticketed(score)
  score = tonumber(score)
  if score < PASSED then return score, false end
  return score - PASSED, true
end

local function alive(place, ticket)
  if now - ticket < LIFE and not voting(place) then return true end
  local sign = redis.call('HGET', meta, place)
  return sign and now - tonumber(sign) < LIFE
end

-- reached tells whether the owner of a place would hear of a grant. A process that
-- died closed its connection, and need not cost the others a claim TTL. A live one
-- that cannot be reached is passed over once, until its next heartbeat, so that
-- nobody starves.
local function reached(place, client)
  if here[place] then return true end
  if heard[client] == nil then
    local ok = redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
    heard[client] = ok.err ~= nil or ok[2] ~= 0
  end
  return heard[client] or redis.call('HEXISTS', meta, '?' .. place) == 1
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

-- signed tells whether the meta may know of a place.
local function signed(place, ticket, client)
  return now - ticket > YOUNG or heard[client] == false or voting(place)
end

-- nudge has the owner of a place ask again.
local function nudge(place)
  local _, _, _, _, client, token = cut(place)
  tell(client, '0', '0', '0', token)
end

-- grant makes the owner of a place a holder, tells its client, and returns what
-- taken would.
local function grant(place, ticket, at, used, ttl, weight, limit, client, token)
  local fence = mint(at)
  tell(client, integer(fence), integer(ticket), node and voting(place) and '@' .. node or integer(now), token)
  if weight == limit then
    redis.call('HDEL', meta, '=')
    redis.call('SET', lock, token, 'PX', ttl)
    return math.huge, token
  end
  return part(token, weight, ttl, fence, client, used)
end

-- walk returns a function that returns the places of the queue and their scores, one
-- after another, and nothing after the last. The first may be out of it already.
local function walk(head)
  local list, i, rank, size = head or {}, 1, 0, 1
  return function()
    if i > #list then
      list, i = redis.call('ZRANGE', queue, rank, rank + size - 1, 'WITHSCORES'), 1
      rank, size = rank + size, 32
    end
    i = i + 2
    return list[i - 2], list[i - 1]
  end
end

-- remove takes places out of the queue, and their meta with them.
local function remove(places)
  if not places[1] then return end
  redis.call('ZREM', queue, unpack(places))
  for i = 1, #places do places[#places + 1] = '?' .. places[i] end
  redis.call('HDEL', meta, unpack(places))
end

-- sweep removes places that died after they were passed over.
local function sweep()
  local list, dead = redis.call('ZRANGEBYSCORE', queue, PASSED, '+inf', 'WITHSCORES', 'LIMIT', 0, 64), {}
  for i = 1, #list, 2 do
    if alive(list[i], ticketed(list[i + 1])) then break end
    dead[#dead + 1] = list[i]
  end
  remove(dead)
end

-- hurry asks for more calls like this one, which stopped at a place: by whom it
-- belongs to, and by the last in line, who is the most likely to live. If neither
-- hears it, any waiter's next heartbeat goes on.
local function hurry(place)
  more = true
  nudge(place)
  local passed = redis.call('ZCOUNT', queue, PASSED, '+inf')
  local last = redis.call('ZRANGE', queue, -1 - passed, -1 - passed)[1]
  if last and last ~= place then nudge(last) end
end

-- spare returns the first place that was passed over and lives, if nobody holds, and
-- it may be served: rather an owner that cannot be reached than none.
local function spare()
  while work > 0 do
    local first = redis.call('ZRANGEBYSCORE', queue, PASSED, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local place = first[1]
    if not place then return end
    local ticket = ticketed(first[2])
    if alive(place, ticket) then
      local _, _, asks = cut(place)
      if asks then return end
      redis.call('ZREM', queue, place)
      redis.call('HDEL', meta, place, '?' .. place)
      return place, ticket
    end
    remove({ place })
    work = work - 1
  end
end

-- serve grants to those at the head of the queue that are alive, can be reached and
-- fit: to one that holds alone, or to several. The first that does not fit blocks
-- those behind it, who would overtake it for ever. If nobody holds and none of them can
-- be reached, one is served all the same. It returns what taken would, and the place
-- that blocks.
--
-- used      what is held, 0 also if it is about to be left
-- at        the least fence
-- check     "1" if PUBSUB NUMSUB sees all subscribers, else "0"
-- changed   something became free: who has to ask is told
-- head      the first of the queue, if it was taken out already
local function serve(used, at, check, changed, head)
  local holder, front, gone, back = nil, nil, {}, {}
  local following = walk(head)
  while used ~= math.huge and not front do
    local place, score = following()
    if not place then break end
    local ticket, passed = ticketed(score)
    if work <= 0 and not passed then
      hurry(place)
      break
    end
    local out = head and head[1] == place
    if not alive(place, ticket) then
      gone[#gone + 1] = place
      changed, work = true, work - 1
      if work <= 0 and passed then break end
    elseif passed then -- and so are all behind it
      if out then back = { score, place } end
      break
    else
      local weight, limit, asks, ttl, client, token = cut(place)
      if check ~= '0' and not reached(place, client) then
        back[#back + 1], back[#back + 2] = integer(ticket + PASSED), place
        work = work - 1
      elseif asks or used + weight > limit then
        front = place
        if out then back[#back + 1], back[#back + 2] = score, place end
        if asks and used + weight <= limit and changed then nudge(place) end
      else
        used, holder = grant(place, ticket, at, used, ttl, weight, limit, client, token)
        work = work - COST
        if not out or signed(place, ticket, client) then gone[#gone + 1] = place end
      end
    end
  end
  remove(gone)
  if back[1] then
    redis.call('ZADD', queue, unpack(back))
    if head then redis.call('PEXPIRE', queue, KEEP) end -- it may be a new key
  end
  if used == 0 and not front and not more then
    local place, ticket = spare()
    if place then
      local weight, limit, _, ttl, client, token = cut(place)
      used, holder = grant(place, ticket, at, used, ttl, weight, limit, client, token)
    end
  end
  if now % 32 == 0 then sweep() end
  return used, holder, front
end
