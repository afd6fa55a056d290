-- The record of an exclusive holder: the field "=" of the metadata. Included by scripts that
-- write it.
--
-- "fence :rest"          rest is what follows the client in the token. A hash with a value of
--                        more than 64 bytes takes three times the memory
-- "fence client token"   the token does not begin with its client. "-" is an unknown client

local function make_record(token, fence, client)
  local size = #client + 1
  if string.sub(token, 1, size) == client .. ':' and string.find(token, '^[^:%s]+:%d+:[^:%s]+:%w') then
    return fence .. ' ' .. string.sub(token, size)
  end
  return fence .. ' ' .. client .. ' ' .. token
end
