-- Our part of a change that BullMQ has no script for: hold, trash, restore, edit, undo.

local SIDE = {'', ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful'}

local function paused_or_maxed()
  local said = redis.call('HMGET', base .. 'meta', 'paused', 'concurrency')
  if said[1] then return true end
  return said[2] and redis.call('LLEN', base .. 'active') >= tonumber(said[2])
end

local function mark_due()
  local first = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')
  if first[2] then redis.call('ZADD', base .. 'marker', tonumber(first[2]) / 0x1000, '1') end
end

local function delayed_score(due)
  local low, high = due * 0x1000, (due + 1) * 0x1000 - 1
  local last = redis.call('ZREVRANGEBYSCORE', base .. 'delayed', high, low, 'WITHSCORES', 'LIMIT', 0, 1)
  local score = last[2] and math.min(tonumber(last[2]) + 1, high) or low
  return string.format('%.0f', score)
end

-- Insert into a list at a position of `position_in`. If jobs have come or gone since, the place is
-- found by age, unless it was another one.
local function insert(list, position)
  local key, exact = base .. list, string.sub(position, 1, 1) == '='
  local length = redis.call('LLEN', key)
  local ahead = math.min(tonumber(string.match(position, '%d+')) or 0, length)
  local stamp = tonumber(fields and fields.timestamp) or 0
  local function older(distance) return is_older(base, list, distance, stamp, id) end
  if not exact and ((ahead > 0 and not older(ahead - 1)) or older(ahead)) then
    local low, high = 0, length
    while low < high do
      local middle = math.floor((low + high) / 2)
      if older(middle) then low = middle + 1 else high = middle end
    end
    ahead = low
  end
  if ahead == 0 then
    redis.call('RPUSH', key, id)
  elseif ahead >= length then
    redis.call('LPUSH', key, id)
  elseif ahead <= 1000 then
    local before = redis.call('LRANGE', key, -ahead, -1)
    redis.call('LTRIM', key, 0, -1 - ahead)
    redis.call('RPUSH', key, id, unpack(before))
  else
    redis.call('LINSERT', key, 'BEFORE', redis.call('LINDEX', key, -ahead), id)
  end
end

local function emit(...)
  redis.call('XADD', base .. 'events', 'MAXLEN', '~', redis.call('HGET', base .. 'meta', 'opts.maxLenEvents')
    or 10000, '*', ...)
end

-- Put the job into a place: at `where` (a score or a position), else as a new one.
local function enter(place, where)
  if place == 'wait' or place == 'paused' then
    if where then insert('wait', where) else redis.call('LPUSH', base .. 'wait', id) end
    if layout.sorts_list and tonumber(ours.priority) > 0 then redis.call('ZADD', base .. 'priority', ours.priority, id) end
  elseif place == 'prioritized' then
    local number = where
    if not number then
      local count = redis.call('INCR', base .. 'pc')
      number = string.format('%.0f', tonumber(ours.priority) * 0x100000000 + count % 0x100000000)
    end
    redis.call('ZADD', base .. place, number, id)
  elseif place == 'delayed' then
    redis.call('ZADD', base .. place, where or delayed_score(ours.due), id)
    mark_due()
    emit('event', 'delayed', 'jobId', id, 'delay', string.format('%.0f', ours.due or 0))
    return
  else
    redis.call('ZADD', (KEPT[place] and kept or base) .. place, where or ours.now, id)
    if not where and not KEPT[place] then
      redis.call('HSET', job, 'finishedOn', string.format('%.0f', ours.now))
    end
    return
  end
  if not paused_or_maxed() then redis.call('ZADD', base .. 'marker', 0, '0') end
  emit('event', 'waiting', 'jobId', id)
end

-- Take the job out of its place; without another job to claim, the marker wakes workers for nothing.
local function leave()
  if LISTS[here] then
    redis.call('LREM', base .. here, -1, id)
  else
    redis.call('ZREM', (KEPT[here] and kept or base) .. here, id)
  end
  if redis.call('EXISTS', base .. 'wait', base .. 'paused', base .. 'prioritized') == 0 then
    redis.pcall('ZREM', base .. 'marker', '0')
  end
end

-- Note when the job's deduplication key ends (ms, -1: never), which BullMQ removes with the job.
local function keep_deduplication()
  if not fields.deid or redis.pcall('GET', base .. 'de:' .. fields.deid) ~= id then return end
  local left = redis.call('PTTL', base .. 'de:' .. fields.deid)
  redis.call('HSET', kept .. 'deduplication', id, left < 0 and -1 or string.format('%.0f', ours.now + left))
end

-- Give the job its deduplication key again, unless its time is over or another job has it by now.
local function restore_deduplication()
  local ends = tonumber(redis.call('HGET', kept .. 'deduplication', id) or 0)
  local key = base .. 'de:' .. (fields.deid or '')
  if ends < 0 then
    redis.call('SET', key, id, 'NX')
  elseif ends > ours.now then
    redis.call('SET', key, id, 'NX', 'PX', string.format('%.0f', ends - ours.now))
  end
end

-- Copy the job with its other keys to keys of ours, and note its place.
local function keep(place)
  keep_deduplication()
  for _, side in ipairs(SIDE) do redis.call('COPY', job .. side, copy .. side, 'REPLACE') end
  redis.call('ZADD', kept .. place, ours.now, id)
  redis.call('HSET', kept .. 'place', id, here .. ' ' .. position)
  redis.call('SADD', 'spooldeck:' .. ours.prefix .. ':queues', ours.queue)
end

local function forget()
  for _, side in ipairs(SIDE) do redis.call('DEL', copy .. side) end
  redis.call('ZREM', kept .. 'held', id)
  redis.call('ZREM', kept .. 'trash', id)
  redis.call('HDEL', kept .. 'place', id)
  redis.call('HDEL', kept .. 'deduplication', id)
end

-- The states whose places a returning job may go back to.
local GROUPS = {wait = 'wait', paused = 'wait', prioritized = 'wait', delayed = 'wait'}

-- Move our copy back to the queue's keys; the place is the former one, if it is of the same state.
local function bring_back()
  local place, where = string.match(redis.call('HGET', kept .. 'place', id) or '', '^(%S+) (%S+)$')
  if place and not ours.where and (GROUPS[place] or place) == (GROUPS[ours.to] or ours.to) then
    ours.to, ours.where = place, where
  end
  restore_deduplication()
  for _, side in ipairs(SIDE) do
    if redis.call('EXISTS', copy .. side) == 1 then
      redis.call('RENAME', copy .. side, job .. side)
    end
  end
  forget()
end

-- Make the hash that of an image; the fields that the image names as unchanged stay.
local function rewrite(key)
  local wanted = {}
  for i = 1, #ours.image, 2 do wanted[ours.image[i]] = true end
  redis.call('HSET', key, unpack(ours.image))
  for name in pairs(fields) do
    if not wanted[name] and not (ours.unchanged or {})[name] then redis.call('HDEL', key, name) end
  end
  local _, now = revision(key, '')
  fields = now
end

function relocate()
  if ours.action == 'keep' then keep(ours.to) end
  if ours.action == 'return' then bring_back() end
  local key = job_key(base, kept, id, ours.to)
  if ours.image then rewrite(key) end
  if ours.image and ours.was then redis.call('HSET', kept .. 'place', id, ours.was) end
  if ours.action == 'move' then leave() end
  if ours.action == 'forget' then forget() end
  if ours.set and #ours.set > 0 then redis.call('HSET', key, unpack(ours.set)) end
  if ours.unset and #ours.unset > 0 then redis.call('HDEL', key, unpack(ours.unset)) end
  if ours.enters then enter(ours.to, ours.where) end
  redis.call('XADD', stream, 'MAXLEN', '~', 10000, '*', 'queue', ours.queue, 'id', id)
end
