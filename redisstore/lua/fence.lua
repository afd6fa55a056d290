-- Mints fences. Included by scripts that grant; `highwater` is the key of the highwater.

-- raised returns the fence after the highwater was set to `at`, and what it was before:
-- `at`, or if it was not smaller (the clock went back, or two fences fell on one µs),
-- one more than it was.
local function raised(before, at)
  if type(before) == 'table' then
    if not string.find(before.err, 'syntax', 1, true) then error(before.err, 0) end
    before = redis.call('GET', highwater) -- before Redis 6.2: SET has no GET
    redis.call('SET', highwater, at)
  end
  before = tonumber(before)
  if not before or before < at then return at end
  redis.call('SET', highwater, before + 1)
  return before + 1
end

local minted = 0 -- the last fence of this call: the next one costs one command, too

-- mint returns a fence: at least `at`, and larger than the highwater.
local function mint(at)
  at = math.max(at, minted + 1)
  minted = raised(redis.pcall('SET', highwater, at, 'GET'), at)
  return minted
end
