-- Acquires locks that are free and have no waiters, and releases locks that have no
-- waiters, all exclusive and with tokens that dibs has made: see value.lua. A cancel is a
-- release here: it leaves no queue, since there is none. It does in one call what acquire.lua and release.lua do in
-- many; their cost is mostly that of a call. A request that does not meet the condition
-- changes nothing.
--
-- KEYS   to acquire: lock, queue, meta, highwater; to release: lock, queue, meta: see
--        holders.lua and queue.lua
-- ARGV   1  until: µs of the server's clock after which nothing is done, or ""
--        2  a character for each request: "a" acquire, "r" release
--        3  TTL in ms of the acquires, or "" if each has its own
--        4  what all tokens begin with, or ""
--        then for each: the rest of its token; and the TTL of an acquire, if it has its own
-- Reply  {the server's time in µs, a string with a character for each request}:
--        "0"  not done: send this request alone
--        "2"  of a release: the token did not hold
--        "1"  released; or acquired, and the fence is the server's time
--        "2"  acquired, and the fence is one more; and so on in ASCII up to "z", since
--             several requests on one slot may come in one µs

local MAX_AHEAD = 73 -- from "1" to "z"
local find = string.find

local time = redis.call('TIME')
local stamp = time[1] .. string.sub('00000' .. time[2], -6)
local now = tonumber(stamp)

local kinds, common_ttl, beginning = ARGV[2], ARGV[3], ARGV[4]
if ARGV[1] ~= '' and now > tonumber(ARGV[1]) then return { now, string.rep('0', #kinds) } end

local reply, k, a = {}, 1, 5
local stamped = stamp .. ' ' .. beginning -- what the values of the locks begin with, usually
for i = 1, #kinds do
  local lock, queue, meta = KEYS[k], KEYS[k + 1], KEYS[k + 2]
  local text, result = ARGV[a], '0'
  a = a + 1
  if string.byte(kinds, i) == 114 then -- "r"
    k = k + 3
    local holder = redis.pcall('GET', lock)
    local token = beginning .. text
    -- A fence has 16 digits. Another value with the token, as with a smaller fence, is left to
    -- release.lua.
    if holder == token or holder and #holder == #token + 17 and string.match(holder, '^%d+ ()') == 18 and find(holder, token, 18, true) then
      if redis.call('EXISTS', queue, meta) == 0 then
        redis.call('DEL', lock)
        result = '1'
      elseif redis.call('EXISTS', queue) == 0 and type(redis.pcall('HEXISTS', meta, '=')) == 'number' then
        redis.call('DEL', lock, meta)
        result = '1'
      end
    elseif (not holder or type(holder) == 'string' and string.sub(holder, 1, 12) ~= 'dibs:shared ' and not find(holder, token, 1, true)) and redis.call('EXISTS', queue, meta) == 0 then
      result = '2'
    end
  else
    local highwater = KEYS[k + 3]
    local ttl = common_ttl
    k = k + 4
    if ttl == '' then
      ttl = ARGV[a]
      a = a + 1
    end
    if redis.call('EXISTS', lock, queue, meta) == 0 then
      local previous = redis.pcall('SET', highwater, stamp, 'GET')
      if not previous or type(previous) == 'string' and (#previous < #stamp or #previous == #stamp and previous < stamp) then
        redis.call('SET', lock, stamped .. text, 'PX', ttl)
        result = '1'
      elseif type(previous) == 'string' then
        local ahead = tonumber(previous) + 1 - now
        if ahead > MAX_AHEAD then
          redis.call('SET', highwater, previous) -- the clock went back
        else
          local fence = string.format('%.0f', now + ahead)
          redis.call('SET', highwater, fence)
          redis.call('SET', lock, fence .. ' ' .. beginning .. text, 'PX', ttl)
          result = string.char(49 + ahead)
        end
      end
    end
  end
  reply[i] = result
end
return { now, table.concat(reply) }
