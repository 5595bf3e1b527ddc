-- Replace, remove or put back a schedule with its next run, or add a job like its runs; only if the schedule is
-- as it was read. ARGV: the queue's base, a packed table, then the arguments of BullMQ's script that adds a job.
-- Answer: {'done'}, {'moved'} if it is not as it was read, {'taken', what exists} or {'closed', the reason}.
--   key, ids, seen: the schedule, possible ids of its next run, and the SHA-1 of its description
--   is_run: a job is added, and nothing else changes
--   new: key, score, hash, job, fields and due time of what replaces it; none: it is removed
local base = table.remove(ARGV, 1)
local ours = cmsgpack.unpack(table.remove(ARGV, 1))
local why = why_closed(base)
if why then return {'closed', why} end
-- A command that fails in the middle would leave half of a change: for a key of another type, or for a user
-- without permission (before Redis 7 not known).
for name, expected in pairs({['repeat'] = 'zset', delayed = 'zset', prioritized = 'zset', marker = 'zset',
  wait = 'list', paused = 'list', active = 'list', events = 'stream', meta = 'hash', id = 'string'}) do
  local kind = redis.call('TYPE', base .. name).ok
  if kind ~= expected and kind ~= 'none' then
    return {'closed', name .. ' is of the type ' .. kind .. ', expected ' .. expected}
  end
end
for _, text in ipairs({'DEL repeat', 'HSET x a b', 'ZREM delayed x', 'ZADD repeat 1 x', 'XADD events * a b',
  'LPUSH wait x', 'INCR id'}) do
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  words[2] = base .. words[2]
  if redis.acl_check_cmd and not redis.acl_check_cmd(unpack(words)) then
    return {'closed', 'the server does not permit ' .. words[1]}
  end
end
local now = describe(base, ours.key, ours.ids)
if now[7] ~= ours.seen then return {'moved'} end
if ours.is_run then
  if redis.call('EXISTS', base .. ours.job) == 1 then return {'taken', ours.job} end
  open_queue(base)
  return run_package(base) == ours.job and {'done'} or {'closed', 'BullMQ adds no such job'}
end

local events, delayed = base .. 'events', base .. 'delayed'
local function emit(...)
  local most = redis.call('HGET', base .. 'meta', 'opts.maxLenEvents') or 10000
  redis.call('XADD', events, 'MAXLEN', '~', most, '*', ...)
end

local new, id, place = ours.new, now[3], now[4]
if new then
  local is_other = new.key ~= ours.key
  if is_other and redis.call('ZSCORE', base .. 'repeat', new.key) then return {'taken', new.key} end
  local replaced = place == 'delayed' and new.job == id
  if new.job and not replaced and redis.call('EXISTS', base .. new.job) == 1 then return {'taken', new.job} end
end

open_queue(base)
if place == 'delayed' then
  redis.call('ZREM', delayed, id)
  local deduplicated = redis.call('HGET', base .. id, 'deid')
  if deduplicated and redis.pcall('GET', base .. 'de:' .. deduplicated) == id then
    redis.call('DEL', base .. 'de:' .. deduplicated)
  end
  redis.call('DEL', base .. id)
  redis.pcall('EXPIRE', base .. id .. ':logs', 86400) -- as long as an undo can put the job back
  emit('event', 'removed', 'jobId', id, 'prev', 'delayed')
end
redis.call('ZREM', base .. 'repeat', ours.key)
redis.call('DEL', base .. 'repeat:' .. ours.key)
if new then
  redis.call('ZADD', base .. 'repeat', new.score, new.key)
  if #new.hash > 0 then redis.call('HSET', base .. 'repeat:' .. new.key, unpack(new.hash)) end
  if new.job then
    redis.call('HSET', base .. new.job, unpack(new.fields))
    redis.pcall('PERSIST', base .. new.job .. ':logs')
    local low = new.due * 0x1000
    local last = redis.call('ZREVRANGEBYSCORE', delayed, low + 0xfff, low, 'WITHSCORES', 'LIMIT', 0, 1)
    local score = last[2] and math.min(tonumber(last[2]) + 1, low + 0xfff) or low
    redis.call('ZADD', delayed, new.delayed or string.format('%.0f', score), new.job)
    local first = redis.call('ZRANGE', delayed, 0, 0, 'WITHSCORES')
    redis.call('ZADD', base .. 'marker', tonumber(first[2]) / 0x1000, '1')
    emit('event', 'added', 'jobId', new.job, 'name', new.name)
    emit('event', 'delayed', 'jobId', new.job, 'delay', string.format('%.0f', new.due))
  end
end
close_queues()
return {'done'}
