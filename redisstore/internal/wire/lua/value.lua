-- Who holds a lock exclusively, and with which fence. Included by scripts that read it.
--
-- The value of the lock is "fence token" if the token begins with its client, as all do that
-- dibs makes. A token of the user's is the whole value, since clients of other libraries may
-- compare it. Its fence and client are in the field "=" of the metadata: "fence client token".
-- So are those of a lease that another client extends; "-" is an unknown client.

-- split_value returns the token in the value of a lock, and its fence if that is in the value.
local function split_value(value)
  local fence, token = string.match(value, '^(%d+) ([^:%s]+:%d+:[^:%s]+:.+)$')
  if fence then return token, fence end
  return value
end

-- read_record returns fence and client of a record, or nothing if it is not of this token.
local function read_record(record, token)
  local fence, client, owner = string.match(record or '', '^(%d+) (%S+) (.*)$')
  if owner == token then return fence, client end
end
