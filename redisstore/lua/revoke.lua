-- Ends the holding that has a fence, whoever asks, and hands the lock on. Tells the
-- holder's client. Atomic; changes nothing if no holding is known to have the fence.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1  check: "1" if PUBSUB NUMSUB sees all subscribers, else "0"
--        2  fence
-- Reply  {the server's time in µs, 1 it was ended, 0 there is none}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local fence = ARGV[2]
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

--#include fence.lua
--#include holders.lua
--#include queue.lua

-- alone returns the client of a token that holds exclusively, if it has the fence. The
-- store was told so when the holding was extended. Before that, if the fence is the
-- last that was minted in this slot, it is this holding's; the client is in the token.
local function alone(token)
  local noted, client, whose = string.match(redis.call('HGET', meta, '=') or '', '^(%d+) (%S+) (.*)$')
  if whose == token then return noted == fence and client end
  return redis.call('GET', highwater) == fence and string.match(token, '^([^:%s]+:%d+:[^:%s]+):%w+')
end

-- one returns the token and client of the shared holder with the fence.
local function one()
  for _, token in ipairs(redis.call('ZRANGE', holders, 0, -1)) do
    local noted, client = string.match(redis.call('HGET', meta, '=' .. token) or '', '^%d+ (%d+) (.*)$')
    if noted == fence then return token, client end
  end
end

local used, token = taken()
local client
if token then
  client = alone(token)
elseif used > 0 then
  token, client = one()
end
if not client then
  settle(used)
  return { now, 0 }
end

if used == math.huge then used = 0 else used = drop(token, used) end
tell(client, '0', fence, '0', token)
used = serve(used, now, ARGV[1], true)
settle(used)
if used == 0 then
  redis.call('DEL', lock)
  if redis.call('EXISTS', queue) == 0 then redis.call('DEL', meta, holders) end
end
return { now, 1 }
