-- Changes the weight that a token holds, and raises its TTL. Atomic; idempotent. Never
-- grants to a token that does not hold.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6 node, or none
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the request is void
--        5  "weight/limit client"; exclusive if weight and limit are equal
--        6… with the sixth key, a vote request: see read_vote_args in node.lua
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

-- usage_of_others returns the weight held by others and the remaining ms of the token's
-- lease, both nil if the token does not hold; then the results of read_usage.
local function usage_of_others()
  local used, holder = read_usage()
  if holder == token then return 0, redis.call('PTTL', lock), used, holder end
  local expires = used > 0 and not holder and redis.call('ZSCORE', holders, token)
  if not expires then return nil, nil, used, holder end
  local own_weight = tonumber(string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+')) or 1
  if redis.call('ZCARD', holders) == 1 then own_weight = used end
  return used - own_weight, tonumber(expires) - math.ceil(now / 1000), used, holder
end

local others, remaining, used, holder = usage_of_others()
if not others or others + weight > limit then
  local first_holder, ms = first_expiry(used, holder)
  if first_holder == token then -- the conflict is with another holder
    local first_two = redis.call('ZRANGE', holders, 0, 1, 'WITHSCORES')
    if first_two[3] then first_holder, ms = first_two[3], tonumber(first_two[4]) - math.ceil(now / 1000) end
  end
  flush_shared(used)
  return { now, { '0', 0, ms, first_holder } }
end

ttl = math.max(ttl, remaining)
local fence = next_fence(KEYS[6] and read_vote_args(KEYS[6], 6) or now)
if not holder then remove_shared(token, used) end
if weight < limit then
  used = add_shared(token, weight, ttl, fence, client, others)
  flush_shared((serve_queue(used, fence, ARGV[1], true)))
else
  set_exclusive(token, ttl, fence, client)
end
return { now, integer(fence) }
