-- Takes locks that are free and for which nobody waits, and releases locks for which
-- nobody waits, each held alone: in one call what acquire.lua and release.lua do in
-- many, whose cost is mostly that of a call. Whichever is not so is left as it is.
--
-- KEYS   for each: lock, queue, signs, floor: see holders.lua and queue.lua
-- ARGV   for each: token, TTL in ms, until, as in acquire.lua; to release: token, "0", ""
-- Reply  {the server's time in µs, then for each: the fence, or 1 if it was released,
--         or 0: ask by itself}

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

local reply = { now }
for i = 1, #KEYS, 4 do
  local lock, queue, signs, floor = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local claim = (i - 1) / 4 * 3
  local token, ttl = ARGV[claim + 1], ARGV[claim + 2]
  local answer = 0
  if ttl == '0' then
    if redis.pcall('GET', lock) == token and redis.call('EXISTS', queue) == 0 then
      redis.call('DEL', lock, signs)
      answer = 1
    end
  elseif now <= tonumber(ARGV[claim + 3]) and redis.call('EXISTS', lock, queue, signs) == 0 then
    local before = redis.pcall('SET', floor, stamp, 'GET')
    if type(before) ~= 'table' then -- or it is a Redis before 6.2
      answer = now
      if before and tonumber(before) >= now then -- the clock went back, or two of one slot
        answer = tonumber(before) + 1
        redis.call('SET', floor, string.format('%.0f', answer))
      end
      redis.call('SET', lock, token, 'PX', ttl)
    end
  end
  reply[#reply + 1] = answer
end
return reply
