-- Extends exclusive leases whose fence and client are recorded: most renewals. Atomic; never
-- shortens a lease, never revives one. All keys are in one slot if the server is a cluster.
--
-- KEYS   the locks
-- ARGV   for each: token, TTL in ms
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds a value of another type, "s" the lock is
--        shared, which extend.lua decides}

local time = redis.call('TIME')

--#include raise_ttl.lua

local reply = {}
for i = 1, #KEYS do
  local holder, status = redis.pcall('GET', KEYS[i]), '0'
  if holder == ARGV[2 * i - 1] then
    raise_ttl(KEYS[i], ARGV[2 * i])
    status = '1'
  elseif type(holder) == 'table' then
    status = 'x'
  elseif holder and string.sub(holder, 1, 12) == 'dibs:shared ' then
    status = 's'
  end
  reply[i] = status
end
return { time[1] * 1000000 + time[2], table.concat(reply) }
