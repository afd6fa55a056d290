-- Extends leases. Atomic; never shortens a lease, never revives one. All keys are in one
-- slot if the server is a cluster.
--
-- KEYS   for each: lock, meta, holders: see holders.lua
-- ARGV   for each: token, TTL in ms, fence or "0", client, weight or "0"
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds a value of another type}

local AUX_TTL = 60000     -- see holders.lua
local MAX_RECORD = 300000 -- ms, and nine TTLs: see driver.RecordInterval

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

--#include raise_ttl.lua

--#include record.lua

--#include read_record.lua

-- extend_exclusive extends the exclusive holder. Its fence is recorded here and not at
-- each grant: short leases need it least. The next renewals find the record, and use
-- renew.lua.
local function extend_exclusive(lock, meta, token, ttl, fence, client)
  local ms = raise_ttl(lock, ttl)
  if fence == '0' then return end
  local record, recorded = make_record(token, fence, client), redis.call('HGET', meta, '=')
  if recorded ~= record then
    local last_fence = read_record(recorded, token)
    -- After a larger fence this call is late.
    if not last_fence or tonumber(last_fence) <= tonumber(fence) then redis.call('HSET', meta, '=', record) end
  end
  local record_ms = ms + math.min(9 * tonumber(ttl), MAX_RECORD)
  if redis.call('PTTL', meta) < record_ms then redis.call('PEXPIRE', meta, record_ms) end
end

-- extend_shared extends a shared holder, and reports whether the token is one. It
-- restores the holder's metadata if they were lost.
local function extend_shared(lock, meta, holders, token, ttl, fence, client, weight)
  local expires = tonumber(redis.call('ZSCORE', holders, token) or 0)
  if expires <= math.floor(now / 1000) then return false end
  local ms = raise_ttl(lock, ttl, holders) + AUX_TTL
  local new_expiry = math.ceil(now / 1000) + tonumber(ttl)
  if new_expiry > expires then redis.call('ZADD', holders, new_expiry, token) end
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
  local token, ttl, fence, client, weight = ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3], ARGV[arg + 4], ARGV[arg + 5]
  local holder = redis.pcall('GET', lock)
  local status = '0'
  if type(holder) == 'table' then
    status = 'x'
  elseif holder == token then
    extend_exclusive(lock, meta, token, ttl, fence, client)
    status = '1'
  elseif holder and string.sub(holder, 1, 12) == 'dibs:shared ' then
    if extend_shared(lock, meta, holders, token, ttl, fence, client, weight) then status = '1' end
  end
  reply[#reply + 1] = status
end
return { now, table.concat(reply) }
