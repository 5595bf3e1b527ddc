-- The number of jobs in each place of some queues; -1 for a key of another type.
-- ARGV: base and kept of each queue.
local counts = {}
for i = 1, #ARGV, 2 do
  local base, kept = ARGV[i], ARGV[i + 1]
  for _, place in ipairs({'wait', 'paused', 'prioritized', 'delayed', 'waiting-children', 'active',
                          'failed', 'completed', 'held', 'trash'}) do
    local found = redis.pcall(LISTS[place] and 'LLEN' or 'ZCARD', (KEPT[place] and kept or base) .. place)
    counts[#counts + 1] = type(found) == 'number' and found or -1
  end
end
return counts
