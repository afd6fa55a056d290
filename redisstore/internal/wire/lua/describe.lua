-- Describes the first of some keys that holds a value of another type than a lock of dibs
-- has there. Writes nothing. What it reads and returns is bounded, whatever the key holds.
--
-- KEYS   any
-- ARGV   for each: the type that is expected, or "" to describe the key if it exists
-- Reply  {the server's time in µs, 0} if there is none. Else {the server's time in µs,
--         index of the key from 1, its type, its PTTL, its size: bytes of a string,
--         elements of another value; then pairs}. The pairs are the beginning of a string
--         and "", or the fields and values of a hash

local MAX_ITEMS, MAX_BYTES = 64, 512

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local pairs_found = {}
local function add_pair(name, value)
  pairs_found[#pairs_found + 1] = string.sub(name, 1, MAX_BYTES)
  pairs_found[#pairs_found + 1] = string.sub(value, 1, MAX_BYTES)
end

-- What is read of each type. It returns the size.
local read = {}

function read.string(key)
  add_pair(redis.call('GETRANGE', key, 0, MAX_BYTES - 1), '')
  return redis.call('STRLEN', key)
end

-- A large hash is not a lock, and is not read.
function read.hash(key)
  local size = redis.call('HLEN', key)
  if size > MAX_ITEMS then return size end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    add_pair(field, redis.call('HSTRLEN', key, field) > MAX_BYTES and '' or redis.call('HGET', key, field))
  end
  return size
end

function read.zset(key) return redis.call('ZCARD', key) end

function read.list(key) return redis.call('LLEN', key) end

function read.set(key) return redis.call('SCARD', key) end

function read.stream(key) return redis.call('XLEN', key) end

for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= ARGV[i] then
    local size = read[kind] and read[kind](key) or 0
    return { now, i, kind, redis.call('PTTL', key), size, unpack(pairs_found) }
  end
end
return { now, 0 }
