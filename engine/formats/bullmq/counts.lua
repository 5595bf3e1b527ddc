-- The number of jobs in each place of some queues; -1 for a key of another type. An entry of old
-- versions at an end of a list that is no job (0:TIME) does not count; a key of ours that the user may
-- not read counts as 0.
-- ARGV: base and kept of each queue.
local counts = {}

local function is_marker(entry)
  return entry and string.sub(entry, 1, 2) == '0:'
end

local function markers_of(list, length)
  local found = is_marker(redis.call('LINDEX', list, 0)) and 1 or 0
  return length > 1 and is_marker(redis.call('LINDEX', list, -1)) and found + 1 or found
end

for i = 1, #ARGV, 2 do
  local base, kept = ARGV[i], ARGV[i + 1]
  for _, place in ipairs({'wait', 'paused', 'prioritized', 'delayed', 'waiting-children', 'active',
                          'failed', 'completed', 'held', 'trash'}) do
    local found = redis.pcall(LISTS[place] and 'LLEN' or 'ZCARD', (KEPT[place] and kept or base) .. place)
    local is_line = type(found) == 'number' and (place == 'wait' or place == 'paused')
    if is_line and found > 0 then found = found - markers_of(base .. place, found) end
    local is_refused = KEPT[place] and type(found) ~= 'number' and not string.find(found.err, 'WRONGTYPE', 1, true)
    counts[#counts + 1] = type(found) == 'number' and found or is_refused and 0 or -1
  end
end
return counts
