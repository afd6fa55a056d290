-- Answers to requests that have to wait. Included after queue.lua.

local MAX_SHOWN = 512 -- bytes of a holder in a reply; no token of dibs is longer

-- shown_holder is what a reply says of a holder: the whole token, unless it is no token of
-- dibs but data of a program.
local function shown_holder(holder) return string.sub(holder, 1, MAX_SHOWN) end

-- first_expiry returns the holder that expires first, and in how many ms, from the
-- results of read_usage. If nobody holds, a waiter, which may be dead, comes first. The
-- result is then '' and for how long it can block the name; in a gap, '' and its rest. It is
-- '' and 0 if this call did not get to the end of the queue and has to be repeated.
local function first_expiry(used, holder)
  if incomplete then return '', 0 end
  if holder then return shown_holder(holder), redis.call('PTTL', lock) end
  if used == 0 then return '', blocked_ms or gap_left or 5000 end
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2]) - math.ceil(now / 1000)
end

-- What this call has read of a queue until it serves an entry: the queue's length, its largest
-- ticket, and the keys whose TTL it has raised already.
local queue_length, last_ticket, ttl_set = nil, nil, {}

local function ensure_aux_ttl(key)
  if ttl_set[key] then return end
  ttl_set[key] = true
  if key == queue then redis.call('PEXPIRE', key, AUX_TTL) else ensure_ttl(key, AUX_TTL) end
end

-- new_ticket returns a ticket behind all others, also after the clock went back. The tickets
-- of vote requests are from another clock.
local function new_ticket()
  if not last_ticket then
    local last, passed_over = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES'), false
    last_ticket = 0
    if last[1] and not is_vote(last[1]) then last_ticket, passed_over = decode_score(last[2]) end
    if passed_over then
      local n = redis.call('ZCOUNT', queue, PASSED_OVER, '+inf')
      local before = redis.call('ZRANGE', queue, -1 - n, -1 - n, 'WITHSCORES')[2]
      last_ticket = math.max(last_ticket, tonumber(before or 0))
    end
  end
  last_ticket = math.max(now, last_ticket + 1)
  return integer(last_ticket)
end

-- heartbeat records the heartbeat of an entry with a ticket.
local function heartbeat(entry, ticket)
  hear(ticket)
  redis.call('HSET', meta, entry, integer(now), '~heard', heard_text())
  ensure_aux_ttl(meta)
end

-- join_queue adds an entry to the queue, or keeps its position; a repeated call is the
-- heartbeat. An entry that was passed over returns to its former position, and is not passed
-- over again, unless it is late and has not answered in time. `former` is "" for
-- a new entry; else an earlier ticket of the waiter, which does not replace a heartbeat, with
-- a "+" if no script can have removed the entry since.
local function join_queue(entry, ticket, former)
  callers[entry] = true
  if redis.call('ZADD', queue, 'NX', ticket, entry) == 1 then
    queue_length = queue_length and queue_length + 1 or redis.call('ZCARD', queue)
    ensure_aux_ttl(queue)
    if string.find(former, '+', 1, true) then mark_lost(tonumber(ticket)) end
    if former ~= '' or tonumber(ticket) - now > FRESH then heartbeat(entry, now) end
    if queue_length == 1 then
      --#include notify_wanted.lua
    end
    return ticket, former ~= '' and redis.call('ZRANK', queue, entry) + 1 or queue_length
  end
  local passed_over
  ticket, passed_over = decode_score(redis.call('ZSCORE', queue, entry))
  ensure_aux_ttl(queue)
  if passed_over then
    redis.call('ZADD', queue, integer(ticket), entry)
    local notified, since, mark = nil, nil, integer(now)
    if is_late(entry) then notified, since = string.match(redis.call('HGET', meta, '?' .. entry) or '', '^(%d+) (%d+)') end
    if since then mark = mark .. ' ' .. since .. '+' end
    if not since or now - notified <= ANSWER then redis.call('HSET', meta, '?' .. entry, mark) end
    heartbeat(entry, ticket)
  elseif math.abs(now - ticket) > FRESH then -- until then the ticket replaces a heartbeat
    heartbeat(entry, ticket)
  end
  return integer(ticket), redis.call('ZRANK', queue, entry) + 1
end

-- is_foreign reports whether an exclusive holder is a client of another library: its token
-- has not the form of dibs, and no script has recorded it.
local function is_foreign(holder)
  if string.find(holder, '^[^:%s]+:%d+:[^:%s]+:%w') or string.sub(holder, 1, #SHARED) == SHARED then return false end
  return string.match(redis.call('HGET', meta, '=') or '', '^%d+ %S+ (.*)$') ~= holder
end

-- must_poll returns 1 if nobody notifies the first waiter: in a gap, or if the holder is
-- foreign, which it records for leave_free.lua. Else it returns 0.
local function must_poll(holder)
  if not holder then return gap_left and 1 or 0 end
  if not is_foreign(holder) then return 0 end
  redis.call('HSET', meta, '~seen', integer(now))
  ensure_aux_ttl(meta)
  return 1
end
