-- Redisson's form of a lock. It is put before each script of a store in Redisson mode, and
-- gives the scripts their own redis.call: they see the lock key as in the normal form, as a
-- string: see value.lua.
--
-- lock      hash with PX: one field, the holder, whose value counts its acquisitions. A lock
--           of dibs has a second field, "mode" → "dibs". RLock does not read it. Without it,
--           RReadWriteLock takes the lock of anybody for its own
-- channel   "redisson_lock__channel:{lock}", "0" is published when the lock becomes free
-- fair      "redisson_lock_queue:{lock}", list of the waiters of an RFairLock. Each waits
--           for a message on a channel of its own, "channel:waiter"
-- timeouts  "redisson_lock_timeout:{lock}", zset: such a waiter → ms of its client's clock
--           after which others remove it from the queue
--
-- These keys are in the slot of the lock. A hash of another shape is the same error as a key
-- of another type. SHARDED is replaced by the setting of the store.

local server = redis

local function is_lock(key)
  return not (string.find(key, ':dibs:%a+$') or string.sub(key, 1, 11) == 'dibs:fence:' or key == 'dibs:node')
end

local function name_in(prefix, key)
  return string.find(key, '{', 1, true) and prefix .. ':' .. key or prefix .. ':{' .. key .. '}'
end

-- channels_of returns the channels on which clients wait for a lock: the one of RLock, and
-- those of the first waiters of RFairLock. A waiter whose time is over may be dead, so the one
-- behind it is also included.
local function channels_of(key)
  local most, base = 16, name_in('redisson_lock__channel', key)
  local channels, time = { base }, nil
  local waiters = server.pcall('LRANGE', name_in('redisson_lock_queue', key), 0, most - 1)
  for _, waiter in ipairs(waiters) do -- none if the user may not read the list
    channels[#channels + 1] = base .. ':' .. waiter
    time = time or server.call('TIME')
    local timeout = server.pcall('ZSCORE', name_in('redisson_lock_timeout', key), waiter)
    if type(timeout) ~= 'string' or tonumber(timeout) > time[1] * 1000 + time[2] / 1000 then break end
  end
  return channels
end

-- count_subscribers returns how many clients listen on channels; kind is NUMSUB or
-- SHARDNUMSUB. Without the permission to ask, one is assumed. Before Redis 7 there are no
-- sharded channels.
local function count_subscribers(kind, channels)
  local list, count = server.pcall('PUBSUB', kind, unpack(channels)), 0
  if list.err then return string.find(list.err, '[Uu]nknown') and 0 or 1 end
  for i = 2, #list, 2 do count = count + list[i] end
  return count
end

-- publish wakes the clients on a channel. On a cluster, Redisson uses sharded channels since
-- 3.21 if the server has them. Before that it used the others, at the server that has the
-- slot. A message on these goes to each server, so it is sent only if somebody listens here.
local function publish(channel)
  local received = SHARDED and server.pcall('SPUBLISH', channel, '0')
  if type(received) ~= 'number' or count_subscribers('NUMSUB', { channel }) > 0 then
    server.pcall('PUBLISH', channel, '0')
  end
end

local function wake_clients(key)
  for _, channel in ipairs(channels_of(key)) do publish(channel) end
end

-- foreign_client_waits reports whether a client of Redisson listens for a release.
local function foreign_client_waits()
  local channels = channels_of(KEYS[1])
  local count = count_subscribers('NUMSUB', channels)
  if SHARDED then count = count + count_subscribers('SHARDNUMSUB', channels) end
  return count > 0
end

-- read_lock returns the holder, false without one, or an error.
local function read_lock(key)
  local n = server.pcall('HLEN', key)
  if type(n) == 'table' then return n end
  if n == 0 then return false end
  local holder, count, mode
  local fields = n <= 2 and server.call('HGETALL', key) or {}
  for i = 1, #fields, 2 do
    if fields[i] == 'mode' then mode = fields[i + 1] else holder, count = fields[i], fields[i + 1] end
  end
  if holder and (n == 1 or mode == 'dibs') and string.find(count, '^[1-9]%d*$') and server.call('PTTL', key) >= 0 then
    return holder
  end
  return { err = 'WRONGTYPE the hash is not the lock of an RLock' }
end

-- write_lock wakes waiters of Redisson if the lock is only reserved now: it may expire before
-- the time that they have seen.
local function write_lock(key, token, ms)
  server.call('DEL', key)
  server.call('HSET', key, token, '1', 'mode', 'dibs')
  server.call('PEXPIRE', key, ms)
  if string.sub(token, -9) == ' reserved' then wake_clients(key) end
end

local function delete_lock(...)
  local n = server.call('DEL', ...)
  wake_clients((...))
  return n
end

local commands = {}

function commands.GET(key)
  if is_lock(key) then return read_lock(key) end
  return server.pcall('GET', key)
end

function commands.SET(key, value, ...)
  if not is_lock(key) then return server.pcall('SET', key, value, ...) end
  local _, ms = ...
  write_lock(key, value, ms)
  return { ok = 'OK' }
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
