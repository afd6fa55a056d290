-- Redisson's form of a lock. It is put before each script of a store in Redisson mode, and
-- gives the scripts their own redis.call: they see the lock key as in the normal form, as a
-- string that is the holder's token.
--
-- lock     hash with one field, the holder, and PX; the value counts its acquisitions
-- channel  "redisson_lock__channel:{lock}", "0" is published when the lock becomes free
-- counter  "redisson_lock_token:{lock}", the last token of an RFencedLock
--
-- A hash of another shape is the same error as a key of another type. PUBLISH_COMMAND and
-- FENCED are replaced by the settings of the store.

local server = redis

--#include lock_key.lua

local function name_in(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. ':' .. key or prefix .. ':{' .. key .. '}'
end

local function channel_of(key) return name_in('redisson_lock__channel', key) end

-- read_lock returns the holder, false without one, or an error.
local function read_lock(key)
  local n = server.pcall('HLEN', key)
  if type(n) == 'table' then return n end
  if n == 0 then return false end
  if n == 1 then
    local fields = server.call('HGETALL', key)
    if string.find(fields[2], '^[1-9]%d*$') and server.call('PTTL', key) >= 0 then return fields[1] end
  end
  return { err = 'WRONGTYPE the hash is not the lock of an RLock' }
end

local function write_lock(key, token, ms)
  server.call('DEL', key)
  server.call('HSET', key, token, '1')
  return server.call('PEXPIRE', key, ms)
end

local function delete_lock(...)
  local n = server.call('DEL', ...)
  local channel = channel_of((...))
  local published = server.pcall('PUBLISH_COMMAND', channel, '0')
  if type(published) == 'table' then server.pcall('PUBLISH', channel, '0') end -- before Redis 7
  return n
end

-- foreign_client_waits reports whether a client listens for a release.
local function foreign_client_waits()
  local n = server.pcall('PUBSUB', 'PUBLISH_COMMAND' == 'SPUBLISH' and 'SHARDNUMSUB' or 'NUMSUB', channel_of(KEYS[1]))
  return n.err or n[2] > 0
end

-- counters returns the largest token of the RFencedLocks with the keys of this call.
local function counters()
  local most = 0
  for _, key in ipairs(KEYS) do
    if is_lock(key) then most = math.max(most, tonumber(server.call('GET', name_in('redisson_lock_token', key)) or 0)) end
  end
  return most
end

local function is_fence(key) return FENCED and string.sub(key, 1, 11) == 'dibs:fence:' end

-- with_counters returns a fence high-water mark, or the tokens of RFencedLocks if larger.
local function with_counters(highwater)
  if type(highwater) == 'table' then return highwater end
  local most = counters()
  if most > tonumber(highwater or 0) then return string.format('%.0f', most) end
  return highwater
end

-- record_fence makes a fence the token of the RFencedLocks, unless that is larger.
local function record_fence(fence)
  if tonumber(fence) <= counters() then return end
  for _, key in ipairs(KEYS) do
    if is_lock(key) then server.call('SET', name_in('redisson_lock_token', key), fence) end
  end
end

local commands = {}

function commands.GET(key)
  if is_lock(key) then return read_lock(key) end
  if is_fence(key) then return with_counters(server.pcall('GET', key)) end
  return server.pcall('GET', key)
end

function commands.SET(key, value, option, ms)
  if is_lock(key) then
    write_lock(key, value, ms)
    return { ok = 'OK' }
  end
  local previous = option and server.pcall('SET', key, value, option) or not option and server.pcall('SET', key, value)
  if not is_fence(key) then return previous end
  if option then previous = with_counters(previous) end
  record_fence(value)
  return previous
end

function commands.DEL(...)
  if is_lock((...)) then return delete_lock(...) end
  return server.pcall('DEL', ...)
end

local redis = {
  error_reply = server.error_reply, status_reply = server.status_reply, REDIS_VERSION_NUM = server.REDIS_VERSION_NUM,
}

function redis.pcall(command, ...)
  if commands[command] then return commands[command](...) end
  return server.pcall(command, ...)
end

function redis.call(command, ...)
  if not commands[command] then return server.call(command, ...) end
  local reply = commands[command](...)
  if type(reply) == 'table' and reply.err then error(reply.err, 0) end
  return reply
end
