-- Advance a job scheduler by BullMQ's script, as the worker of its version does.
-- ARGV: base, id of the run that was claimed, then the arguments of the script: time of the next run,
-- scheduler, data, packed options, now, prefix, id. Answer: the id of the next run, or false.
local base, job = table.remove(ARGV, 1), table.remove(ARGV, 1)
local scheduler, data = base .. 'repeat:' .. ARGV[2], ARGV[3]
local _, layout = layout_of(base, true)
-- Version 5 takes data that the scheduler has none of from its last run.
if layout.keeps_template and data ~= '{}' and redis.call('HEXISTS', scheduler, 'data') == 0
  and redis.call('ZSCORE', base .. 'repeat', ARGV[2]) then
  redis.call('HSET', scheduler, 'data', data)
end
open_queue(base, true)
local answer = run_package(base)
if answer and layout.keeps_template then redis.call('HSET', base .. job, 'nrjid', answer) end
return answer
