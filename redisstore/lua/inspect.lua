-- Tells the state of a lock. Writes nothing.
--
-- KEYS   as in queue.lua
-- ARGV   1  how many places to tell at most
-- Reply  {the server's time in µs, holder's token or "", its TTL in ms, floor,
--         number of places, place, ticket, sign of life or "", place, …}

local time = redis.call('TIME')
local reply = {
  time[1] * 1000000 + time[2],
  redis.call('GET', KEYS[1]) or '',
  redis.call('PTTL', KEYS[1]),
  redis.call('GET', KEYS[4]) or '0',
  redis.call('ZCARD', KEYS[2]),
}
local places = redis.call('ZRANGE', KEYS[2], 0, tonumber(ARGV[1]) - 1, 'WITHSCORES')
for i = 1, #places, 2 do
  reply[#reply + 1] = places[i]
  reply[#reply + 1] = places[i + 1]
  reply[#reply + 1] = redis.call('HGET', KEYS[3], places[i]) or ''
end
return reply
