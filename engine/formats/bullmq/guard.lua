-- The start of each change: compare revision, lock and place of a job with what was scanned.
-- ARGV[1] is a packed table of what is common to all changes; `changes` in it has a table for each job
-- with the rest. In the arguments of BullMQ's script, true is the job's id.
local common = cmsgpack.unpack(ARGV[1])
local base = common.prefix .. ':' .. common.queue .. ':'
local kept, stream = 'spooldeck:' .. base, 'spooldeck:' .. common.prefix .. ':changes'
local shared = {__index = common}

local ours, id, job, copy
local here, position
local fields -- nil if only the claim was compared
local is_worker -- true if the job is claimed by our worker, which works no queue of an old version
local layout -- the row of the queue's version
local relocate -- our part of the change, if there is one

local own_keys = {} -- keys of BullMQ's script that are of the job: number and end of the name
for n, name in ipairs(common.keys) do
  if string.sub(name, 1, 4) == '{id}' then own_keys[n] = string.sub(name, 5) else KEYS[n] = base .. name end
end

-- Begin with the change of one job: give BullMQ's script its keys and arguments.
local function begin(change)
  ours = setmetatable(change, shared)
  id, here, position, fields = ours.id, nil, nil, nil
  if ours.is_numbered then -- the number that BullMQ's script gives next; used ones are passed over
    local function next_id() return string.format('%.0f', (redis.call('GET', base .. 'id') or 0) + 1) end
    id = next_id()
    while redis.call('EXISTS', base .. id, kept .. 'job:' .. id) > 0 do
      redis.call('INCR', base .. 'id')
      id = next_id()
    end
  end
  job, copy = base .. id, kept .. 'job:' .. id
  is_worker = string.sub(ours.lock or '', 1, 10) == 'spooldeck:'
  open_queue(base, is_worker)
  open_parents(job, is_worker)
  layout = open_queues[base].layout
  for n, ending in pairs(own_keys) do KEYS[n] = job .. ending end
  local arguments = ours.arguments
  for n = #arguments + 1, #ARGV do ARGV[n] = nil end
  for n = 1, #arguments do ARGV[n] = arguments[n] == true and id or arguments[n] end
end

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

-- Why a job is not put back: it is in a place or a group, or a worker has it; nil if it is in none. Then `ours` says
-- where it belongs by its fields.
local function why_not_orphan()
  fields = select(2, revision(job, ''))
  if not fields or is_grouped(fields) then return 'gone' end
  for _, set in ipairs(SETS) do
    if score_in(base .. set, id) then return 'gone' end
  end
  for _, list in ipairs({'wait', 'paused', 'active'}) do
    if index_in(base .. list, id, true) then return 'gone' end
  end
  if lock_of(base, id) then return 'locked' end
  local finished, delay = tonumber(fields.finishedOn), tonumber(fields.delay) or 0
  local due, children = (tonumber(fields.timestamp) or 0) + delay, redis.pcall('SCARD', job .. ':dependencies')
  ours.priority = tonumber(fields.priority) or 0
  if finished then
    ours.to, ours.where = fields.returnvalue and 'completed' or 'failed', fields.finishedOn
  elseif type(children) == 'number' and children > 0 then
    ours.to, ours.where = 'waiting-children', ours.now
  elseif delay > 0 and due > ours.now then
    ours.to, ours.due = 'delayed', due
  elseif ours.priority > 0 then
    ours.to = 'prioritized'
  else
    ours.to, ours.where = 'wait', '0' -- by age
  end
end

-- Why the job cannot be changed; nil if it can. And what is wrong, if the reason has no text of its own.
local function refusal()
  if ours.image and #ours.image > 4000 then return 'too-many-fields' end
  if ours.action ~= 'renew' and not (KEPT[ours.place] and (KEPT[ours.to] or ours.to == '')) then -- not only ours
    local why = why_closed(base, is_worker)
    if why then return 'closed', why end
  end
  if ours.action == 'adopt' then return why_not_orphan() end
  if ours.is_new then
    if redis.call('EXISTS', job, copy) > 0 then return 'exists' end
    return nil
  end
  local lock = lock_of(base, id) or ''
  if lock ~= '' and ours.rev == ours.lock then -- our own claim: other changes do not matter
    here = lock == ours.lock and index_in(base .. 'active', id, true) and 'active'
    return not here and 'locked' or nil
  end
  local rev
  rev, fields = revision(job_key(base, kept, id, ours.place), ours.place == 'active' and lock or '')
  if rev ~= ours.rev then return 'gone' end
  if not KEPT[ours.place] and lock ~= ours.lock then return 'locked' end
  here, position = present_place()
  if not here then return 'gone' end
  if ours.leaves and is_needed_by_parent(base, id, fields) then return 'needed' end
  if ours.leaves and is_next_run(base, id, fields) then return 'next-run' end
  if ours.data_limit and #(fields.data or '') > ours.data_limit then return 'long-data' end
  if ours.returns and redis.call('EXISTS', job) == 1 then return 'taken' end
  for name, sha in pairs(ours.unchanged or {}) do
    if not fields[name] or redis.sha1hex(fields[name]) ~= sha then return 'gone' end
  end
  return nil
end
