-- Issues fences. Included by scripts that grant; `highwater` is the key of the fence
-- high-water mark.

-- resolve_fence returns the new fence. The high-water mark was already set to
-- `min_fence`; `previous` is its value before that, or the error of SET. The fence is
-- `min_fence`, or `previous` + 1 if `previous` was not smaller: the clock went back, or
-- two fences fell in one µs.
local function resolve_fence(previous, min_fence)
  if type(previous) == 'table' then
    if not string.find(previous.err, 'syntax', 1, true) then error(previous.err, 0) end
    previous = redis.call('GET', highwater) -- before Redis 6.2, SET has no GET option
    redis.call('SET', highwater, min_fence)
  end
  previous = tonumber(previous)
  if not previous or previous < min_fence then return min_fence end
  redis.call('SET', highwater, previous + 1)
  return previous + 1
end

local issued = 0 -- the last fence of this call: each further one costs one command too

-- next_fence returns a fence that is at least `min_fence` and larger than the high-water
-- mark.
local function next_fence(min_fence)
  min_fence = math.max(min_fence, issued + 1)
  issued = resolve_fence(redis.pcall('SET', highwater, min_fence, 'GET'), min_fence)
  return issued
end
