-- Identity and uptime of this store. Included by scripts that vote; `now` is the server's
-- time in µs.

-- node_key is the key of a string "id run saved since":
--         id     of this store; a store that has lost this key gets a new one
--         run    run_id of the server process that wrote the record
--         saved  LASTSAVE at that time. It changes when the server starts, so INFO is
--                read only if it differs. 0 if a restart in the same second would
--                give the same LASTSAVE
--         since  server time in µs; the server may have lost locks from before it

-- identity returns the id of this store and its uptime: for how many µs it has lost
-- nothing. new_id becomes its id if it has none.
local function identity(node_key, new_id)
  local id, run, saved, since = string.match(redis.call('GET', node_key) or '', '^(%S+) (%S+) (%d+) (%d+)$')
  local last_save = redis.call('LASTSAVE')
  since = tonumber(since or 0)
  if id and tonumber(saved) == last_save and since <= now then return id, now - since end
  local current_run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
  if not current_run then error('INFO server has no run_id: not a quorum node', 0) end
  if run ~= current_run or since > now then since = now end
  if last_save >= math.floor(now / 1000000) then last_save = 0 end
  id = id or new_id
  redis.call('SET', node_key, string.format('%s %s %.0f %.0f', id, current_run, last_save, since))
  return id, now - since
end

-- read_vote_args reads the arguments of a vote request, from ARGV[i] on: the least fence,
-- the recovery window in µs, an id for a new store. It returns the least fence. It sets
-- node_id if the store's uptime covers the recovery window, so that it may grant to
-- entries of vote requests.
local function read_vote_args(node_key, i)
  local id, uptime = identity(node_key, ARGV[i + 2])
  if uptime >= tonumber(ARGV[i + 1]) then node_id = id end
  return tonumber(ARGV[i])
end
