-- Ends the lease that has a fence or a token, for any caller, and hands the lock off.
-- Notifies the holder's client, unless the name is only reserved. Atomic; changes nothing if no
-- lease is known to have it.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  fence, or "0"
--        3  reason: one line for the holder, or ""
--        4  token, if the fence is "0"
-- Reply  {the server's time in µs, 1 it was ended, 0 there is none}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = ARGV[2]
local by_token = fence == '0'
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--#include fence.lua
--#include holders.lua
--#include queue.lua

-- The token of a reserved name, whose lease has ended: see release.lua.
local reserved = by_token and ARGV[4] .. ' reserved'

-- exclusive_client returns the client of the exclusive holder if its lease has the fence or
-- the token, and the client of its token if that is another one.
local function exclusive_client(token)
  if by_token and token == reserved then return '-' end
  if by_token and token ~= ARGV[4] then return false end
  local recorded, client = read_record(redis.call('HGET', meta, '='), token)
  if not by_token and fence ~= (holder_fence or recorded) then return false end
  if string.sub(token, -9) == ' reserved' then return '-' end
  local first = string.match(token, '^([^:%s]+:%d+:[^:%s]+):%w')
  return client or first, client and client ~= first and first
end

-- find_shared returns token and client of the shared holder with the fence or the token.
local function find_shared()
  if by_token then
    if redis.call('ZSCORE', holders, ARGV[4]) then
      return ARGV[4], string.match(redis.call('HGET', meta, '=' .. ARGV[4]) or '', '^%d+ %d+ (.*)$')
    end
    if redis.call('ZSCORE', holders, reserved) then return reserved, '-' end
    return
  end
  for _, token in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
    local recorded, client = string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+ (%d+) (.*)$')
    if recorded == fence then return token, client end
  end
end

redis.call('ZCARD', holders) -- an error if the key is not of dibs: DEL would delete it
local used, token = read_usage()
local client, first_client
if token then
  client, first_client = exclusive_client(token)
elseif used > 0 then
  token, client = find_shared()
end
if not client then
  flush_shared(used)
  return { now, 0 }
end

if used == math.huge then used = 0 else used = remove_shared(token, used) end
-- The fence of a lease with this token is at most the last one that was issued, or the one in
-- its value, which an extension may have raised.
if by_token then
  fence = redis.call('GET', highwater) or '1'
  if holder_fence and tonumber(holder_fence) > tonumber(fence) then fence = holder_fence end
end
local message = ARGV[3] == '' and token or token .. '\n' .. ARGV[3]
if client ~= '-' then publish(client, '0', fence, '0', message) end
if first_client then publish(first_client, '0', fence, '0', message) end -- it may have the lease again
used = serve_queue(used, now, ARGV[1], true)
flush_shared(used)
if used == 0 then
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', meta, holders) end
end
return { now, 1 }
