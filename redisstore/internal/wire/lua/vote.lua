-- Votes on a request as a node of a quorum: acquires the lock, exclusive or shared;
-- refreshes a lease; or joins the queue, or keeps the queue entry alive. The quorum gives
-- the ticket. Atomic; idempotent by token.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6 node: see node.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the request is void
--        5  the queue entry without its token, or "" not to queue
--        6  "weight/limit client" for a shared lease, "" for an exclusive one; "- client" for
--           an exclusive one with a token of the user's: see value.lua
--        7  ticket
--        8  the least fence
--        9  recovery window: uptime in µs that the server needs to vote
--        10 "1" to relinquish: if the token holds and an older entry waits, the lock is
--           handed off to that
--        11 an id for this store, if it has none
-- Reply  {the server's time in µs, 0}: void, too late. Else {the server's time, id of
--        this store, answer}. An answer is
--        "fence"  held
--        {ticket, position, ms until the first holder expires, its token, highwater}
--                 not held, as in acquire.lua. No fence so far is larger than highwater
--        integer  abstains for this many µs: the server may have lost locks

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[4]) then return { now, 0 } end

local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

-- Fast path: an exclusive request on a free name, and a server that is not in its
-- recovery window. It creates no functions, which would cost more than all its commands.
if ARGV[6] == '' and redis.call('EXISTS', lock, queue, meta) == 0 then
  local id, saved, since = string.match(redis.call('GET', KEYS[6]) or '', '^(%S+) %S+ (%d+) (%d+)$')
  local uptime = id and redis.call('LASTSAVE') == tonumber(saved) and now - since
  if uptime and uptime >= 0 and uptime >= tonumber(ARGV[9]) then
    local previous = redis.call('GET', highwater)
    if not previous or tonumber(previous) < tonumber(ARGV[8]) then
      redis.call('SET', highwater, ARGV[8])
      redis.call('SET', lock, ARGV[8] .. ' ' .. ARGV[2], 'PX', ARGV[3])
      return { now, id, ARGV[8] }
    end
  end
end

local token, ttl, entry, ticket, min_fence = ARGV[2], tonumber(ARGV[3]), ARGV[5], ARGV[7], tonumber(ARGV[8])
local weight, limit, client = string.match(ARGV[6], '^(%d+)/(%d+) (.*)$')
weight, limit = tonumber(weight), tonumber(limit)
if not weight then client = string.match(ARGV[6], '^%- (.*)$') end
if entry ~= '' then entry = entry .. ' ' .. token end

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include entry.lua
--#include node.lua

local used, holder = read_usage()

--#include grant.lua

local id, uptime = identity(KEYS[6], ARGV[11])
local abstains = tonumber(ARGV[9]) - uptime
if abstains > 0 and not is_holder(token) then
  flush_shared(used)
  return { now, id, abstains }
end
if abstains <= 0 then node_id = id end

-- join_with_ticket joins the queue and writes a heartbeat: the ticket does not replace
-- one here, since it is not from this server's clock.
local function join_with_ticket()
  join_queue(entry, ticket, '')
  heartbeat(entry, now)
end

local function has_older() return redis.call('ZRANK', queue, entry) > 0 end

local blocker
if is_holder(token) then
  if ARGV[10] == '1' and entry ~= '' and redis.call('EXISTS', queue) == 1 then
    join_with_ticket()
    if has_older() then
      if holder then used = 0 else used = remove_shared(token, used) end
      used, holder, blocker = serve_queue(used, min_fence, ARGV[1], true)
      if used == 0 then redis.call('DEL', lock) end
    else
      redis.call('ZREM', queue, entry)
      redis.call('HDEL', meta, entry)
    end
  end
elseif not holder and redis.call('EXISTS', queue) == 1 then
  -- A lease expired, or another library deleted the key without a hand-off.
  if entry ~= '' then join_with_ticket() end
  used, holder, blocker = serve_queue(used, min_fence, ARGV[1], false)
end

local answer
if is_holder(token) then
  answer = refresh(token, ttl, entry, weight, min_fence)
elseif not blocker and not incomplete and used + (weight or 1) <= (limit or 1) and redis.call('EXISTS', queue) == 0 then
  answer = make_holder(token, ttl, weight, client, min_fence)
else
  local first_holder, first_ms = first_expiry(used, holder)
  if blocked_ms and used + (weight or 1) <= (limit or 1) then first_holder, first_ms = '', blocked_ms end
  answer = { '0', 0, first_ms, first_holder, redis.call('GET', highwater) or '0' }
  if entry ~= '' then
    join_with_ticket()
    answer[1] = integer((decode_score(redis.call('ZSCORE', queue, entry))))
    answer[2] = redis.call('ZRANK', queue, entry) + 1
  end
end
flush_shared(used)
return { now, id, answer }
