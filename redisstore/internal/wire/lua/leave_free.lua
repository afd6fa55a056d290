-- Leaves the name free for a moment, a gap, instead of a hand-off. Clients of other
-- libraries would never find a name free that is handed off from waiter to waiter, and
-- seldom one whose last holder acquires it again at once. Included by release.lua while the
-- token holds.
--
-- meta  "~" → "start length due": when the last gap began, in µs; its length in ms, 0 if
--             there was none; when the next one is due, in µs, or 0 before the first
--             release that follows
--       "~seen" → when a waiter last found a foreign holder, in µs
--
-- The next gap is due when clients of dibs have had the name for as long as they had waited
-- for it, at most 1 s. So both sides get the same part of the time, whoever polls faster. In
-- Redisson mode it is due after two fifths of that: the threads of Redisson overtake each
-- other, so one of them may wait long. If no foreign holder was seen for 5 s, a gap of 25 ms
-- follows each second, if somebody waits. A gap in which nobody was seen makes the next one
-- twice as long, for clients that poll slowly.

time = redis.call('TIME')
now = time[1] * 1000000 + time[2]
local start, length, due = string.match(redis.call('HGET', meta, '~') or '', '^(%d+) (%d+) (%d+)$')
local seen = tonumber(redis.call('HGET', meta, '~seen') or 0)
--#redisson if foreign_client_waits() then seen = now end
start, length, due = tonumber(start or now), tonumber(length or 0), tonumber(due or 0)
local mixed = now - seen < 5000000
local first = redis.call('ZRANGE', queue, 0, 0)[1]
if mixed or first then
  if due == 0 then
    local ours = now - start
    --#redisson ours = ours * 0.4
    due = mixed and now + math.min(ours, 1000000) or start + 1000000
  end
  local is_due = now >= due or now < start
  if is_due then
    if not mixed then
      length = 25
    elseif seen > start then
      length = math.max(25, math.floor(length / 2))
    else
      length = math.min(200, math.max(25, length * 2))
    end
    start, due = now, 0
  end
  local frees = is_due or not first
  if frees then
    redis.call('DEL', lock)
    redis.call('HDEL', meta, '=', '!')
  end
  redis.pcall('HSET', meta, '~', string.format('%.0f %d %.0f', start, length, due))
  if redis.call('PTTL', meta) < 60000 then redis.pcall('PEXPIRE', meta, 60000) end
  if is_due and first then
    local waiting_client, waiting_token = string.match(first, '^%x+ %d+ %d+/%d+[+*]? (%S+) (.*)$')
    if waiting_client then redis.pcall('PUBLISH', 'dibs:c:' .. waiting_client, '0 0 0 ' .. waiting_token) end
  end
  if frees then return 1 end
end
