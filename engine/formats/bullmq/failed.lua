-- The jobs with a reason of failure in a part of a list or set.
-- ARGV: base, kept, place, first and last index.
-- Answer: number of entries that were read, then the ids.
local base, kept, place = ARGV[1], ARGV[2], ARGV[3]
local range = LISTS[place] and 'LRANGE' or 'ZRANGE'
local entries = redis.pcall(range, (KEPT[place] and kept or base) .. place, ARGV[4], ARGV[5])
if entries.err then return {0} end -- it became another type since it was counted
local answer = {#entries}
for _, id in ipairs(entries) do
  local reason = redis.pcall('HGET', job_key(base, kept, id, place), 'failedReason')
  if type(reason) == 'string' and reason ~= '' then answer[#answer + 1] = id end
end
return answer
