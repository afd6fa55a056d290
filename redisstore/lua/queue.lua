-- Who is served next. Included by acquire.lua and release.lua, after what they can
-- do without.
--
-- KEYS of both: 1 the lock     string: the holder's token, with PX
--               2 the queue    zset:   place → ticket (µs of the server's clock at which it joined)
--               3 the signs    hash:   place → µs of its last sign of life after joining;
--                                      "?" place → µs at which it was first passed over
--               4 the floor    string: the largest fence of the slot so far
-- A place is "seq ttl weight/limit client token": what a hand-off needs to know.

local LIFE = 5000000   -- µs that a place lives without a sign of life: the claim TTL
local YOUNG = LIFE / 4 -- µs for which a place needs no sign but its ticket
local KEEP = 60000     -- ms that the queue's keys outlive their last use

-- reached tells whether somebody listens for the client of a place. A process that
-- died closed its connection, and need not cost the others a claim TTL. A live one
-- that cannot be reached is passed over once, and served after its next sign of
-- life, so that nobody starves. It also tells whether it was passed over.
local function reached(place, client, now)
  local ok = redis.pcall('PUBSUB', 'NUMSUB', 'dibs:c:' .. client)
  if ok.err or ok[2] ~= 0 then return true end
  local passed = redis.call('HGET', KEYS[3], '?' .. place)
  if passed then
    return tonumber(redis.call('HGET', KEYS[3], place) or 0) > tonumber(passed), true
  end
  redis.call('HSET', KEYS[3], '?' .. place, now)
  redis.call('PEXPIRE', KEYS[3], KEEP)
  return false
end

-- grant makes the owner of a place the holder, and tells its client.
local function grant(place, ticket, fence, sent)
  local ttl, client, token = string.match(place, '^%x+ (%d+) %d+/%d+ (%S+) (.*)$')
  redis.call('SET', KEYS[1], token, 'PX', ttl)
  -- A user who may not publish hands on all the same: the waiter asks.
  redis.pcall('PUBLISH', 'dibs:c:' .. client, string.format('%.0f %s %.0f %s', fence, ticket, sent, token))
end

-- serve hands the lock, which nobody holds or whose holder is leaving, to the
-- first waiter that is alive and can be reached, or else to the first that is
-- alive. It returns false if there is none. first is the head, if it was popped.
local function serve(fence, now, check, first)
  local aside = {}
  local chosen, passed
  while not chosen do
    local head = first or redis.call('ZPOPMIN', KEYS[2])
    first = nil
    local place, ticket = head[1], head[2]
    if not place then break end
    local alive = now - tonumber(ticket) < LIFE
    if not alive then
      local sign = redis.call('HGET', KEYS[3], place)
      alive = sign and now - tonumber(sign) < LIFE
    end
    if alive then
      local client = string.match(place, '^%x+ %d+ %d+/%d+ (%S+) ')
      local ok = check == '0'
      if not ok then ok, passed = reached(place, client, now) end
      if ok then
        chosen = head
      else
        aside[#aside + 1] = head
      end
    else
      redis.call('HDEL', KEYS[3], place, '?' .. place)
    end
  end
  if not chosen then chosen, passed = table.remove(aside, 1), true end
  for _, head in ipairs(aside) do redis.call('ZADD', KEYS[2], head[2], head[1]) end
  if aside[1] then redis.call('PEXPIRE', KEYS[2], KEEP) end -- it may be a new key
  if not chosen then return false end
  if passed or now - tonumber(chosen[2]) > YOUNG then
    redis.call('HDEL', KEYS[3], chosen[1], '?' .. chosen[1])
  end
  grant(chosen[1], chosen[2], mint(fence), now)
  return true
end
