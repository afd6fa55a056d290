-- Returns the states of locks. Writes nothing. All keys are in one slot if the server is a
-- cluster.
--
-- KEYS   for each: lock, queue, meta, highwater, holders: see holders.lua and queue.lua
-- ARGV   1  how many holders, and how many queue entries, of each to return at most
-- Reply  {the server's time in µs, then for each: highwater, number of holders, number of
--         entries, then for each holder that is returned: token, ms until it expires,
--         weight ("0": exclusive), fence ("0": not known), then for each entry: entry,
--         ticket, heartbeat or ""}. If a key of a lock causes an error, -1 and the error
--         follow instead. The last locks are missing if this call stopped early to bound
--         its time; the first is always there. Of a token longer than MAX_TOKEN only the
--         beginning is returned: it is data of a program

-- One call for many locks spends most of its time on calling commands and on its reply. So
-- there are few commands for each lock, and the reply is one list. No command is used that
-- locking does not need: a user may have the right to these only.
local call, keys = redis.call, KEYS
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local max_count = tonumber(ARGV[1])
local last_rank = string.format('%.0f', max_count - 1) -- a number is formatted for each command

local PASSED_OVER = 4503599627370496 -- see queue.lua
local MAX_TOKEN = 4096               -- bytes
local MAX_FIELDS = 2000              -- of a reply; after that many the call stops
local MAX_READ = 1048576             -- bytes of tokens; after that many, too
local GROUP = 10                     -- locks whose queues are looked for together

local reply, bytes_read = { now }, 0

-- add_shared adds the shared holders and returns their number.
local function add_shared(meta, holders)
  local live = '(' .. string.format('%.0f', math.floor(now / 1000))
  local list = call('ZRANGEBYSCORE', holders, live, '+inf', 'WITHSCORES', 'LIMIT', '0', ARGV[1])
  if not list[1] then return 0 end
  for i = 1, #list, 2 do
    local weight, fence = string.match(call('HGET', meta, '=' .. list[i]) or '', '^(%d+) (%d+)')
    local n = #reply
    reply[n + 1], reply[n + 2] = list[i], tonumber(list[i + 1]) - math.ceil(now / 1000)
    reply[n + 3], reply[n + 4] = weight or '1', fence or '0'
  end
  return call('ZCOUNT', holders, live, '+inf')
end

--#include value.lua

-- add_exclusive adds the exclusive holder and returns 1.
local function add_exclusive(lock, meta, value)
  local token, fence = split_value(value)
  fence = fence or read_record(call('HGET', meta, '='), token) or '0'
  if #token > MAX_TOKEN then token = string.sub(token, 1, MAX_TOKEN) end
  local n = #reply
  reply[n + 1], reply[n + 2], reply[n + 3], reply[n + 4] = token, call('PTTL', lock), '0', fence
  return 1
end

-- add_entries adds the queue entries and returns their number.
local function add_entries(queue, meta)
  local list = call('ZRANGE', queue, '0', last_rank, 'WITHSCORES')
  if not list[1] then return 0 end
  for i = 1, #list, 2 do
    local ticket, n = list[i + 1], #reply
    if tonumber(ticket) >= PASSED_OVER then ticket = string.format('%.0f', ticket - PASSED_OVER) end
    reply[n + 1], reply[n + 2], reply[n + 3] = list[i], ticket, call('HGET', meta, list[i]) or ''
  end
  return #list / 2 < max_count and #list / 2 or call('ZCARD', queue)
end

-- add_state adds the state of the lock whose keys begin at keys[i].
local function add_state(i, has_queue)
  local n, lock, meta, holders = #reply, keys[i], keys[i + 2], keys[i + 4]
  reply[n + 1], reply[n + 2], reply[n + 3] = call('GET', keys[i + 3]) or '0', 0, 0
  local token = call('GET', lock)
  bytes_read = bytes_read + #(token or '')
  if token and string.sub(token, 1, 12) == 'dibs:shared ' and call('EXISTS', holders) == 1 then
    reply[n + 2] = add_shared(meta, holders)
  elseif token then
    reply[n + 2] = add_exclusive(lock, meta, token)
  end
  if has_queue then reply[n + 3] = add_entries(keys[i + 1], meta) end
end

local function add_error(n, err)
  for i = #reply, n + 1, -1 do reply[i] = nil end
  reply[n + 1], reply[n + 2] = -1, type(err) == 'table' and err.err or err
end

for first = 1, #keys, 5 * GROUP do
  local last, queues = math.min(first + 5 * GROUP, #keys) - 1, {}
  for i = first, last, 5 do queues[#queues + 1] = keys[i + 1] end
  local have_queues = call('EXISTS', unpack(queues)) > 0
  for i = first, last, 5 do
    local n = #reply
    local ok, err = pcall(add_state, i, have_queues)
    if not ok then add_error(n, err) end
    if #reply > MAX_FIELDS or bytes_read > MAX_READ then return reply end
  end
end
return reply
