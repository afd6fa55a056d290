-- Notifies the waiters of another library when a lock becomes free, as that library would. It
-- is put before each script of a store with that option, and gives the scripts their own
-- redis.call. A hand-off notifies nobody: the lock does not become free.
--
-- LIBRARY is replaced by "spring" or "python-redis-lock".
--
-- spring             a message, the lock key, on "registry-channel:lock key", where the
--                    registry is what is before the first colon of the lock key
-- python-redis-lock  an element in the list "lock-signal:name", where the lock key is
--                    "lock:name". Its waiters pop it. It expires after 1 s

local server = redis

local notify = {}

notify['spring'] = function(key)
  local registry = string.match(key, '^([^:]+):')
  if registry then server.pcall('PUBLISH', registry .. '-channel:' .. key, key) end
end

notify['python-redis-lock'] = function(key)
  local name = string.match(key, '^lock:(.+)$')
  if not name then return end
  local signal = 'lock-signal:' .. name
  server.call('DEL', signal)
  server.call('LPUSH', signal, '1')
  server.call('PEXPIRE', signal, '1000')
end

--#include lock_key.lua

local redis = {
  error_reply = server.error_reply, status_reply = server.status_reply, pcall = server.pcall,
  REDIS_VERSION_NUM = server.REDIS_VERSION_NUM,
}

function redis.call(command, ...)
  local reply = server.call(command, ...)
  local key = ...
  if command == 'DEL' and is_lock(key) then notify['LIBRARY'](key) end
  return reply
end
