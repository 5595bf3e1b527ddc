-- A guard, then a script of the package as `package_script`, then our part, in one step.
-- The last argument is a packed table; the script's own arguments keep their numbers.
-- Answer: {'done', revision, answer of the script}, or {the reason why nothing changed}.
local ours = cmsgpack.unpack(table.remove(ARGV)) -- so that the script sees only its own
local base, kept, id = ours.base, ours.kept, ours.id
local SIDE = {'', ':logs', ':dependencies', ':processed', ':failed', ':unsuccessful'}
local job, copy = base .. id, kept .. 'job:' .. id

local function paused_or_maxed()
  local said = redis.call('HMGET', base .. 'meta', 'paused', 'concurrency')
  if said[1] then return true end
  return said[2] and redis.call('LLEN', base .. 'active') >= tonumber(said[2])
end

local function options(fields)
  local ok, said = pcall(cjson.decode, fields.opts or '{}')
  return ok and type(said) == 'table' and said or {}
end

local here, position, fields

-- Where the job is exactly, and its position there; nil if it is not in the place given.
local function present_place()
  local place = ours.place
  if place == 'wait' or place == 'paused' then
    for _, list in ipairs({'wait', 'paused'}) do
      local at = position_in(base, list, id, tonumber(fields.timestamp) or 0)
      if at then return list, at end
    end
    return nil
  end
  if place == 'active' then
    return index_in(base .. 'active', id, true) and 'active', '0'
  end
  local score = score_in((KEPT[place] and kept or base) .. place, id)
  return score and place, score
end

-- True if a key of the queue has another type than BullMQ's: its scripts would stop half-way.
local function has_odd_key()
  for list in pairs(LISTS) do
    local kind = redis.call('TYPE', base .. list).ok
    if kind ~= 'list' and kind ~= 'none' then return true end
  end
  for _, set in ipairs(SETS) do
    local kind = redis.call('TYPE', base .. set).ok
    if kind ~= 'zset' and kind ~= 'none' then return true end
  end
  return false
end

-- Why the job cannot be changed; nil if it can.
local function refusal()
  if ours.image and #ours.image > 4000 then return 'too-many-fields' end
  if has_odd_key() then return 'odd-key' end
  if ours.is_new then
    if redis.call('EXISTS', job, copy) > 0 then return 'exists' end
    return nil
  end
  local lock = lock_of(base, id) or ''
  local rev
  rev, fields = revision(job_key(base, kept, id, ours.place), ours.place == 'active' and lock or '')
  if rev ~= ours.rev then return 'gone' end
  if not KEPT[ours.place] and lock ~= ours.lock then return 'locked' end
  here, position = present_place()
  if not here then return 'gone' end
  if ours.leaves and is_needed_by_parent(base, id, fields) then return 'needed' end
  if ours.leaves and is_next_run(base, id, fields) then return 'next-run' end
  if ours.returns and redis.call('EXISTS', job) == 1 then return 'taken' end
  for name, sha in pairs(ours.unchanged or {}) do
    if not fields[name] or redis.sha1hex(fields[name]) ~= sha then return 'gone' end
  end
  return nil
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
    local list = 'wait'
    if redis.call('HEXISTS', base .. 'meta', 'paused') == 1 and redis.call('EXISTS', base .. 'paused') == 1 then
      list = 'paused'
    end
    if where then insert(list, where) else redis.call('LPUSH', base .. list, id) end
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
    emit('event', 'delayed', 'jobId', id, 'delay', string.format('%.0f', ours.due))
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

local function leave()
  if LISTS[here] then
    redis.call('LREM', base .. here, -1, id)
  else
    redis.call('ZREM', (KEPT[here] and kept or base) .. here, id)
  end
end

-- Copy the job with its other keys to keys of ours, and note its place.
local function keep(place)
  for _, side in ipairs(SIDE) do redis.call('COPY', job .. side, copy .. side, 'REPLACE') end
  redis.call('ZADD', kept .. place, ours.now, id)
  redis.call('HSET', kept .. 'place', id, here .. ' ' .. position)
  redis.call('SADD', ours.queues, ours.queue)
end

local function forget()
  for _, side in ipairs(SIDE) do redis.call('DEL', copy .. side) end
  redis.call('ZREM', kept .. 'held', id)
  redis.call('ZREM', kept .. 'trash', id)
  redis.call('HDEL', kept .. 'place', id)
end

-- The states whose places a returning job may go back to.
local GROUPS = {wait = 'wait', paused = 'wait', prioritized = 'wait', delayed = 'wait'}

-- Move our copy back to the queue's keys; the place is the former one, if it is of the same state.
local function bring_back()
  local place, where = string.match(redis.call('HGET', kept .. 'place', id) or '', '^(%S+) (%S+)$')
  if place and not ours.where and (GROUPS[place] or place) == (GROUPS[ours.to] or ours.to) then
    ours.to, ours.where = place, where
  end
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

-- Fill in what depends on the job's own options: how many finished jobs are kept, and its attempts.
local function complete_arguments()
  local said = options(fields)
  if ours.script == 'reprocessJob' then ARGV[2] = said.lifo and 'RPUSH' or 'LPUSH' end
  if ours.script == 'retryJob' then ARGV[3] = said.lifo and 'RPUSH' or 'LPUSH' end
  if ours.script ~= 'moveToFinished' then return end
  local keeps = said[ARGV[5] == 'failed' and 'removeOnFail' or 'removeOnComplete']
  if type(keeps) == 'number' then keeps = {count = keeps} end
  if type(keeps) ~= 'table' then keeps = {count = keeps and 0 or -1} end
  if ours.to == '' then keeps = {count = 0} end
  ARGV[8] = cmsgpack.pack({
    token = ours.lock ~= '' and ours.lock or '0', keepJobs = keeps, attempts = said.attempts or 1,
    maxMetricsSize = '', fpof = said.fpof, cpof = said.cpof, idof = said.idof, rdof = said.rdof
  })
end

local why = refusal()
if why then return {why} end

if ours.action == 'keep' then keep(ours.to) end
if ours.action == 'return' then bring_back() end
if ours.image and not ours.is_new then rewrite(job_key(base, kept, id, ours.to)) end
if ours.image and ours.was then redis.call('HSET', kept .. 'place', id, ours.was) end
if ours.action == 'move' then
  if ours.stays and here == ours.to then ours.where = position end
  leave()
end
if ours.action == 'forget' then forget() end
if ours.set and #ours.set > 0 and not ours.is_new and ours.action ~= 'package' then
  redis.call('HSET', job_key(base, kept, id, ours.to), unpack(ours.set))
end
if ours.unset and #ours.unset > 0 then redis.call('HDEL', job_key(base, kept, id, ours.to), unpack(ours.unset)) end
if ours.enters then enter(ours.to, ours.where) end
if ours.action == 'renew' then redis.call('SET', job .. ':lock', ours.token, 'PX', ours.ms) end

local answer = false
if ours.script then
  if fields then complete_arguments() end
  answer = package_script()
  if type(answer) == 'number' and answer < 0 or (ours.action == 'keep' and answer ~= 1) then
    if ours.action == 'keep' then forget() end
    return {'refused', answer}
  end
end
if (ours.is_new or ours.action == 'package') and ours.set and #ours.set > 0 and redis.call('EXISTS', job) == 1 then
  redis.call('HSET', job, unpack(ours.set))
end
redis.call('XADD', ours.stream, 'MAXLEN', '~', 10000, '*', 'queue', ours.queue, 'id', id)
if ours.to == '' then return {'done', '', answer} end
local lock = ours.to == 'active' and lock_of(base, id) or ''
local rev = revision(job_key(base, kept, id, ours.to), lock)
return {'done', rev or '', answer}
