-- Mints fences. Included by acquire.lua and release.lua. KEYS[4] is the floor.

-- mint returns a fence: at least `at`, and larger than the floor. One call in the
-- usual case; two when the clock went back or two fences fall on one µs.
local function mint(at)
  local floor = redis.pcall('SET', KEYS[4], at, 'GET')
  if type(floor) == 'table' and floor.err then
    if not string.find(floor.err, 'syntax', 1, true) then error(floor.err, 0) end
    floor = redis.call('GET', KEYS[4]) -- before Redis 6.2
    redis.call('SET', KEYS[4], at)
  end
  floor = tonumber(floor)
  if not floor or floor < at then return at end
  redis.call('SET', KEYS[4], floor + 1)
  return floor + 1
end
