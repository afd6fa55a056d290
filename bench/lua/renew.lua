-- Extends the locks that the token holds.
-- KEYS  the locks
-- ARGV  the token of all locks, TTL in ms
-- Reply the number of locks that the token held
local held = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    redis.call('PEXPIRE', key, ARGV[2])
    held = held + 1
  end
end
return held
