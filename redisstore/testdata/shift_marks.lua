-- Moves what is recorded of late waiters into the past, without an answer.
--
-- KEYS   1 meta
-- ARGV   1 by how much, in µs

for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.sub(field, 1, 1) == '?' then
    local at, since = string.match(redis.call('HGET', KEYS[1], field), '^(%d+) (%d+)')
    redis.call('HSET', KEYS[1], field, string.format('%.0f %.0f', at - ARGV[1], since - ARGV[1]))
  end
end
