-- Acquires locks that are free and have no waiters, and releases locks that have no
-- waiters, all exclusive. It does in one call what acquire.lua and release.lua do in
-- many; their cost is mostly that of a call. A request that does not meet the condition
-- changes nothing.
--
-- KEYS   for each: lock, queue, meta, highwater: see holders.lua and queue.lua
-- ARGV   for each: token, TTL in ms, until, as in acquire.lua; to release: token, "0", until
--        as in release.lua
-- Reply  {the server's time in µs, a string with a character for each request}:
--        "0"  not done: send this request alone
--        "1"  released; or acquired, and the fence is the server's time
--        "2"  acquired, and the fence is one more; and so on in ASCII up to "z", since
--             several requests on one slot may come in one µs

local MAX_AHEAD = 73 -- from "1" to "z"

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

local reply = {}
for i = 1, #KEYS, 4 do
  local lock, queue, meta, highwater = KEYS[i], KEYS[i + 1], KEYS[i + 2], KEYS[i + 3]
  local n = (i + 3) / 4
  local token, ttl = ARGV[3 * n - 2], ARGV[3 * n - 1]
  local last, expired = ARGV[3 * n], false
  if #last == #stamp then -- to parse a number costs more
    expired = stamp > last
  elseif last ~= '' then
    expired = now > tonumber(last)
  end
  local result = '0'
  if ttl == '0' and not expired then
    if redis.pcall('GET', lock) == token and redis.call('EXISTS', queue) == 0 and type(redis.pcall('HEXISTS', meta, '=')) == 'number' then
      redis.call('DEL', lock, meta)
      result = '1'
    end
  elseif not expired and redis.call('EXISTS', lock, queue, meta) == 0 then
    local previous = redis.pcall('SET', highwater, stamp, 'GET')
    if not previous or type(previous) == 'string' and (#previous < #stamp or #previous == #stamp and previous < stamp) then
      redis.call('SET', lock, token, 'PX', ttl)
      result = '1'
    elseif type(previous) == 'string' then
      local ahead = tonumber(previous) + 1 - now
      if ahead > MAX_AHEAD then
        redis.call('SET', highwater, previous) -- the clock went back
      else
        redis.call('SET', highwater, string.format('%.0f', now + ahead))
        redis.call('SET', lock, token, 'PX', ttl)
        result = string.char(49 + ahead)
      end
    end
  end
  reply[n] = result
end
return { now, table.concat(reply) }
