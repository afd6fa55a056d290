-- Extends one key of a lease, for a slot that is migrating to another cluster node. Both
-- nodes refuse a script with several keys (TRYAGAIN) if some do not exist; the node that
-- has a key accepts a script with that key alone. Atomic; never shortens, creates
-- nothing.
--
-- KEYS   1 the key
-- ARGV   1  which key it is: "lock", "holders" or "meta"
--        2  token
--        3  TTL in ms
-- Reply  {the server's time in µs, status}: "1" the token holds, "0" it does not, "s" the
--        lock is shared, and the holders key decides, "x" a value of another type

local key, kind, token, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- ensure_ttl makes the key live for at least this many ms. keeps_none is whether a key
-- without a TTL stays so.
local function ensure_ttl(ms, keeps_none)
  local left = redis.call('PTTL', key)
  if left >= 0 or not keeps_none then redis.call('PEXPIRE', key, math.max(ms, left)) end
end

--#include value.lua

local extend = {}

-- A shared lock is extended for any token, since only the holders key says whether the
-- token holds. So a token that does not hold extends it once at most.
function extend.lock()
  local holder = redis.pcall('GET', key)
  if type(holder) == 'table' then return 'x' end
  local shared = holder and string.sub(holder, 1, 12) == 'dibs:shared '
  if not shared and (not holder or split_value(holder) ~= token) then return '0' end
  ensure_ttl(ttl, shared) -- another holder may have more time left
  return shared and 's' or '1'
end

function extend.holders()
  local expires = tonumber(redis.call('ZSCORE', key, token) or 0)
  if expires <= math.floor(now / 1000) then return '0' end
  ensure_ttl(ttl + 60000)
  local new_expiry = math.ceil(now / 1000) + ttl
  if new_expiry > expires then redis.call('ZADD', key, new_expiry, token) end
  return '1'
end

function extend.meta()
  ensure_ttl(ttl + 60000)
  return '1'
end

return { now, extend[kind]() }
