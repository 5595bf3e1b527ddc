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

-- What the script has cost so far: bytes hashed and list entries walked, each about 6 ns.
local effort = 0

-- BullMQ's fields of a job in the order in which they are hashed; others follow, sorted.
local FIELDS = {
  'name', 'data', 'opts', 'timestamp', 'delay', 'priority', 'atm', 'ats', 'processedOn', 'finishedOn',
  'failedReason', 'stacktrace', 'returnvalue', 'pb', 'stc', 'progress', 'parentKey', 'parent', 'rjk', 'deid'
}

-- True if a job belongs to a group of BullMQ Pro, which has lists of its own.
local function is_grouped(fields)
  return fields.gid ~= nil or string.find(fields.opts or '', '"group":{"id":', 1, true) ~= nil
end

-- SHA-1 of the fields of a hash and of its lock; the fields by name; and as a flat list. Without a
-- hash: nil, nil and the error of a key of another type.
local function revision(key, lock)
  local flat = redis.pcall('HGETALL', key)
  if flat.err then return nil, nil, flat.err end
  if #flat == 0 then return nil end
  local fields, left = {}, #flat / 2
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  local texts, count = {}, 0
  for i = 1, #FIELDS do
    local name = FIELDS[i]
    local value = fields[name]
    if value then
      texts[count + 1], texts[count + 2] = name, value
      count, left = count + 2, left - 1
    end
  end
  if left > 0 then
    local known, others = {}, {}
    for _, name in ipairs(FIELDS) do known[name] = true end
    for name in pairs(fields) do
      if not known[name] then others[#others + 1] = name end
    end
    table.sort(others)
    for _, name in ipairs(others) do
      texts[count + 1], texts[count + 2] = name, fields[name]
      count = count + 2
    end
  end
  texts[count + 1] = lock
  local text = table.concat(texts, '\0')
  effort = effort + #text
  return redis.sha1hex(text), fields, flat
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
  if not found and whole then
    found = redis.pcall('LPOS', key, id)
    local length = redis.pcall('LLEN', key)
    effort = effort + (type(length) == 'number' and length or 0)
  end
  return type(found) == 'number' and found or false
end

-- True if a job waits for its parent, which waits for it.
local function is_needed_by_parent(base, id, fields)
  local parent = fields.parentKey
  if not parent or parent == '' then return false end
  return redis.pcall('SISMEMBER', parent .. ':dependencies', base .. id) == 1
end

-- True if a job is the next run of a schedule. Its id ends with the time of that run; before it is the
-- schedule's name, or its MD5 up to version 4.
local function is_next_run(base, id, fields)
  if not fields.rjk or string.sub(id, 1, 7) ~= 'repeat:' then return false end
  local at = score_in(base .. 'repeat', fields.rjk)
  return at and string.sub(id, -#at - 1) == ':' .. at
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
