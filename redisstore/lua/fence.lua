-- Mints fences. Included by acquire.lua and release.lua. KEYS[4] is the floor.

-- raised returns the fence after the floor was set to `at`, and what it was before:
-- `at`, or if it was not smaller (the clock went back, or two fences fell on one µs),
-- one more than it was.
local function raised(floor, at)
  if type(floor) == 'table' then
    if not string.find(floor.err, 'syntax', 1, true) then error(floor.err, 0) end
    floor = redis.call('GET', KEYS[4]) -- before Redis 6.2: SET has no GET
    redis.call('SET', KEYS[4], at)
  end
  floor = tonumber(floor)
  if not floor or floor < at then return at end
  redis.call('SET', KEYS[4], floor + 1)
  return floor + 1
end

-- mint returns a fence: at least `at`, and larger than the floor.
local function mint(at)
  return raised(redis.pcall('SET', KEYS[4], at, 'GET'), at)
end
