-- What the versions of BullMQ do differently, and how a script of our version changes a queue of
-- another one: `open_queue` gives its lists the form of version 6, `close_queues` their own again.

-- One row for each major version; a queue of a version without a row is not changed.
--   pauses_list: a pause renames `wait` to `paused`, and its end renames it back over `wait`
--   sorts_list: jobs with a priority are in `wait`, at its front in the order of the set `priority`
--   marks_list: an entry 0:MS of `wait` wakes an idle worker, not the set `marker`
--   attempts: the field of a job that counts its attempts, which the worker does when it starts one
--   is_worked: our worker may run its jobs
--   has_repeatables: its worker advances repeatable jobs, which have no scheduler
--   keeps_template: a scheduler keeps the data of its first run, and a run the id of the next one
local LAYOUTS = {
  ['3'] = {pauses_list = true, marks_list = true, attempts = 'attemptsMade', sorts_list = true},
  ['4'] = {pauses_list = true, marks_list = true, attempts = 'attemptsMade'},
  ['5'] = {pauses_list = true, is_worked = true, has_repeatables = true, keeps_template = true},
  ['6'] = {is_worked = true}
}
local UNNAMED = '5' -- without a version and a trace of an older one; version 6 ends its pause as well

-- The versions whose worker has run jobs at the ends of the lists and sets of a queue: 'new' if one counts
-- its attempts as version 5 does, else 'old' if one counts them in the field before; nil: none was run.
local function age_of_worker(base)
  local age
  for _, place in ipairs({'failed', 'completed', 'active', 'wait', 'paused', 'delayed', 'prioritized'}) do
    for _, id in ipairs({unpack(redis.pcall(LISTS[place] and 'LRANGE' or 'ZRANGE', base .. place, -3, -1))}) do
      local said = redis.pcall('HMGET', base .. id, 'attemptsMade', 'atm', 'ats')
      if said[2] or said[3] then return 'new' end
      if said[1] then age = 'old' end
    end
  end
  return age
end

local majors = {}

-- The major version of a queue, or the text that it has instead, and its row, nil without one. With
-- `named`, a queue that names no version is not searched for traces.
local function layout_of(base, named)
  local major = majors[base]
  if not major then
    local version = redis.pcall('HGET', base .. 'meta', 'version')
    major = type(version) == 'string' and (string.match(version, '^bullmq:(%d+)%.') or version) or UNNAMED
    if version == false and not named then
      local age = age_of_worker(base)
      if age == 'old' or not age and redis.call('EXISTS', base .. 'priority') == 1 then
        major = redis.call('EXISTS', base .. 'prioritized') == 1 and '4' or '3'
      end
    end
    -- The program before BullMQ, which has the lists of version 3, but another mark of its pause.
    if version == false and redis.call('EXISTS', base .. 'meta-paused') == 1 then major = 'Bull' end
    majors[base] = major
  end
  return major, LAYOUTS[major]
end

local function named_version(major)
  return (string.match(major, '^%d+$') and 'BullMQ ' or '') .. major
end

-- Why no job of a queue may be changed; nil if one may.
local function why_closed(base, named)
  local major, layout = layout_of(base, named)
  if not layout then
    return 'its queue is of ' .. named_version(major) .. ', which is not supported'
  end
end

-- Why our worker takes no job of a queue; nil if it may.
local function why_not_worked(base, named)
  local major, layout = layout_of(base, named)
  if not layout or not layout.is_worked then
    return 'its queue is of ' .. named_version(major) .. ', whose jobs our worker does not run'
  end
end

-- Put the jobs of a paused list before those that wait, as version 6 does.
local function join_lists(base)
  local wait, paused = base .. 'wait', base .. 'paused'
  if redis.call('EXISTS', paused) == 0 then return end
  if redis.call('LLEN', paused) <= redis.call('LLEN', wait) then
    while redis.call('LMOVE', paused, wait, 'LEFT', 'RIGHT') do end
  else
    for _ = 1, redis.call('LLEN', wait) do redis.call('LMOVE', wait, paused, 'RIGHT', 'LEFT') end
    redis.call('RENAME', paused, wait)
  end
end

-- Put a job of version 3 before those of a larger priority and those without one.
local function sort_into_list(base, id, priority)
  redis.call('ZADD', base .. 'priority', priority, id)
  local ahead = redis.call('ZCOUNT', base .. 'priority', 0, priority) - 1
  local last = ahead > 0 and redis.call('LINDEX', base .. 'wait', -ahead)
  if last then
    redis.call('LINSERT', base .. 'wait', 'BEFORE', last, id)
  else
    redis.call('RPUSH', base .. 'wait', id)
  end
end

local open_queues = {} -- by base: the row of its version, and true if it is paused

-- Let the jobs that wait be in `wait` until `close_queues`.
local function open_queue(base, named)
  if open_queues[base] then return end
  local _, layout = layout_of(base, named)
  local is_paused = redis.pcall('HEXISTS', base .. 'meta', 'paused') == 1
  local is_list = is_paused and (layout and layout.pauses_list or redis.call('EXISTS', base .. 'paused') == 1)
  open_queues[base] = {layout = layout or {}, is_paused = is_paused, is_list = is_list}
  if is_list then join_lists(base) end
end

-- Open the queues of the ancestors of a job too: its end may move them.
local function open_parents(key, named)
  for _ = 1, 20 do
    local text = redis.pcall('HGET', key, 'parent')
    if type(text) ~= 'string' then return end
    local ok, parent = pcall(cjson.decode, text)
    if not ok or type(parent) ~= 'table' or not parent.queueKey or not parent.id then return end
    open_queue(parent.queueKey .. ':', named)
    key = parent.queueKey .. ':' .. parent.id
  end
end

-- Give the lists of a queue the form that its version reads.
local function close_queue(base, layout, is_paused, is_list)
  if layout.sorts_list then
    for _, id in ipairs(redis.call('ZRANGE', base .. 'prioritized', 0, -1)) do
      sort_into_list(base, id, tonumber(redis.call('HGET', base .. id, 'priority')) or 0)
    end
    redis.call('DEL', base .. 'prioritized', base .. 'pc')
  end
  if layout.marks_list then
    redis.call('DEL', base .. 'marker')
    if not is_paused and redis.call('EXISTS', base .. 'wait') == 0 then
      local due = redis.call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')[2]
      local mark = redis.call('EXISTS', base .. 'prioritized') == 1 and 0 or due and tonumber(due) / 0x1000
      if mark then redis.call('LPUSH', base .. 'wait', '0:' .. string.format('%.0f', mark)) end
    end
  end
  if is_list and redis.call('EXISTS', base .. 'wait') == 1 then
    redis.call('RENAME', base .. 'wait', base .. 'paused')
  end
end

local function close_queues()
  for base, found in pairs(open_queues) do close_queue(base, found.layout, found.is_paused, found.is_list) end
  open_queues = {}
end

-- Run BullMQ's script on an open queue.
local function run_package(base)
  local ok, answer = pcall(package_script)
  close_queues()
  if not ok then error(answer, 0) end
  return answer
end
