-- Which keys are lock keys. Included by what is put before the scripts.

local function is_lock(key)
  return not (string.find(key, ':dibs:%a+$') or string.sub(key, 1, 11) == 'dibs:fence:' or key == 'dibs:node')
end
