-- Releases a lease and hands the lock off to the first waiters that fit, in one step.
-- Compares the whole token before it deletes. With an entry it also leaves the queue.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
--        6 node, or none
-- ARGV   1  the value of the lock, as the client knows it: see value.lua
--        2  the holder's fence, "0" if unknown, "" if it is in the value
--        3  until: µs of the server's clock after which the release is void, or "" if
--           nobody acquires with this token again: then a late release finds nothing
--        4  reserve: ms for which the lock stays reserved, "0" to free it. Its holder
--           is then the token with " reserved" after it; the fence stays
--        5  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        6  the queue entry to remove, token included, or ""
--        7  without the sixth key: "1" if clients of other libraries want the name, see
--           leave_free.lua
--        7… with the sixth key, a vote request: see read_vote_args in node.lua
-- Reply  1 the token held, 0 it did not; else the server's time in µs: void, too late

local time, now
if ARGV[3] ~= '' then
  time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
  if now > tonumber(ARGV[3]) then return now end
end

local entry = ARGV[6]
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

if entry ~= '' then
  redis.call('ZREM', queue, entry)
  redis.call('HDEL', meta, entry, '?' .. entry)
end

-- Commands that an out-of-memory server refuses never come first: a release needs no
-- memory. A key that is not of dibs is an error before the first write.
local holder, token = redis.call('GET', lock), ARGV[1]
local is_held = holder == token
if not is_held or ARGV[4] ~= '0' then -- as split_value, without making a function on the fast path
  token = string.match(token, '^%d+ ([^:%s]+:%d+:[^:%s]+:.+)$') or token
  is_held = is_held or holder and token == (string.match(holder, '^%d+ ([^:%s]+:%d+:[^:%s]+:.+)$') or holder)
end
local shared = holder and not is_held and string.sub(holder, 1, 12) == 'dibs:shared '
local popped_head
if is_held and ARGV[4] == '0' and ARGV[7] == '1' and not KEYS[6] then
  --#include leave_free.lua
end
if is_held and ARGV[4] == '0' then
  redis.call('HDEL', meta, '=', '!') -- what is known of this lease
  popped_head = redis.call('ZPOPMIN', queue)
  if not popped_head[1] then -- fast path: nobody waits
    redis.call('DEL', lock, meta)
    return 1
  end
elseif holder and not is_held and not shared then
  return 0
elseif not holder and redis.call('EXISTS', queue) == 0 then
  redis.pcall('HDEL', meta, '~heard') -- of waiters that are gone
  return 0
end

local last_fence = tonumber(ARGV[2] ~= '' and ARGV[2] or string.match(ARGV[1], '^%d+'))
if not now then -- the fast path above saves this call
  time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- Fast path of a hand-off: the first waiter wants the lock exclusively, is alive and can
-- be reached. It does what serve_queue would, without making functions. The metadata has
-- no fields of an entry that has joined recently: see may_have_meta.
local ttl, weight, limit, client, next_token
if popped_head and not KEYS[6] and now % 32 ~= 0 then
  ttl, weight, limit, client, next_token = string.match(popped_head[1], '^%x+ (%d+) (%d+)/(%d+) ([^:%s]+:%d+:[^:%s]+) (.+)$')
end
local usual = ttl and weight == limit and #next_token > #client + 1 and string.sub(next_token, 1, #client + 1) == client .. ':' and tonumber(popped_head[2]) < 4503599627370496
local is_fresh = usual and math.abs(now - popped_head[2]) < 1250000
local was_heard = usual and not is_fresh and math.abs(now - (redis.call('HGET', meta, popped_head[1]) or popped_head[2])) < 5000000
was_heard = was_heard and not string.find(redis.call('HGET', meta, '~heard') or '', 'lost', 1, true)
if is_fresh or was_heard then
  local reachable = ARGV[5] == '0' or redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
  if reachable == true or reachable.err or reachable[2] ~= 0 then
    local fence = math.max(last_fence + 1, now)
    local previous = redis.pcall('SET', highwater, string.format('%.0f', fence), 'GET')
    if type(previous) ~= 'table' then
      if previous and tonumber(previous) >= fence then
        fence = tonumber(previous) + 1
        redis.call('SET', highwater, string.format('%.0f', fence))
      end
      -- Nobody has the fences after the last one of this slot.
      local own = last_fence ~= 0 and previous and math.min(fence - math.max(last_fence, tonumber(previous)), 1000) or 1
      fence = string.format('%.0f', fence)
      local message = string.format('%s/%.0f %.0f %.0f ', fence, own, tonumber(popped_head[2]), now) .. next_token
      redis.pcall('PUBLISH', 'dibs:c:' .. client, message)
      if was_heard then redis.call('HDEL', meta, popped_head[1], '?' .. popped_head[1]) end
      redis.call('SET', lock, fence .. ' ' .. next_token, 'PX', ttl)
      return 1
    end
  end
end

-- Fast path of a shared holder: nobody waits, and no holder has expired.
if shared and ARGV[4] == '0' and redis.call('EXISTS', queue) == 0 then
  local first = redis.call('ZRANGE', holders, 0, 0, 'WITHSCORES')[2]
  local weight = string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+')
  if first and weight and first * 1000 > now and redis.call('ZREM', holders, token) == 1 then
    local sum = string.sub(holder, 13) - weight
    local last_expiry = sum > 0 and redis.call('ZRANGE', holders, -1, -1, 'WITHSCORES')[2]
    if last_expiry then
      redis.call('HDEL', meta, '=' .. token)
      local ms = last_expiry - time[1] * 1000 - math.ceil(time[2] / 1000)
      redis.call('SET', lock, 'dibs:shared ' .. string.format('%.0f', sum), 'PX', math.max(ms, 1))
    else
      redis.call('DEL', lock, meta, holders)
    end
    return 1
  end
end

--#include fence.lua
--#include holders.lua
--#include queue.lua
--#include node.lua

-- An error before the next write if a key is not of dibs: DEL would delete it.
local function check_types()
  if not popped_head then redis.call('ZCARD', queue) end
  redis.call('ZCARD', holders)
  redis.call('GET', highwater)
  read_heard()
end

local is_ours, wrong_type = pcall(check_types)
if not is_ours then
  if popped_head then put_back(popped_head[1], popped_head[2]) end
  error(wrong_type, 0)
end

local used = 0
if shared then
  local unknown
  used, unknown = read_usage(holder)
  if unknown then return 0 end
  is_held = used > 0 and redis.call('ZSCORE', holders, token) ~= false
end
if is_held and ARGV[4] ~= '0' then
  -- The lease ends now. Under the same token, a renewal in flight would extend the
  -- reservation.
  local ms, reserved_token = tonumber(ARGV[4]), token .. ' reserved'
  if shared then
    local weight, fence, client = string.match(redis.call('HGET', meta, '=' .. token) or '1 0 -', '^(%d+) (%d+) (.*)$')
    used = remove_shared(token, used)
    used = add_shared(reserved_token, tonumber(weight), ms, tonumber(fence), client, used)
    flush_shared(used)
  else
    redis.call('PEXPIRE', lock, ms)
    local _, fence = split_value(holder)
    if fence then
      redis.call('SET', lock, fence .. ' ' .. reserved_token, 'PX', ms)
    else
      set_exclusive(reserved_token, ms, last_fence, '-')
    end
  end
  local waiter = redis.call('ZRANGE', queue, 0, 0)[1]
  if waiter then notify_retry(waiter) end -- it retries, and learns when the lock expires now
  return 1
end
if is_held and shared then used = remove_shared(token, used) end
local min_fence = KEYS[6] and read_vote_args(KEYS[6], 7) or math.max(last_fence + 1, now)
used = serve_queue(used, min_fence, ARGV[5], true, popped_head)
flush_shared(used)
if used == 0 then
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', meta, holders) end
end
return is_held and 1 or 0
