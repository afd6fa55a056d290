-- Takes locks that are free and for which nobody waits, and releases locks for which
-- nobody waits, each held alone: in one call what acquire.lua and release.lua do in
-- many, whose cost is mostly that of a call. Whichever is not so is left as it is.
--
-- KEYS   for each: lock, queue, meta, highwater: see holders.lua and queue.lua
-- ARGV   for each: token, TTL in ms, until, as in acquire.lua; to release: token, "0", until
-- Reply  {the server's time in µs, a string with a character for each: "0" ask by
--         itself; "1" it was released, or taken, and its fence is that time, "2" one
--         more, and so on in ASCII up to "z": of one slot several come in one µs}

local MOST = 73 -- from "1" to "z"

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

local reply = {}
for i = 1, #KEYS, 4 do
  local lock, queue, meta, highwater = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local n = (i + 3) / 4
  local token, ttl = ARGV[3 * n - 2], ARGV[3 * n - 1]
  local done, void = '0', now > tonumber(ARGV[3 * n])
  if ttl == '0' and not void then
    if redis.pcall('GET', lock) == token and redis.call('EXISTS', queue) == 0 then
      redis.call('DEL', lock, meta)
      done = '1'
    end
  elseif not void and redis.call('EXISTS', lock, queue, meta) == 0 then
    local before = redis.pcall('SET', highwater, stamp, 'GET')
    if not before or type(before) == 'string' and tonumber(before) < now then
      redis.call('SET', lock, token, 'PX', ttl)
      done = '1'
    elseif type(before) == 'string' then
      local more = tonumber(before) + 1 - now
      if more > MOST then
        redis.call('SET', highwater, before) -- the clock went back
      else
        redis.call('SET', highwater, string.format('%.0f', now + more))
        redis.call('SET', lock, token, 'PX', ttl)
        done = string.char(49 + more)
      end
    end
  end
  reply[n] = done
end
return { now, table.concat(reply) }
