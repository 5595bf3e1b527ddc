-- What waits in vain in some queues: three numbers for each of them.
-- ARGV: now in milliseconds, entries to examine of each queue, prefix of the queues, then the base of each.
-- Answer: delayed jobs that are due, active jobs without a lock, parents of which each child that is
-- left has failed.
local now, most, prefix = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local function number_of(...)
  local found = redis.pcall(...)
  return type(found) == 'number' and found or 0
end

local function entries(command, key)
  local found = redis.pcall(command, key, 0, most - 1)
  return found.err and {} or found
end

local function has_failed(child)
  local from = #prefix + 2
  local colon = string.sub(child, 1, from - 1) == prefix .. ':' and string.find(child, ':', from, true)
  return colon and score_in(string.sub(child, 1, colon) .. 'failed', string.sub(child, colon + 1))
end

local function waits_in_vain(base, id)
  local children = base .. id .. ':dependencies'
  local count = number_of('SCARD', children)
  if count == 0 or count > most then return false end
  for _, child in ipairs(redis.call('SMEMBERS', children)) do
    if not has_failed(child) then return false end
  end
  return true
end

local answer = {}
for i = 4, #ARGV do
  local base, unlocked, parents = ARGV[i], 0, 0
  for _, id in ipairs(entries('LRANGE', base .. 'active')) do
    if redis.call('EXISTS', base .. id .. ':lock') == 0 then unlocked = unlocked + 1 end
  end
  for _, id in ipairs(entries('ZRANGE', base .. 'waiting-children')) do
    if waits_in_vain(base, id) then parents = parents + 1 end
  end
  local due = number_of('ZCOUNT', base .. 'delayed', '-inf', '(' .. string.format('%.0f', (now + 1) * 4096))
  for _, number in ipairs({due, unlocked, parents}) do answer[#answer + 1] = number end
end
return answer
