-- What servers behind a proxy may need: it is put before each script there. The servers of
-- Codis are Redis 3.2.

-- Until Redis 5, a script that reads the time may write only after this call.
if redis.replicate_commands then redis.replicate_commands() end

-- pop_first is ZPOPMIN, which Redis has since 5.0.
local function pop_first(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[1] then redis.call('ZREM', key, first[1]) end
  return first
end
