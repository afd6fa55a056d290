-- Which store this is, and since when it remembers everything. Included by scripts that
-- vote; `now` is the server's time in µs.

-- record is a string: "id run saved since".
--         id     of this store. One that has forgotten this key is another one
--         run    the server process that it was when this was written
--         saved  LASTSAVE at that time: it changes when the server starts, so that
--                INFO is asked only then; 0 if another start may tell the same second
--         since  µs of the server's clock before which something may be forgotten

-- identity returns the id of this store, and for how many µs it remembers everything.
-- fresh is its id if it is new.
local function identity(record, fresh)
  local id, run, saved, since = string.match(redis.call('GET', record) or '', '^(%S+) (%S+) (%d+) (%d+)$')
  local last = redis.call('LASTSAVE')
  since = tonumber(since or 0)
  if id and tonumber(saved) == last and since <= now then return id, now - since end
  local current = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not current then error('a node of a quorum must tell its run_id', 0) end
  if run ~= current or since > now then since = now end
  if last >= math.floor(now / 1000000) then last = 0 end
  id = id or fresh
  redis.call('SET', record, string.format('%s %s %.0f %.0f', id, current, last, since))
  return id, now - since
end

-- serving reads how a ballot has its script serve: by which least fence, and as which
-- store, if that remembers enough to hand on. ARGV from i: the least fence, for how many
-- µs it must remember all, its id if it is new.
local function serving(record, i)
  local id, remembers = identity(record, ARGV[i + 2])
  if remembers >= tonumber(ARGV[i + 1]) then node = id end
  return tonumber(ARGV[i])
end
