-- One SCAN step over the job hashes of a prefix: the cursor, how many, and their keys, or queues and the
-- number of each in turn.
-- ARGV: cursor, pattern of the keys, 'keys' or 'count', length of the prefix with its colon.
local step = redis.call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', 1000, 'TYPE', 'hash')
local keys, count, numbers = {}, 0, {}
for _, key in ipairs(step[2]) do
  local queue, id = string.match(key, '^([^:]+):(.+)$', tonumber(ARGV[4]) + 1)
  local is_job = id and id ~= 'meta' and not string.match(id, ':processed$') and not string.match(id, ':failed$')
    and not string.match(id, '^metrics:') and not string.match(id, '^dn:')
  if is_job and string.match(id, '^repeat:') then
    is_job = redis.call('HEXISTS', key, 'timestamp') == 1
  end
  if is_job then
    count = count + 1
    if ARGV[3] == 'keys' then keys[count] = key else numbers[queue] = (numbers[queue] or 0) + 1 end
  end
end
for queue, number in pairs(numbers) do
  keys[#keys + 1] = queue
  keys[#keys + 1] = number
end
return {step[1], count, keys}
