-- Reads what record.lua writes. read_record returns fence and client, or nothing if the record
-- is not of this token.

local function read_record(record, token)
  if not record then return end
  local fence, rest = string.match(record, '^(%d+) (:.*)$')
  if fence then
    if string.sub(token, -#rest) ~= rest then return end
    return fence, string.sub(token, 1, -#rest - 1)
  end
  local recorded, client, owner = string.match(record, '^(%d+) (%S+) (.*)$')
  if owner == token then return recorded, client end
end
