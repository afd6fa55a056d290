-- Votes for a claim as a node of a quorum: takes the lock or a part of it, refreshes a
-- holding, or joins or keeps a place in the queue, by the ticket that the quorum gives.
-- Atomic; idempotent by token.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6 node: see node.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the claim is void
--        5  the place, without its token, or "" not to queue
--        6  "weight/limit client" to share the lock, "" to hold it exclusively
--        7  ticket
--        8  the least fence
--        9  memory: for how many µs the server must remember all, to vote
--        10 "1" to yield: if the token holds and an older one waits, that is to have it
--        11 the id of this store, if it is new
-- Reply  {the server's time in µs, 0}: void, it came too late. Else {the server's time,
--        id of this store, answer}. An answer is
--        "fence"  held
--        {ticket, position, ms until the first holder expires, its token, highwater}
--                 not held, as in acquire.lua. No fence so far is larger than highwater
--        integer  for so many µs it does not vote: it may have forgotten something

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[4]) then return { now, 0 } end

local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- The usual case, an exclusive claim, nobody there, and a server that remembers,
-- makes no functions: that would cost more than all it does.
if ARGV[6] == '' and redis.call('EXISTS', lock, queue, meta) == 0 then
  local id, saved, since = string.match(redis.call('GET', KEYS[6]) or '', '^(%S+) %S+ (%d+) (%d+)$')
  local remembers = id and redis.call('LASTSAVE') == tonumber(saved) and now - since
  if remembers and remembers >= 0 and remembers >= tonumber(ARGV[9]) then
    local before = redis.call('GET', highwater)
    if not before or tonumber(before) < tonumber(ARGV[8]) then
      redis.call('SET', highwater, ARGV[8])
      redis.call('SET', lock, ARGV[2], 'PX', ARGV[3])
      return { now, id, ARGV[8] }
    end
  end
end

local token, ttl, place, ticket, least = ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[7], tonumber(ARGV[8])
local weight, limit, client = string.match(ARGV[6], '^(%d+)/(%d+) (.*)$')
weight, limit = tonumber(weight), tonumber(limit)
if place ~= '' then place = place .. ' ' .. token end

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include entry.lua
--#include node.lua

local used, holder = taken()

--#include grant.lua

local id, remembers = identity(KEYS[6], ARGV[11])
local young = tonumber(ARGV[9]) - remembers
if young > 0 and not holds(token) then
  settle(used)
  return { now, id, young }
end
if young <= 0 then node = id end

-- join stands in line, and is a heartbeat: the ticket is none here.
local function join()
  stand(place, ticket)
  sign(place)
end

local function older() return redis.call('ZRANK', queue, place) > 0 end

local front
if holds(token) then
  if ARGV[10] == '1' and place ~= '' and redis.call('EXISTS', queue) == 1 then
    join()
    if older() then
      if holder then used = 0 else used = drop(token, used) end
      used, holder, front = serve(used, least, ARGV[1], true)
      if used == 0 then redis.call('DEL', lock) end
    else
      redis.call('ZREM', queue, place)
      redis.call('HDEL', meta, place)
    end
  end
elseif not holder and redis.call('EXISTS', queue) == 1 then
  -- Something expired, or was deleted by one that does not hand on.
  if place ~= '' then join() end
  used, holder, front = serve(used, least, ARGV[1], false)
end

local answer
if holds(token) then
  answer = refresh(token, ttl, place, weight, least)
elseif not front and not more and used + (weight or 1) <= (limit or 1) and redis.call('EXISTS', queue) == 0 then
  answer = take(token, ttl, weight, client, least)
else
  local held, left = first(used, holder)
  answer = { '0', 0, left, held, redis.call('GET', highwater) or '0' }
  if place ~= '' then
    join()
    answer[1] = integer((ticketed(redis.call('ZSCORE', queue, place))))
    answer[2] = redis.call('ZRANK', queue, place) + 1
  end
end
settle(used)
return { now, id, answer }
