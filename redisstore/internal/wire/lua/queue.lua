-- Which waiter is served next. Included by scripts that grant, after fence.lua and
-- holders.lua.
--
-- queue  zset: entry → ticket (µs of the server's clock at which it joined, or one more
--              than the largest ticket if the clock went back). An entry that was passed
--              over has PASSED_OVER added: it comes behind all others until its next
--              heartbeat
-- meta   hash: entry → µs of its last heartbeat after joining;
--              "?" entry → it was passed over and came back; for a late entry "at since", and
--              "+" if it has answered: see must_answer;
--              "~heard" → see read_heard;
--              "~" and "~seen" → see leave_free.lua
--
-- An entry is "seq ttl weight/limit client token", which is all that a hand-off needs. A
-- "+" after the limit means that the waiter wants further names: it is notified to retry,
-- and never granted here. A "*" means that the entry belongs to a vote request
-- (vote.lua): its ticket comes from the quorum's clock. A script that does not know the
-- identity of this store notifies it to retry as well. A limit that begins with "0" means
-- that the waiter is late: grants have reached its client late.

local WAITER_TTL = 5000000           -- µs for which an entry lives without a heartbeat
local FRESH = WAITER_TTL / 4         -- µs for which the ticket replaces a heartbeat
local HEARTBEAT = 2750000            -- µs within which each live waiter sends a heartbeat: 2.4 s, and its way
local RETURN = 2500000               -- µs within which the waiters of a lost queue return, after the first one
local RESTORED = 45000000            -- µs: a queue that a step of the clock has expired is older than this
local HEARD_TTL = 10000              -- ms for which it matters whether waiters are silent
local PASSED_OVER = 4503599627370496 -- 2^52: larger than every ticket, and the sum is exact
local ANSWER = 500000                -- µs within which a late waiter answers if its link is good again
local ANSWERED = 1000000             -- µs for which that counts
local PATIENCE = 15000000            -- µs after which it is granted the lock unasked, so that it does not starve
local MAX_ASKED = 4                  -- late waiters that one call passes over
local GRANT_COST = 4                 -- cost of a grant; an entry that is skipped costs 1

-- What is left of this call's budget. A script blocks the server: without a budget, a script took
-- 293 ms beside 20,000 dead waiters; with this budget it takes 4 ms.
local budget = 240
local node_id         -- id of this store, for vote requests; nil if it may not grant to them
local callers = {}    -- entries whose owners wait for this reply
local subscribed = {} -- client → whether its channel has a subscriber
local asked = 0       -- how many late waiters this call has passed over

local function is_vote(entry) return string.find(entry, '^%x+ %d+ %d+/%d+%*') end

local function is_late(entry) return string.find(entry, '^%x+ %d+ %d+/0') end

-- decode_score returns the ticket in a score, and whether the entry was passed over.
local function decode_score(score)
  score = tonumber(score)
  if score < PASSED_OVER then return score, false end
  return score - PASSED_OVER, true
end

-- last_heard returns when the owner of an entry was last heard. A time in the future is from
-- before the clock went back. Its age is unknown, so the owner has until its next
-- heartbeat is due.
local function last_heard(entry, ticket)
  local at = tonumber(redis.call('HGET', meta, entry) or not is_vote(entry) and ticket or 0)
  if at - now <= FRESH then return at end
  at = now - WAITER_TTL + HEARTBEAT
  redis.call('HSET', meta, entry, integer(at))
  ensure_ttl(meta, HEARD_TTL)
  return at
end

-- is_alive reports whether the owner of an entry was heard within the waiter TTL.
local function is_alive(entry, ticket)
  if now - ticket < WAITER_TTL and ticket - now <= FRESH and not is_vote(entry) then return true end
  return now - last_heard(entry, ticket) < WAITER_TTL
end

-- What is known of the waiters of the selected name as a whole. A silent waiter is dead only
-- if time has passed in which it was silent. If the clock went ahead, or the server was
-- stopped, all waiters seem silent, and the live ones send their heartbeats soon.
--
-- "~heard" is "since last mark". From `since` to `last`, in µs, heartbeats came without a
-- pause, so the time between is real. A mark records how this began:
--        "awaited"  a silent entry was found at the head. It is dead if it is not heard
--                   before its next heartbeat was due
--        "lost"     an entry came back that no script had removed: the server lost the
--                   queue. Nobody is served before the others had time to return
local heard
local blocked_ms -- for how many ms the entry that blocks can do so, if it is silent from now on

-- read_heard reads the field. It is an error if the key is not of dibs.
local function read_heard()
  if heard then return heard end
  local since, last, mark = string.match(redis.call('HGET', meta, '~heard') or '', '^(%d+) (%d+) (%a*)$')
  heard = { since = tonumber(since), last = tonumber(last), mark = mark or '' }
  if since and heard.since > now then heard = { mark = '' } end -- the clock went back
  return heard
end

local function heard_text() return integer(heard.since) .. ' ' .. integer(heard.last) .. ' ' .. heard.mark end

local function write_heard()
  redis.call('HSET', meta, '~heard', heard_text())
  ensure_ttl(meta, HEARD_TTL)
end

-- is_steady reports whether no pause was longer than HEARTBEAT.
local function is_steady() return heard.since and now - heard.last <= HEARTBEAT end

-- hear records a heartbeat of an entry. The time since it joined the queue is real as well, if
-- that is not longer than a pause.
local function hear(ticket)
  read_heard()
  local marked = heard.mark ~= '' and now - heard.since < 2 * HEARTBEAT
  if not marked then
    heard.mark = ''
    if not is_steady() then heard.since = now - ticket <= HEARTBEAT and math.min(ticket, now) or now end
  end
  heard.last = now
end

-- hear_request records a request that is none of the waiters'. It is a sign that time has passed,
-- as a heartbeat is.
local function hear_request()
  if now - (read_heard().last or 0) <= FRESH / 2 then return end
  hear(now)
  write_heard()
end

-- is_awaited reports whether a silent entry may come back. If not, its owner is dead.
-- Otherwise it sets blocked_ms, and returns "new" the first time.
local function is_awaited(entry, ticket)
  read_heard()
  local steady, first = is_steady(), false
  local counts = steady or heard.mark ~= '' and heard.since > last_heard(entry, ticket)
  if counts and now - heard.since >= HEARTBEAT then return false end
  if not counts or heard.mark == '' then
    heard = { since = counts and heard.since or now, last = now, mark = 'awaited' }
    write_heard()
    first = true
  end
  blocked_ms = math.ceil((heard.since + HEARTBEAT - now) / 1000)
  return first and 'new' or true
end

-- mark_lost records that the queue was lost with an entry, unless the metadata are older than
-- that. Younger entries show that no step of the clock has expired it: the server has lost its
-- data, its connections with it, and all waiters return at once.
local function mark_lost(ticket)
  if now - ticket < RESTORED or read_heard().since then return end
  heard = { since = now, last = now, mark = 'lost' }
end

-- is_lost reports whether the queue was lost a moment ago, and sets blocked_ms.
local function is_lost()
  read_heard()
  if heard.mark ~= 'lost' or now - heard.since >= RETURN then return false end
  blocked_ms = math.ceil((heard.since + RETURN - now) / 1000)
  return true
end

-- is_subscribed reports whether a client would receive a notification.
local function is_subscribed(client)
  if subscribed[client] == nil then
    local ok = redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
    subscribed[client] = ok.err ~= nil or ok[2] ~= 0
  end
  return subscribed[client]
end

-- is_reachable reports whether the owner of an entry would receive a notification. The
-- connection of a dead process is closed, so its entry need not delay the others for a
-- whole waiter TTL. A live owner that cannot be reached is passed over only once, until
-- its next heartbeat, so that it does not starve.
local function is_reachable(entry, client)
  return callers[entry] or is_subscribed(client) or redis.call('HEXISTS', meta, '?' .. entry) == 1
end

-- publish sends a notification to a client. It ignores errors: a user that may not
-- PUBLISH still hands off, and the waiter finds its grant when it retries.
local function publish(client, fence, ticket, sent, token)
  redis.pcall('PUBLISH', 'dibs:c:' .. client, fence .. ' ' .. ticket .. ' ' .. sent .. ' ' .. token)
end

local function parse_entry(entry)
  local ttl, weight, limit, flag, client, token = string.match(entry, '^%x+ (%d+) (%d+)/(%d+)([+*]?) (%S+) (.*)$')
  local must_retry = flag == '+' or flag == '*' and not node_id
  return tonumber(weight), tonumber(limit), must_retry, tonumber(ttl), client, token
end

-- may_have_meta reports whether the metadata may have fields of an entry.
local function may_have_meta(entry, ticket, client)
  return math.abs(now - ticket) > FRESH or subscribed[client] == false or is_vote(entry) or is_late(entry)
end

-- notify_retry notifies the owner of an entry to retry.
local function notify_retry(entry)
  local _, _, _, _, client, token = parse_entry(entry)
  publish(client, '0', '0', '0', token)
end

-- must_answer reports whether a late waiter, whose turn it is, has to answer before it is
-- granted the lock. A grant that it does not receive leaves the lock idle for the hand-off
-- TTL. So it is passed over and notified to retry. If its request comes in time, it is
-- granted the lock at the next release. `at` is when it was notified or has answered, `since`
-- when it was passed over first.
local function must_answer(entry)
  if not is_late(entry) or callers[entry] or asked == MAX_ASKED then return false end
  local at, since, answered = string.match(redis.call('HGET', meta, '?' .. entry) or '', '^(%d+) (%d+)(%+?)$')
  if at and (answered == '+' and now - at <= ANSWERED or now - since >= PATIENCE) then return false end
  asked = asked + 1
  redis.call('HSET', meta, '?' .. entry, integer(now) .. ' ' .. (since or integer(now)))
  ensure_ttl(meta, AUX_TTL)
  notify_retry(entry)
  return true
end

-- grant_entry makes the owner of an entry a holder, notifies its client, and returns the
-- same as read_usage.
local function grant_entry(entry, ticket, min_fence, used, ttl, weight, limit, client, token)
  local fence = next_fence(min_fence)
  publish(client, integer(fence), integer(ticket), node_id and is_vote(entry) and '@' .. node_id or integer(now), token)
  if weight == limit then
    redis.call('HDEL', meta, '=', '!')
    set_exclusive(token, ttl, fence, client)
    return math.huge, token
  end
  return add_shared(token, weight, ttl, fence, client, used)
end

-- iterate_queue returns an iterator over the entries of the queue and their scores. It
-- returns nothing after the last. popped_head is the first entry and its score if it was
-- popped from the queue already.
local function iterate_queue(popped_head)
  local list, i, rank, size = popped_head or {}, 1, 0, 1
  return function()
    if i > #list then
      list, i = redis.call('ZRANGE', queue, rank, rank + size - 1, 'WITHSCORES'), 1
      rank, size = rank + size, 32
    end
    i = i + 2
    return list[i - 2], list[i - 1]
  end
end

-- remove_entries removes entries from the queue, and their metadata.
local function remove_entries(entries)
  if not entries[1] then return end
  redis.call('ZREM', queue, unpack(entries))
  for i = 1, #entries do entries[#entries + 1] = '?' .. entries[i] end
  redis.call('HDEL', meta, unpack(entries))
end

-- sweep removes entries that died after they were passed over.
local function sweep()
  local list, dead = redis.call('ZRANGEBYSCORE', queue, PASSED_OVER, '+inf', 'WITHSCORES', 'LIMIT', 0, 64), {}
  for i = 1, #list, 2 do
    if is_alive(list[i], decode_score(list[i + 1])) then break end
    dead[#dead + 1] = list[i]
  end
  remove_entries(dead)
end

-- request_continuation has the queue served further by later calls, after this call ran
-- out of its budget at an entry. It notifies the entry's owner and the last waiter, which
-- is the most likely to be alive. If neither receives it, the next heartbeat of any
-- waiter continues.
local function request_continuation(entry)
  incomplete = true
  notify_retry(entry)
  local passed_over = redis.call('ZCOUNT', queue, PASSED_OVER, '+inf')
  local last = redis.call('ZRANGE', queue, -1 - passed_over, -1 - passed_over)[1]
  if last and last ~= entry then notify_retry(last) end
end

-- pop_passed_over removes and returns the first live entry that was passed over, unless
-- it must retry or is late. It is used when nobody holds: a waiter that cannot be reached
-- is better than none.
local function pop_passed_over()
  while budget > 0 do
    local first = redis.call('ZRANGEBYSCORE', queue, PASSED_OVER, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    local entry = first[1]
    if not entry then return end
    local ticket = decode_score(first[2])
    if is_alive(entry, ticket) then
      local _, _, must_retry = parse_entry(entry)
      if must_retry or is_late(entry) then return end
      redis.call('ZREM', queue, entry)
      redis.call('HDEL', meta, entry, '?' .. entry)
      if redis.call('EXISTS', queue) == 0 then redis.call('HDEL', meta, '~heard') end
      return entry, ticket
    end
    remove_entries({ entry })
    budget = budget - 1
  end
end

-- gap_left is for how many ms the selected name stays free for clients of other libraries.
local gap_left

-- in_gap reports whether the name stays free, and sets gap_left.
local function in_gap()
  local start, length = string.match(redis.call('HGET', meta, '~') or '', '^(%d+) (%d+)')
  if not start or now < tonumber(start) then return false end
  local left = math.ceil((start - now) / 1000) + length
  gap_left = left > 0 and left or nil
  return left > 0
end

-- put_back adds an entry again that was popped from the queue.
local function put_back(entry, score)
  redis.call('ZADD', queue, score, entry)
  redis.call('PEXPIRE', queue, AUX_TTL) -- the key may be new
end

-- note_blocker sets blocked_ms for the entry that blocks the name.
local function note_blocker(entry, ticket, used)
  blocked_ms = math.max(math.ceil((last_heard(entry, ticket) + WAITER_TTL - now) / 1000), 1)
  if used == 0 then hear_request() end
end

-- serve_queue grants to the entries at the head of the queue that are alive, reachable
-- and fit: to one exclusive entry, or to several shared ones. The first entry that does
-- not fit blocks those behind it, which could otherwise overtake it for ever. If nobody
-- holds and no entry is reachable, one entry is served nevertheless. In a gap none is
-- served, nor while a lost queue comes back. A silent entry blocks until it is heard, or is
-- dead. It returns the results of read_usage, and the entry that blocks, or '-' if none is served.
--
-- used         weight held; 0 also if the holder is being released
-- min_fence    the least fence
-- check        "1" if PUBSUB NUMSUB sees all subscribers, else "0"
-- freed        capacity was freed: an entry that must retry is notified
-- popped_head  the first entry and its score, if it was popped already
local function serve_queue(used, min_fence, check, freed, popped_head)
  if used == 0 and not freed and in_gap() then return 0, nil, '-' end
  if is_lost() then
    if popped_head then put_back(popped_head[1], popped_head[2]) end
    local first = freed and redis.call('ZRANGE', queue, 0, 0)[1]
    if first then notify_retry(first) end
    return used, nil, '-'
  end
  local replies = not freed -- to a request that may have to wait
  local holder, blocker, removals, reinserts = nil, nil, {}, {}
  local next_entry = iterate_queue(popped_head)
  while used ~= math.huge and not blocker do
    local entry, score = next_entry()
    if not entry then break end
    local ticket, passed_over = decode_score(score)
    if budget <= 0 and not passed_over then
      request_continuation(entry)
      break
    end
    local was_popped = popped_head and popped_head[1] == entry
    local alive, weight, limit, must_retry, ttl, client, token = is_alive(entry, ticket), parse_entry(entry)
    local awaited = not alive and not passed_over and client and (check == '0' or is_subscribed(client)) and is_awaited(entry, ticket)
    if awaited then
      blocker = entry
      if was_popped then reinserts[#reinserts + 1], reinserts[#reinserts + 2] = score, entry end
      if freed or awaited == 'new' then notify_retry(entry) end
    elseif not alive then
      removals[#removals + 1] = entry
      freed, budget = true, budget - 1
      if budget <= 0 and passed_over then break end
    elseif passed_over then -- and so are all behind it
      if was_popped then reinserts = { score, entry } end
      break
    else
      if check ~= '0' and not is_reachable(entry, client) then
        reinserts[#reinserts + 1], reinserts[#reinserts + 2] = integer(ticket + PASSED_OVER), entry
        budget = budget - 1
      elseif must_retry or used + weight > limit then
        blocker = entry
        if was_popped then reinserts[#reinserts + 1], reinserts[#reinserts + 2] = score, entry end
        if must_retry and used + weight <= limit and freed then notify_retry(entry) end
        if replies and not callers[entry] then note_blocker(entry, ticket, used) end
      elseif must_answer(entry) then
        reinserts[#reinserts + 1], reinserts[#reinserts + 2] = integer(ticket + PASSED_OVER), entry
        budget = budget - GRANT_COST
      else
        used, holder = grant_entry(entry, ticket, min_fence, used, ttl, weight, limit, client, token)
        budget = budget - GRANT_COST
        if not was_popped or may_have_meta(entry, ticket, client) then removals[#removals + 1] = entry end
      end
    end
  end
  remove_entries(removals)
  if reinserts[1] then
    redis.call('ZADD', queue, unpack(reinserts))
    if popped_head then redis.call('PEXPIRE', queue, AUX_TTL) end -- the key may be new
  end
  if used == 0 and not blocker and not incomplete then
    local entry, ticket = pop_passed_over()
    if entry then
      local weight, limit, _, ttl, client, token = parse_entry(entry)
      used, holder = grant_entry(entry, ticket, min_fence, used, ttl, weight, limit, client, token)
    end
  end
  if now % 32 == 0 then sweep() end
  return used, holder, blocker
end
