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
  for i = 1, count do -- in the same table: a new one would grow step by step
    local name = names[i]
    flat[2 * i - 1] = name
    flat[2 * i] = fields[name]
  end
  flat[2 * count + 1] = lock
  return redis.sha1hex(table.concat(flat, '\0')), fields
end

local function lock_of(base, id)
  local lock = redis.pcall('GET', base .. id .. ':lock')
  return type(lock) == 'string' and lock or false
end

local function score_in(key, id)
  local score = redis.pcall('ZSCORE', key, id)
  return type(score) == 'string' and score or false
end

-- The index of an id in a list from its left end; false without one. Both ends are searched first;
-- the rest of a long list only if asked for the `whole`: that takes milliseconds in a long one.
local function index_in(key, id, whole)
  local found = redis.pcall('LPOS', key, id, 'MAXLEN', NEAR)
  if not found then found = redis.pcall('LPOS', key, id, 'RANK', -1, 'MAXLEN', NEAR) end
  if not found and whole then found = redis.pcall('LPOS', key, id) end
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

-- True if the job at a distance from the right end of a list is older than a job of this time and
-- id; false if it is newer, or there is none.
local function is_older(base, list, distance, stamp, id)
  local other = redis.call('LINDEX', base .. list, -1 - distance)
  if not other then return false end
  local theirs = tonumber(redis.pcall('HGET', base .. other, 'timestamp')) or 0
  if theirs ~= stamp then return theirs < stamp end
  return (tonumber(other) or 0) < (tonumber(id) or 0)
end

-- The position of a job in a list: the number of jobs ahead; with = before it if its neighbours are
-- not in the order of age, so that only the number says where it was. nil: it is not there.
local function position_in(base, list, id, stamp)
  local index = index_in(base .. list, id, true)
  if not index then return nil end
  local ahead = redis.call('LLEN', base .. list) - 1 - index
  local ordered = (ahead == 0 or is_older(base, list, ahead - 1, stamp, id))
    and not is_older(base, list, ahead + 1, stamp, id)
  return (ordered and '' or '=') .. ahead
end
