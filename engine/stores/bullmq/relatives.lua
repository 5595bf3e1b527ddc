-- The parent and the children of a job, as one JSON array. ARGV: prefix, our prefix, key of the job,
-- children to list.
-- Answer: parent (a row or false), number of children, rows. A row: key, place, reason or result,
-- is it there; the place of one that is gone is as its parent remembers it, or ''. The text has at
-- most 300 bytes.
local prefix, ours, key, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local MOST_BYTES = 300

local function place_of(base, kept, id)
  for _, place in ipairs(SETS) do
    if score_in(base .. place, id) then return place end
  end
  for _, place in ipairs({'held', 'trash'}) do
    if score_in(kept .. place, id) then return place end
  end
  if redis.call('EXISTS', base .. id) == 0 then return '' end
  for _, place in ipairs({'active', 'wait', 'paused'}) do
    if index_in(base .. place, id) then return place end
  end
  return 'wait' -- too deep in a long list to be searched
end

local function text_of(value)
  return type(value) == 'string' and string.sub(value, 1, MOST_BYTES) or ''
end

-- `ended`: the place of a job that its parent remembers as ended, though it is gone.
local function describe(other, ended, said)
  local from = #prefix + 2
  local colon = string.sub(other, 1, from - 1) == prefix .. ':' and string.find(other, ':', from, true)
  if not colon then return {other, ended, text_of(said), false} end
  local base, id = string.sub(other, 1, colon), string.sub(other, colon + 1)
  local place = place_of(base, ours .. base, id)
  if place == 'failed' then said = redis.pcall('HGET', other, 'failedReason') end
  if place == 'completed' and not said then said = redis.pcall('HGET', other, 'returnvalue') end
  return {other, place == '' and ended or place, text_of(said), place ~= ''}
end

-- The first names of a set, sorted set or hash, each with its value in a hash.
local function first_of(command, name, most)
  local found, cursor = {}, '0'
  repeat
    local answer = redis.pcall(command, name, cursor, 'COUNT', most)
    if answer.err then return found end
    local step = command == 'SSCAN' and 1 or 2
    for i = 1, #answer[2], step do
      if #found == most then return found end
      local value = command == 'HSCAN' and text_of(answer[2][i + 1])
      found[#found + 1] = {answer[2][i], value}
    end
    cursor = answer[1]
  until cursor == '0'
  return found
end

local rows, total = {}, 0
for _, kind in ipairs({
  {':unsuccessful', 'ZSCAN', 'ZCARD', 'failed'}, {':failed', 'HSCAN', 'HLEN', 'failed'},
  {':dependencies', 'SSCAN', 'SCARD', ''}, {':processed', 'HSCAN', 'HLEN', 'completed'},
}) do
  local count = redis.pcall(kind[3], key .. kind[1])
  if type(count) == 'number' then
    total = total + count
    local some = count > 0 and first_of(kind[2], key .. kind[1], limit - #rows) or {}
    table.sort(some, function(one, other) return one[1] < other[1] end)
    for _, child in ipairs(some) do rows[#rows + 1] = describe(child[1], kind[4], child[2]) end
  end
  if #rows >= limit then limit = #rows end
end

local parent = redis.pcall('HGET', key, 'parentKey')
parent = type(parent) == 'string' and parent ~= '' and describe(parent, '', false) or false
return cjson.encode({parent, total, #rows > 0 and rows or false})
