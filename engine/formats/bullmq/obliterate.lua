-- Delete the keys of a queue without jobs by BullMQ's own script, which needs it paused.
-- ARGV: base, kept, our set of queues, queue. Answer: {'done'}, or {place, number of jobs there}.
local base, kept = ARGV[1], ARGV[2]
for _, place in ipairs({'wait', 'paused', 'active', 'held', 'trash', 'repeat', unpack(SETS)}) do
  local key = (KEPT[place] and kept or base) .. place
  local number = redis.call(LISTS[place] and 'LLEN' or 'ZCARD', key)
  if number > 0 then return {place, number} end
end
redis.call('SREM', ARGV[3], ARGV[4])
redis.call('HSET', base .. 'meta', 'paused', 1)
ARGV[1], ARGV[2] = 1, ''
package_script()
return {'done'}
