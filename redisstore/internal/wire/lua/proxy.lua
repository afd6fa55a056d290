-- What differs on servers behind a proxy. It is put before each script of a store with that
-- option, and gives the scripts their own redis.call. The servers of Codis are Redis 3.2.

local server = redis

-- Until Redis 5, a script that reads the time may write only after this call.
if server.replicate_commands then server.replicate_commands() end

-- ms for which the fence high-water mark of a hash tag lives after a grant. There is a mark for
-- each tag: without a TTL there would be a key for each name that was ever used.
local MARK_TTL = '3600000'

local commands = {}

function commands.SET(set, key, value, ...)
  if string.sub(key, 1, 11) == 'dibs:fence:' then return set('SET', key, value, 'PX', MARK_TTL, ...) end
  return set('SET', key, value, ...)
end

-- ZPOPMIN is in Redis since 5.0.
function commands.ZPOPMIN(_, key)
  local first = server.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if first[1] then server.call('ZREM', key, first[1]) end
  return first
end

local redis = {
  error_reply = server.error_reply, status_reply = server.status_reply, REDIS_VERSION_NUM = server.REDIS_VERSION_NUM,
}

function redis.pcall(command, ...)
  if commands[command] then return commands[command](server.pcall, ...) end
  return server.pcall(command, ...)
end

function redis.call(command, ...)
  if commands[command] then return commands[command](server.call, ...) end
  return server.call(command, ...)
end
