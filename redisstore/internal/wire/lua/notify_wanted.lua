-- Notifies the holders that asked for it (wanted.lua) that a request waits. Included where
-- the first entry joins the queue. It publishes without the functions of queue.lua, because
-- the fast path of acquire.lua creates none.

local asked = redis.call('HGET', meta, '!')
if asked then
  redis.call('HDEL', meta, '!')
  for _, holder in ipairs(cjson.decode(asked)) do
    local client, token = string.match(holder, '^(%S+) (.*)$')
    redis.pcall('PUBLISH', 'dibs:c:' .. client, '0 0 ! ' .. token)
  end
end
