-- Extends one key of a holding, for a slot that is on its way to another server of a
-- cluster: that serves what has one key, on whichever side that is, and refuses
-- (TRYAGAIN) several of which some do not exist. Atomic; never shortens, creates nothing.
--
-- KEYS   1 the key
-- ARGV   1  which it is: "lock", "holders" or "meta"
--        2  token
--        3  TTL in ms
-- Reply  {the server's time in µs, "1" the token holds, "0" it does not, "s" the lock is
--        shared, and the holders tell by whom, "x" it is another kind of value}

local key, kind, token, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function prolong(ms) redis.call('PEXPIRE', key, math.max(ms, redis.call('PTTL', key))) end

local look = {}

-- A shared lock is prolonged for whoever asks: at most once for one who holds no more,
-- since the holders tell that.
function look.lock()
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then return 'x' end
  local shared = holder and string.sub(holder, 1, 12) == 'dibs:shared '
  if holder ~= token and not shared then return '0' end
  prolong(ttl)
  return shared and 's' or '1'
end

function look.holders()
  local expires = tonumber(redis.call('ZSCORE', key, token) or 0)
  if expires <= math.floor(now / 1000) then return '0' end
  prolong(ttl + 60000)
  local later = math.ceil(now / 1000) + ttl
  if later > expires then redis.call('ZADD', key, later, token) end
  return '1'
end

function look.meta()
  prolong(ttl + 60000)
  return '1'
end

return { now, look[kind]() }
