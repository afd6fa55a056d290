-- Changes how much of the lock a token holds, and lifts its TTL. Atomic; idempotent.
-- Never takes what the token does not hold.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6 node, or none
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the request is void
--        5  "weight/limit client", to hold alone if these are equal
--        6… with the sixth key, a ballot: see serving in node.lua
-- Reply  {the server's time in µs, answer}, as in acquire.lua, never queued

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[4]) then return { now, 0 } end

local token, ttl = ARGV[2], tonumber(ARGV[3])
local weight, limit, client = string.match(ARGV[5], '^(%d+)/(%d+) (.*)$')
weight, limit = tonumber(weight), tonumber(limit)
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include entry.lua
--#include node.lua

-- leave takes the token out, and returns what is held by others, and what its
-- holding had left (nothing if it did not hold), and what taken has found.
local function leave()
  local used, holder = taken()
  if holder == token then return 0, redis.call('PTTL', lock), used, holder end
  local expires = used > 0 and not holder and redis.call('ZSCORE', holders, token)
  if not expires then return nil, nil, used, holder end
  local mine = tonumber(string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+')) or 1
  if redis.call('ZCARD', holders) == 1 then mine = used end
  return used - mine, tonumber(expires) - math.ceil(now / 1000), used, holder
end

local others, left, used, holder = leave()
if not others or others + weight > limit then
  local who, ms = first(used, holder)
  if who == token then -- another one is in the way
    local two = redis.call('ZRANGE', holders, 0, 1, 'WITHSCORES')
    if two[3] then who, ms = two[3], tonumber(two[4]) - math.ceil(now / 1000) end
  end
  settle(used)
  return { now, { '0', 0, ms, who } }
end

ttl = math.max(ttl, left)
local fence = mint(KEYS[6] and serving(KEYS[6], 6) or now)
if not holder then drop(token, used) end
if weight < limit then
  used = part(token, weight, ttl, fence, client, others)
  settle((serve(used, fence, ARGV[1], true)))
else
  redis.call('SET', lock, token, 'PX', ttl)
  note(token, fence, client)
end
return { now, integer(fence) }
