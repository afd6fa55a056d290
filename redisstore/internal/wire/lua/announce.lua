-- Announces a later request for some names. Its client waits for names of another slot
-- first, and repeats this call meanwhile. The calls show that time passes on this server, as
-- the heartbeats of a waiter do, so dead waiters are known when the request arrives.
--
-- KEYS   for each name: queue, meta: see queue.lua
-- Reply  the server's time in µs

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, queue, meta, highwater, holders -- the queue and the metadata of the selected name

--#include fence.lua
--#include holders.lua
--#include queue.lua

for i = 1, #KEYS, 2 do
  queue, meta, heard = KEYS[i], KEYS[i + 1], nil
  if redis.call('EXISTS', queue) == 1 then hear_request() end
end
return now
