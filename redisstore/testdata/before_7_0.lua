-- Put before a script, it lets the script see a server before Redis 7.0, which has no
-- version field, and no options of PEXPIRE.
local server = redis
local redis = { pcall = server.pcall }
function redis.call(command, ...)
  if command == 'PEXPIRE' and select('#', ...) ~= 2 then error('ERR wrong number of arguments') end
  return server.call(command, ...)
end
