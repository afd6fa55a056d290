-- Extends holdings. Atomic; never shortens, never brings back. All keys are of
-- one slot where the server shards.
--
-- KEYS   for each: lock, signs: see holders.lua. For a single one, signs may be left
--        out: while a slot is on its way to another server of a cluster, that serves
--        what has one key, and refuses (TRYAGAIN) several of which some do not exist.
-- ARGV   for each: token, TTL in ms, fence or "0", client
-- Reply  {the server's time in µs, a string with a character for each: "1" the token
--        holds, "0" it does not, "x" the key holds another kind of value}

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function outlive(key, ms)
  if redis.call('PTTL', key) < ms then redis.call('PEXPIRE', key, ms) end
end

-- share extends one who holds a part.
local function share(lock, signs, token, ttl)
  local expires = redis.pcall('ZSCORE', lock, token)
  if type(expires) == 'table' then return 'x' end
  expires = tonumber(expires)
  if not expires or expires <= math.floor(now / 1000) then return '0' end
  local later = math.ceil(now / 1000) + ttl
  if later > expires then redis.call('ZADD', lock, later, token) end
  outlive(lock, ttl)
  if signs then outlive(signs, ttl + 60000) end
  return '1'
end

local reply = {}
for i = 1, #KEYS, 2 do
  local lock, signs = KEYS[i], KEYS[i + 1]
  local token, ttl, fence, client = ARGV[2 * i - 1], tonumber(ARGV[2 * i]), ARGV[2 * i + 1], ARGV[2 * i + 2]
  local holder = redis.pcall('GET', lock)
  local mark
  if type(holder) == 'table' then
    mark = share(lock, signs, token, ttl)
  elseif holder ~= token then
    mark = '0'
  else
    outlive(lock, ttl)
    if signs and fence ~= '0' then -- noted here, and not at every grant: short ones need it least
      local noted, whose = string.match(redis.call('HGET', signs, '=') or '', '^(%d+) %S+ (.*)$')
      if whose ~= token or tonumber(noted) <= tonumber(fence) then -- or it was sent before that one
        redis.call('HSET', signs, '=', fence .. ' ' .. client .. ' ' .. token)
      end
      outlive(signs, redis.call('PTTL', lock))
    end
    mark = '1'
  end
  reply[#reply + 1] = mark
end
return { now, table.concat(reply) }
