-- Adds keys until the tables of the server have room for many more. The reads end their growth.
for i = 1, 34000 do redis.call('SET', 'other' .. i, '', 'PX', 3600000) end
for i = 1, 34000 do redis.call('GET', 'other' .. i) end
