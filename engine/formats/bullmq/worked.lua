-- ARGV: the base of a queue. Answer: why our worker takes no job of it, or ''; then key, pattern and time
-- zone of its next schedules.
local base = ARGV[1]
local keys = redis.pcall('ZRANGE', base .. 'repeat', 0, 999)
local why = why_not_worked(base)
if why and keys[1] then why = why .. ', and it has the schedule ' .. keys[1] end
local answer = {why or ''}
for _, key in ipairs(keys) do
  local said = redis.pcall('HMGET', base .. 'repeat:' .. key, 'pattern', 'tz')
  local zone, pattern = string.match(key, '^[^:]*:[^:]*:[^:]*:([^:]*):(.*%s.*)$')
  answer[#answer + 1] = key
  answer[#answer + 1] = said[1] or pattern or ''
  answer[#answer + 1] = said[2] or zone or ''
end
return answer
