-- Acquires locks that are free and have no waiters, and releases locks that have no
-- waiters, all exclusive. It does in one call what acquire.lua and release.lua do in
-- many; their cost is mostly that of a call. A request that does not meet the condition
-- changes nothing.
--
-- KEYS   to acquire: lock, queue, meta, highwater; to release: lock, queue, meta: see
--        holders.lua and queue.lua
-- ARGV   1  until: µs of the server's clock after which nothing is done, or ""
--        then for each: token, TTL in ms; to release: token, "0"
-- Reply  {the server's time in µs, a string with a character for each request}:
--        "0"  not done: send this request alone
--        "1"  released; or acquired, and the fence is the server's time
--        "2"  acquired, and the fence is one more; and so on in ASCII up to "z", since
--             several requests on one slot may come in one µs

local MAX_AHEAD = 73 -- from "1" to "z"

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

local count = (#ARGV - 1) / 2
if ARGV[1] ~= '' and now > tonumber(ARGV[1]) then return { now, string.rep('0', count) } end

local reply, k = {}, 1
for i = 1, count do
  local lock, queue, meta = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local token, ttl = ARGV[2 * i], ARGV[2 * i + 1]
  local result = '0'
  if ttl == '0' then
    k = k + 3
    if redis.pcall('GET', lock) == token then
      if redis.call('EXISTS', queue, meta) == 0 then
        redis.call('DEL', lock)
        result = '1'
      elseif redis.call('EXISTS', queue) == 0 and type(redis.pcall('HEXISTS', meta, '=')) == 'number' then
        redis.call('DEL', lock, meta)
        result = '1'
      end
    end
  else
    local highwater = KEYS[k + 3]
    k = k + 4
    if redis.call('EXISTS', lock, queue, meta) == 0 then
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
  end
  reply[i] = result
end
return { now, table.concat(reply) }
