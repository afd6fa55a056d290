-- Acquires the lock, exclusive or shared; refreshes a lease; or joins the queue, or keeps
-- the queue entry alive. Atomic; idempotent by token. Serves several requests on one
-- name, in order.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1    check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        then for each request:
--        +1   token
--        +2   TTL in ms
--        +3   until: µs of the server's clock after which the request is void
--        +4   the queue entry without its token, or "" not to queue
--        +5   "weight/limit client" for a shared lease, "" for an exclusive one; "- client"
--             for an exclusive one with a token of the user's: see value.lua
--        +6   the ticket of the last reply to this request, or "". "+" follows if that is so
--             recent that no script has removed the entry since
-- Reply  {the server's time in µs, then an answer for each request}. An answer is
--        "fence"                   held
--        {ticket, position, ms until the first holder expires, its token, poll, highwater}
--                                  not held; the fence may be before the token; ticket "0" and position 0 if not queued;
--                                  poll is 1 for the first waiter if nobody notifies it,
--                                  else 0; without poll, the form of the token says so;
--                                  no token if waiters come first, and in how many ms
--                                  the first of them is removed if it is dead;
--                                  no token and 0 ms: retry at once, the queue was too
--                                  long for one call;
--                                  highwater if there was a ticket in the request: no
--                                  earlier grant has a larger fence
--        0                         void: the request arrived too late
--        For a single request whose fence is the server's time: that, as an integer.

local time = redis.call('TIME')
local stamp = #time[2] == 6 and time[1] .. time[2] or time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local existing = ARGV[6] == '' and redis.call('EXISTS', lock, queue, meta) or redis.call('EXISTS', lock, queue, meta, holders)
local free = existing == 0 -- and nobody waits

-- Fast path: a single exclusive request on a free name. It creates no functions, which
-- would cost more than all its commands. It compares times as strings of equal length:
-- to parse one costs as much as a command.
local own_client = ARGV[6] ~= '' and string.match(ARGV[6], '^%- (.*)$')
local uncontended = free and not ARGV[8] and ARGV[7] == '' and (ARGV[6] == '' or own_client) and #stamp == #ARGV[4] and stamp <= ARGV[4]
local previous = uncontended and redis.pcall('SET', highwater, stamp, 'GET')
if uncontended and (not previous or type(previous) == 'string' and #previous == #stamp and previous < stamp) then
  if not own_client then
    redis.call('SET', lock, stamp .. ' ' .. ARGV[2], 'PX', ARGV[3])
    return now
  end
  redis.call('SET', lock, ARGV[2], 'PX', ARGV[3])
  redis.call('HSET', meta, '=', stamp .. ' ' .. own_client .. ' ' .. ARGV[2])
  redis.call('PEXPIRE', meta, ARGV[3])
  return now
end

-- Fast path when the lock is held exclusively: answer that, or join the queue.
local lock_value
if free then
  lock_value = false
elseif not ARGV[8] and now <= tonumber(ARGV[4]) then
  lock_value = redis.call('GET', lock)
end
if lock_value and not string.find(lock_value, ARGV[2], 1, true) and string.sub(lock_value, 1, 12) ~= 'dibs:shared ' then
  local shown = string.sub(lock_value, 1, 512) -- see entry.lua
  if ARGV[5] == '' then return { now, { '0', 0, redis.call('PTTL', lock), shown } } end
  local last = existing > 1 and redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
  local behind = ARGV[7] == '' and (not last or #last == #stamp and last < stamp) -- else the clock went back, or an entry was passed over
  if behind and redis.call('ZADD', queue, 'NX', stamp, ARGV[5] .. ' ' .. ARGV[2]) == 1 then
    -- The TTL of the queue is raised by the first entry of each 10 s.
    if not last or string.sub(last, 1, 9) ~= string.sub(stamp, 1, 9) then redis.call('PEXPIRE', queue, '60000') end
    if not last and existing > 1 then -- the lock has metadata
      --#include notify_wanted.lua
    end
    return { now, { stamp, last and redis.call('ZCARD', queue) or 1, redis.call('PTTL', lock), shown } }
  end
end

-- Fast path for a shared lease: join the shared holders, if there is room even beside
-- holders that have expired and are not removed yet.
local sum, total, weight, limit, client
if ARGV[6] ~= '' and (free or existing == 3 and lock_value) and redis.call('EXISTS', queue) == 0 then
  sum = free and 0 or tonumber(string.match(lock_value, '^dibs:shared (%d+)$'))
  weight, limit, client = string.match(ARGV[6], '^(%d+)/(%d+) (.*)$')
  total = sum and weight and sum + weight
end
local joins = total and total <= tonumber(limit) and not ARGV[8] and ARGV[7] == '' and now <= tonumber(ARGV[4])
local lock_ms = joins and not free and redis.call('PTTL', lock) or 0 -- -1 if somebody has removed the TTL
if joins and lock_ms >= 0 then
  local token, ttl, last_fence = ARGV[2], tonumber(ARGV[3]), redis.pcall('SET', highwater, stamp, 'GET')
  local ms = time[1] * 1000 + math.ceil(time[2] / 1000) + ttl
  if (not last_fence or type(last_fence) == 'string') and redis.call('ZADD', holders, 'NX', ms, token) == 1 then
    local fence = now
    if last_fence and tonumber(last_fence) >= now then
      fence = last_fence + 1
      redis.call('SET', highwater, fence)
    end
    fence = string.format('%.0f', fence)
    redis.call('HSET', meta, '=' .. token, weight .. ' ' .. fence .. ' ' .. client)
    ttl = math.max(ttl, lock_ms)
    redis.call('SET', lock, 'dibs:shared ' .. string.format('%.0f', total), 'PX', ttl)
    if free or redis.call('PTTL', holders) < ttl + 30000 then -- see flush_shared
      redis.call('PEXPIRE', holders, ttl + 60000)
      redis.call('PEXPIRE', meta, ttl + 60000)
    end
    return { now, fence }
  end
end

--#include fence.lua

--#include holders.lua

if uncontended then
  local fence = resolve_fence(previous, now)
  set_exclusive(ARGV[2], tonumber(ARGV[3]), fence, own_client)
  return { now, integer(fence) }
end

--#include queue.lua
--#include entry.lua

local used, holder = read_usage(lock_value, free)
local has_waiters = not free and not holder and redis.call('EXISTS', queue) == 1
local served, all_passed_over = false, false -- all_passed_over: all waiters were passed over

--#include grant.lua

local reply, first_holder, first_ms = { now }, nil, nil

-- join joins the queue with the ticket of the last reply, or a new one.
local function join(entry, former)
  return join_queue(entry, former == '' and new_ticket() or string.match(former, '^%d+'), former)
end

for i = 2, #ARGV, 6 do
  local token, ttl, entry, former = ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 3], ARGV[i + 5]
  weight, limit, client = string.match(ARGV[i + 4], '^(%d+)/(%d+) (.*)$')
  weight, limit = tonumber(weight), tonumber(limit)
  if not weight then client = string.match(ARGV[i + 4], '^%- (.*)$') end
  if entry ~= '' then entry = entry .. ' ' .. token end
  local answer
  if now > tonumber(ARGV[i + 2]) then
    answer = 0
  else
    -- The whole queue was lost: the waiters before this one also come back.
    if entry ~= '' and string.find(former, '+', 1, true) and not is_holder(token) then has_waiters = true end
    if has_waiters and not served and not holder and not is_holder(token) then
      -- A lease expired, or another library deleted the key without a hand-off. The
      -- waiters come first, and this request is one of them.
      if entry ~= '' then join(entry, former) end
      local blocker
      used, holder, blocker = serve_queue(used, now, ARGV[1], false)
      served, all_passed_over = true, not blocker and not incomplete
      has_waiters = not all_passed_over or redis.call('EXISTS', queue) == 1
      first_holder, first_ms, queue_length, last_ticket, ttl_set = nil, nil, nil, nil, {}
    end
    if is_holder(token) then
      answer = refresh(token, ttl, entry, weight, now)
    elseif (not has_waiters or all_passed_over and entry ~= '') and used + (weight or 1) <= (limit or 1)
      and (free or used > 0 or entry == '' or not in_gap()) then -- one that does not queue need not be fair
      if has_waiters then -- it overtakes the passed-over waiters, and may be one of them
        redis.call('ZREM', queue, entry)
        redis.call('HDEL', meta, entry, '?' .. entry)
      end
      answer = make_holder(token, ttl, weight, client, now)
      first_holder, first_ms = nil, nil
    else
      if not first_holder then first_holder, first_ms = first_expiry(used, holder) end
      local ms, shown = first_ms, first_holder
      if blocked_ms and used + (weight or 1) <= (limit or 1) then ms, shown = blocked_ms, '' end
      if entry == '' then
        answer = { '0', 0, ms, shown }
      else
        local ticket, position = join(entry, former)
        has_waiters, all_passed_over = true, false
        answer = { ticket, position, ms, shown, position == 1 and must_poll(holder) or 0 }
        if former ~= '' then answer[6] = redis.call('GET', highwater) or '0' end
      end
    end
  end
  reply[#reply + 1] = answer
end
flush_shared(used)
return reply
