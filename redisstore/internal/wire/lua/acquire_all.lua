-- Acquires several locks, all exclusive, all or none; or joins the queue of each, or
-- keeps the queue entries alive. The entry is the same in all queues. Atomic; idempotent
-- by token.
--
-- KEYS   for each name: lock, queue, meta, highwater, holders: see holders.lua and queue.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  token
--        3  TTL in ms
--        4  until: µs of the server's clock after which the request is void
--        5  the queue entry without its token, or "" not to queue
--        6  the client if the token is the user's, else "": see value.lua
--        7  the ticket of the last reply, as in acquire.lua
-- Reply  {the server's time in µs, answer}. The answer is as in acquire.lua. If not held,
--        it has a fifth field: the index, from 1, of a name that is held by another token.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
if now > tonumber(ARGV[4]) then return { now, 0 } end

local token, ttl, entry = ARGV[2], tonumber(ARGV[3]), ARGV[5]
if entry ~= '' then entry = entry .. ' ' .. token end

-- Fast path: nobody holds or waits for any of the names. It creates no functions, which
-- would cost more than all its commands. unpack takes about this many values at most.
local checked = {}
for i = 1, #KEYS, 5 do
  checked[#checked + 1], checked[#checked + 2], checked[#checked + 3], checked[#checked + 4] = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 4]
end
if ARGV[6] == '' and #checked <= 4000 and redis.call('EXISTS', unpack(checked)) == 0 then
  local fence = now
  for i = 4, #KEYS, 5 do fence = math.max(fence, (tonumber(redis.call('GET', KEYS[i]) or 0)) + 1) end
  fence = string.format('%.0f', fence)
  for i = 1, #KEYS, 5 do
    redis.call('SET', KEYS[i + 3], fence)
    redis.call('SET', KEYS[i], fence .. ' ' .. token, 'PX', ttl)
  end
  return { now, fence }
end

local lock, queue, meta, highwater, holders -- of the selected name

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include entry.lua

local function select_name(i)
  lock, queue, meta, highwater, holders = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3], KEYS[i + 4]
  queue_length, last_ticket, ttl_set, gap_left, heard, blocked_ms = nil, nil, {}, nil, nil, nil
end

if entry ~= '' then callers[entry] = true end
local busy_index, first_holder, first_ms
for i = 1, #KEYS, 5 do
  select_name(i)
  read_heard() -- an error before the first write if the key is not of dibs
  local used, holder = read_usage()
  if holder ~= token then
    local blocker
    if not holder then used, holder, blocker = serve_queue(used, now, ARGV[1], false) end
    flush_shared(used)
    if used > 0 or incomplete or blocker and blocker ~= entry then
      if holder then must_poll(holder) end
      local holder_token, ms = first_expiry(used, holder)
      if not busy_index or ms >= 0 and (first_ms < 0 or ms < first_ms) then
        busy_index, first_holder, first_ms = (i + 4) / 5, holder_token, ms
      end
    end
  end
end

if not busy_index then
  local fence = now
  for i = 4, #KEYS, 5 do fence = math.max(fence, tonumber(redis.call('GET', KEYS[i]) or 0) + 1) end
  for i = 1, #KEYS, 5 do
    select_name(i)
    redis.call('SET', highwater, integer(fence))
    if split_value(redis.call('GET', lock) or '') ~= token then redis.call('HDEL', meta, '=', '!') end
    set_exclusive(token, math.max(ttl, redis.call('PTTL', lock)), fence, ARGV[6] ~= '' and ARGV[6])
    if entry ~= '' and redis.call('ZREM', queue, entry) == 1 then redis.call('HDEL', meta, entry, '?' .. entry) end
  end
  return { now, integer(fence) }
end

-- A multi-lock holds nothing while it waits. If the token held all names and has lost
-- one, it loses the others, which are handed off.
for i = 1, #KEYS, 5 do
  select_name(i)
  if split_value(redis.call('GET', lock) or '') == token then
    redis.call('ZCARD', holders) -- an error if the key is not of dibs: DEL would delete it
    local used = serve_queue(0, now, ARGV[1], true)
    flush_shared(used)
    if used == 0 then
      redis.call('DEL', lock)
      if redis.call('EXISTS', queue) == 0 then redis.call('DEL', meta, holders) end
    end
  end
end

if entry == '' then return { now, { '0', 0, first_ms, first_holder, busy_index } } end

-- One ticket in all queues, also in a queue that lost the entry. If two multi-locks were
-- in different orders, they would wait for each other.
local former, ticket = ARGV[7], '0'
for i = 1, #KEYS, 5 do
  local score = redis.call('ZSCORE', KEYS[i + 1], entry)
  if score then former = integer((decode_score(score))) end
end
for i = 1, former == '' and #KEYS or 0, 5 do
  select_name(i)
  ticket = integer(math.max(tonumber(ticket), tonumber(new_ticket())))
end
if former ~= '' then ticket = string.match(former, '^%d+') end
local position = 0
for i = 1, #KEYS, 5 do
  select_name(i)
  join_queue(entry, ticket, former)
  position = math.max(position, redis.call('ZRANK', queue, entry) + 1)
end
return { now, { ticket, position, first_ms, first_holder, busy_index } }
