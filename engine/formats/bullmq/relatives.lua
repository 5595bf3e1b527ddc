-- The parent and the children of a job, as one JSON array. ARGV: prefix, our prefix, key of the job,
-- children to list.
-- Answer: parent (a row or false), number of children, rows. A row: key, place, reason or result,
-- is it there; the place of one that is gone is as its parent remembers it, or ''. The text has at
-- most 300 bytes; of a value that is too long to be read, its size.
local prefix, ours, key, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local MOST_BYTES, MOST_READ = 300, 16384
local MOST_NAMES = 10000 -- more names of a hash are not read at once

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

-- The start of a field; the server would copy a long one whole.
local function text_of(hash, field)
  local size = redis.pcall('HSTRLEN', hash, field)
  if type(size) ~= 'number' or size == 0 then return '' end
  if size > MOST_READ then return size .. ' bytes' end
  return string.sub(redis.call('HGET', hash, field), 1, MOST_BYTES)
end

-- `ended`: the place of a job that its parent remembers as ended, though it is gone; `list`: the hash
-- in which the parent has its value or reason.
local function describe(other, ended, list)
  local said = list and text_of(list, other) or ''
  local from = #prefix + 2
  local colon = string.sub(other, 1, from - 1) == prefix .. ':' and string.find(other, ':', from, true)
  if not colon then return {other, ended, said, false} end
  local base, id = string.sub(other, 1, colon), string.sub(other, colon + 1)
  local place = place_of(base, ours .. base, id)
  if place == 'failed' then said = text_of(other, 'failedReason') end
  if place == 'completed' and said == '' then said = text_of(other, 'returnvalue') end
  return {other, place == '' and ended or place, said, place ~= ''}
end

-- The first names of a set, sorted set or hash. HSCAN copies the values too, so a few names a step.
local function first_of(command, name, count, most)
  local found, cursor, read, step = {}, '0', 0, command == 'SSCAN' and 1 or 2
  if command == 'HSCAN' and count <= MOST_NAMES then
    local names = redis.call('HKEYS', name)
    return {unpack(names, 1, math.min(most, #names))}
  end
  repeat
    local answer = redis.call(command, name, cursor, 'COUNT', command == 'HSCAN' and 10 or most)
    for i, word in ipairs(answer[2]) do
      if #found == most then return found end
      if (i - 1) % step == 0 then found[#found + 1] = word end
      read = read + #word
    end
    cursor = answer[1]
  until cursor == '0' or read > 1048576
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
    local some = count > 0 and first_of(kind[2], key .. kind[1], count, limit - #rows) or {}
    table.sort(some)
    local list = kind[2] == 'HSCAN' and key .. kind[1]
    for _, child in ipairs(some) do rows[#rows + 1] = describe(child, kind[4], list) end
  end
  if #rows >= limit then limit = #rows end
end

local parent = redis.pcall('HGET', key, 'parentKey')
parent = type(parent) == 'string' and parent ~= '' and describe(parent, '') or false
return cjson.encode({parent, total, #rows > 0 and rows or false})
