-- Put before a script that calls it instead of TIME. AHEAD is replaced by µs.

local function stepped_time()
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2] + AHEAD
  return { string.format('%d', math.floor(now / 1000000)), string.format('%d', now % 1000000) }
end

