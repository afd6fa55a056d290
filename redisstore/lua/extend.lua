-- Extends holdings. Atomic; never shortens, never brings back. All keys are of
-- one slot where the server shards.
--
-- KEYS   the locks
-- ARGV   for each: token, TTL in ms
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds another kind of value}

local time = redis.call('TIME')
local reply = {}
for i, key in ipairs(KEYS) do
  local token, ttl = ARGV[2 * i - 1], ARGV[2 * i]
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then
    reply[i] = 'x'
  elseif holder ~= token then
    reply[i] = '0'
  else
    if redis.call('PTTL', key) < tonumber(ttl) then redis.call('PEXPIRE', key, ttl) end
    reply[i] = '1'
  end
end
return { time[1] * 1000000 + time[2], table.concat(reply) }
