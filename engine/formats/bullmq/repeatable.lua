-- Add the next run of a repeatable job, which version 6 does not know any more.
-- ARGV: base, time of the next run, data, and for each of two keys that the job may have in `repeat`: the
-- key, then the packed job and options of the script. Answer: the id of the next run, or false.
local base, millis, data = ARGV[1], ARGV[2], ARGV[3]
local at = redis.call('ZSCORE', base .. 'repeat', ARGV[4]) and 4 or redis.call('ZSCORE', base .. 'repeat', ARGV[7]) and 7
local _, layout = layout_of(base, true)
if not at or not layout.has_repeatables then return false end
redis.call('ZADD', base .. 'repeat', millis, ARGV[at])
ARGV[1], ARGV[2], ARGV[3] = ARGV[at + 1], data, ARGV[at + 2]
open_queue(base, true)
return run_package(base)
