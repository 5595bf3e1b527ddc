-- Shared by all scripts of this folder. A queue's keys begin with `base` (bull:QUEUE:), those of
-- its held and trashed jobs with `kept` (spooldeck:bull:QUEUE:).

local KEPT = {held = true, trash = true}
local LISTS = {wait = true, paused = true, active = true}
local SETS = {'completed', 'failed', 'delayed', 'prioritized', 'waiting-children'}
local NEAR = 1000 -- entries at each end of a long list that are searched

-- The hash of a job: in its queue, or our copy.
local function job_key(base, kept, id, place)
  if KEPT[place] then return kept .. 'job:' .. id end
  return base .. id
end

-- SHA-1 of the sorted fields of a hash and of its lock; and the fields by name. Without a hash:
-- nil, nil and the error of a key of another type.
local function revision(key, lock)
  local flat = redis.pcall('HGETALL', key)
  if flat.err then return nil, nil, flat.err end
  if #flat == 0 then return nil end
  local names, fields, count = {}, {}, 0
  for i = 1, #flat, 2 do
    count = count + 1
    names[count] = flat[i]
    fields[flat[i]] = flat[i + 1]
  end
  table.sort(names)
  local parts = {}
  for i = 1, count do
    parts[2 * i - 1] = names[i]
    parts[2 * i] = fields[names[i]]
  end
  parts[2 * count + 1] = lock
  return redis.sha1hex(table.concat(parts, '\0')), fields
end

local function lock_of(base, id)
  local lock = redis.pcall('GET', base .. id .. ':lock')
  return type(lock) == 'string' and lock or false
end

local function score_in(key, id)
  local score = redis.pcall('ZSCORE', key, id)
  return type(score) == 'string' and score or false
end

-- The index of an id in a list from its left end; false without one. Of a long list only both ends
-- are searched, unless `whole`.
local function index_in(key, id, whole)
  local found
  if whole then
    found = redis.pcall('LPOS', key, id, 'RANK', -1)
  else
    found = redis.pcall('LPOS', key, id, 'MAXLEN', NEAR)
    if not found then found = redis.pcall('LPOS', key, id, 'RANK', -1, 'MAXLEN', NEAR) end
  end
  return type(found) == 'number' and found or false
end

-- True if a job waits for its parent, which waits for it.
local function is_needed_by_parent(base, id, fields)
  local parent = fields.parentKey
  if not parent or parent == '' then return false end
  return redis.pcall('SISMEMBER', parent .. ':dependencies', base .. id) == 1
end

-- True if a job is the next run of a job scheduler.
local function is_next_run(base, id, fields)
  if not fields.rjk then return false end
  local at = score_in(base .. 'repeat', fields.rjk)
  return at and id == 'repeat:' .. fields.rjk .. ':' .. at
end
