-- Writes keys, or deletes them. A doctor finds out with it which keys are together.
--
-- KEYS   any
-- ARGV   1  TTL in ms, or "" to delete them
-- Reply  how many keys were written or deleted

if ARGV[1] == '' then return redis.call('DEL', unpack(KEYS)) end
for _, key in ipairs(KEYS) do redis.call('SET', key, 'doctor', 'PX', ARGV[1]) end
return #KEYS
