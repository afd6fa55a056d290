-- Answers to requests that have to wait. Included after queue.lua.

-- first_expiry returns the holder that expires first, and in how many ms, from the
-- results of read_usage. The result is '' and 5000 if nobody holds: a waiter, which may
-- be dead, comes first; in a gap, '' and its rest. It is '' and 0 if this call did not get
-- to the end of the queue and has to be repeated.
local function first_expiry(used, holder)
  if incomplete then return '', 0 end
  if holder then return holder, redis.call('PTTL', lock) end
  if used == 0 then return '', gap_left or 5000 end
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')
  return first[1], tonumber(first[2]) - math.ceil(now / 1000)
end

-- What this call knows of a queue until it serves an entry: the queue's length, and the
-- keys whose TTL it has raised already.
local queue_length, ttl_set = nil, {}

local function ensure_aux_ttl(key)
  if ttl_set[key] then return end
  ttl_set[key] = true
  if key == queue then redis.call('PEXPIRE', key, AUX_TTL) else ensure_ttl(key, AUX_TTL) end
end

-- heartbeat records the heartbeat of an entry.
local function heartbeat(entry)
  redis.call('HSET', meta, entry, integer(now))
  ensure_aux_ttl(meta)
end

-- join_queue adds an entry to the queue, or keeps its position; a repeated call is the
-- heartbeat. An entry that was passed over returns to its former position.
local function join_queue(entry, ticket)
  callers[entry] = true
  if redis.call('ZADD', queue, 'NX', ticket, entry) == 1 then
    queue_length = queue_length and queue_length + 1 or redis.call('ZCARD', queue)
    if queue_length == 1 then
      ensure_aux_ttl(queue)
      --#include notify_wanted.lua
    end
    return ticket, queue_length
  end
  local passed_over
  ticket, passed_over = decode_score(redis.call('ZSCORE', queue, entry))
  ensure_aux_ttl(queue)
  if passed_over then
    redis.call('ZADD', queue, integer(ticket), entry)
    redis.call('HSET', meta, '?' .. entry, integer(now))
    heartbeat(entry)
  elseif now - ticket > FRESH then -- until then the ticket replaces a heartbeat
    heartbeat(entry)
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
