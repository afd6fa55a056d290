-- Extends holdings. Atomic; never shortens, never brings back. All keys are of
-- one slot where the server shards.
--
-- KEYS   for each: lock, meta, holders: see holders.lua
-- ARGV   for each: token, TTL in ms, fence or "0", client, weight or "0"
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds another kind of value}

local KEEP = 60000 -- see holders.lua

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- prolong makes the lock live for so many ms at least, and returns how many those are
-- now. It is the first write, and done in any case: one that a server without memory
-- never refuses, and after which it refuses none of the script's.
local function prolong(lock, ms)
  ms = math.max(ms, redis.call('PTTL', lock))
  redis.call('PEXPIRE', lock, ms)
  return ms
end

-- alone extends the exclusive holder. It is noted here, and not at every grant: short
-- ones need it least.
local function alone(lock, meta, token, ttl, fence, client)
  local ms = prolong(lock, ttl)
  if fence == '0' then return end
  local noted, whose = string.match(redis.call('HGET', meta, '=') or '', '^(%d+) %S+ (.*)$')
  if whose ~= token or tonumber(noted) <= tonumber(fence) then -- or it was sent before that one
    redis.call('HSET', meta, '=', fence .. ' ' .. client .. ' ' .. token)
  end
  if redis.call('PTTL', meta) < ms then redis.call('PEXPIRE', meta, ms) end
end

-- share extends a shared holder, and reports whether it is one. What the meta have lost
-- of it is noted again.
local function share(lock, meta, holders, token, ttl, fence, client, weight)
  local expires = tonumber(redis.call('ZSCORE', holders, token) or 0)
  if expires <= math.floor(now / 1000) then return false end
  local ms = prolong(lock, ttl) + KEEP
  local later = math.ceil(now / 1000) + ttl
  if later > expires then redis.call('ZADD', holders, later, token) end
  if weight ~= '0' and fence ~= '0' and redis.call('HEXISTS', meta, '=' .. token) == 0 then
    redis.call('HSET', meta, '=' .. token, weight .. ' ' .. fence .. ' ' .. client)
  end
  redis.call('PEXPIRE', holders, ms)
  redis.call('PEXPIRE', meta, ms)
  return true
end

local reply = {}
for i = 1, #KEYS, 3 do
  local lock, meta, holders = KEYS[i], KEYS[i + 1], KEYS[i + 2]
  local arg = (i - 1) / 3 * 5
  local token, ttl, fence, client, weight = ARGV[arg + 1], tonumber(ARGV[arg + 2]), ARGV[arg + 3], ARGV[arg + 4], ARGV[arg + 5]
  local holder = redis.pcall('GET', lock)
  local mark = '0'
  if type(holder) == 'table' then
    mark = 'x'
  elseif holder == token then
    alone(lock, meta, token, ttl, fence, client)
    mark = '1'
  elseif holder and string.sub(holder, 1, 12) == 'dibs:shared ' then
    if share(lock, meta, holders, token, ttl, fence, client, weight) then mark = '1' end
  end
  reply[#reply + 1] = mark
end
return { now, table.concat(reply) }
