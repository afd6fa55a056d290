-- Makes the script behind it see a server before 7.0, without the option GT of PEXPIRE.

local server = redis
local redis = { pcall = server.pcall }
function redis.call(command, ...)
  if command == 'PEXPIRE' and select('#', ...) ~= 2 then error('ERR wrong number of arguments') end
  return server.call(command, ...)
end
