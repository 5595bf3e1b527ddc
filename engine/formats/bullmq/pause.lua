-- Pause or resume a queue in the way of its version.
-- ARGV: the queue's base, then the arguments of BullMQ's script.
-- Answer: {number of jobs left to move}, or {0, why nothing changed}.
local base = table.remove(ARGV, 1)
local why = why_closed(base)
if why then return {0, why} end
if ARGV[1] == 'paused' then
  redis.call('HSET', base .. 'meta', 'paused', 1)
  open_queue(base)
else
  join_lists(base)
end
return {run_package(base)}
