-- Returns the state of a lock. Writes nothing.
--
-- KEYS   1 lock, 2 queue, 3 meta, 4 highwater, 5 holders: see holders.lua and queue.lua
-- ARGV   1  how many holders, and how many queue entries, to return at most
-- Reply  {the server's time in µs, highwater, number of holders, number of entries,
--         how many holders follow, then for each of them: token, ms until it expires,
--         weight ("0": exclusive), fence ("0": not known),
--         then for each entry: entry, ticket, heartbeat or ""}.
--         Of a token longer than MAX_TOKEN only the beginning: it is data of a program

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock, queue, meta, highwater, holders = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local max_count = tonumber(ARGV[1])

local PASSED_OVER = 4503599627370496 -- see queue.lua
local MAX_TOKEN = 4096               -- bytes

local fields, holder_count = {}, 0
local function add_holder(token, ms, weight, fence)
  for _, field in ipairs({ token, ms, weight, fence }) do fields[#fields + 1] = field end
end

local token = redis.call('GET', lock)
local shared = token and string.sub(token, 1, 12) == 'dibs:shared '
if shared and redis.call('EXISTS', holders) == 1 then
  local ms = math.floor(now / 1000)
  local live = '(' .. string.format('%.0f', ms)
  holder_count = redis.call('ZCOUNT', holders, live, '+inf')
  local list = redis.call('ZRANGEBYSCORE', holders, live, '+inf', 'WITHSCORES', 'LIMIT', 0, max_count)
  for i = 1, #list, 2 do
    local weight, fence = string.match(redis.call('HGET', meta, '=' .. list[i]) or '', '^(%d+) (%d+)')
    add_holder(list[i], tonumber(list[i + 1]) - math.ceil(now / 1000), weight or '1', fence or '0')
  end
elseif token then
  local fence, owner = string.match(redis.call('HGET', meta, '=') or '', '^(%d+) %S+ (.*)$')
  if owner ~= token then fence = '0' end
  add_holder(string.sub(token, 1, MAX_TOKEN), redis.call('PTTL', lock), '0', fence)
  holder_count = 1
end

local reply = { now, redis.call('GET', highwater) or '0', holder_count, redis.call('ZCARD', queue), #fields / 4 }
for _, field in ipairs(fields) do reply[#reply + 1] = field end
local entries = redis.call('ZRANGE', queue, 0, max_count - 1, 'WITHSCORES')
for i = 1, #entries, 2 do
  local ticket = tonumber(entries[i + 1])
  if ticket >= PASSED_OVER then ticket = ticket - PASSED_OVER end
  reply[#reply + 1] = entries[i]
  reply[#reply + 1] = string.format('%.0f', ticket)
  reply[#reply + 1] = redis.call('HGET', meta, entries[i]) or ''
end
return reply
