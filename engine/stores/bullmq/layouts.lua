-- What the versions of BullMQ do differently, and how a script of our version changes a queue of
-- another one: `open_queue` gives its lists the form of version 6, `close_queues` their own again.

-- One row for each major version; a queue of a version without a row is not changed.
--   pauses_list: a pause renames `wait` to `paused`, and its end renames it back over `wait`
--   is_worked: our worker may run its jobs
--   is_closed: no job is put into its lists by us
local LAYOUTS = {
  ['3'] = {pauses_list = true, is_closed = true},
  ['4'] = {pauses_list = true, is_closed = true},
  ['5'] = {pauses_list = true, is_worked = true},
  ['6'] = {is_worked = true}
}
local UNNAMED = '5' -- without a version and a trace of an older one; version 6 ends its pause as well

-- True if a job at the end of one of the lists and sets was run by version 4 or older, which counts
-- attempts in another field.
local function is_of_old_worker(base)
  for _, place in ipairs({'failed', 'completed', 'active', 'wait', 'paused', 'delayed', 'prioritized'}) do
    local ids = redis.pcall(LISTS[place] and 'LRANGE' or 'ZRANGE', base .. place, -1, -1)
    local said = ids[1] and redis.pcall('HMGET', base .. ids[1], 'attemptsMade', 'atm', 'ats')
    if said and said[1] and not said[2] and not said[3] then return true end
  end
  return false
end

local majors = {}

-- The major version of a queue, or the text that it has instead, and its row, nil without one. With
-- `named`, a queue that names no version is not searched for traces.
local function layout_of(base, named)
  local major = majors[base]
  if not major then
    local version = redis.pcall('HGET', base .. 'meta', 'version')
    major = type(version) == 'string' and (string.match(version, '^bullmq:(%d+)%.') or version) or UNNAMED
    if version == false and not named and (redis.call('EXISTS', base .. 'priority') == 1 or is_of_old_worker(base)) then
      major = redis.call('EXISTS', base .. 'prioritized') == 1 and '4' or '3'
    end
    majors[base] = major
  end
  return major, LAYOUTS[major]
end

-- Why no job may be put into the lists of a queue; nil if one may.
local function why_closed(base, named)
  local major, layout = layout_of(base, named)
  if not layout or layout.is_closed then
    return 'its queue is of BullMQ ' .. major .. ', which is not supported'
  end
end

-- Why our worker takes no job of a queue; nil if it may.
local function why_not_worked(base, named)
  local major, layout = layout_of(base, named)
  if not layout or not layout.is_worked then
    return 'its queue is of BullMQ ' .. major .. ', whose jobs our worker does not run'
  end
end

-- Put the jobs of a paused list before those that wait, as version 6 does.
local function join_lists(base)
  local wait, paused = base .. 'wait', base .. 'paused'
  if redis.call('EXISTS', paused) == 0 then return end
  if redis.call('LLEN', paused) <= redis.call('LLEN', wait) then
    while redis.call('LMOVE', paused, wait, 'LEFT', 'RIGHT') do end
  else
    while redis.call('LMOVE', wait, paused, 'RIGHT', 'LEFT') do end
    redis.call('RENAME', paused, wait)
  end
end

local open_queues = {} -- by base: true if its jobs that wait are in `paused` between scripts

-- Let the jobs that wait be in `wait` until `close_queues`.
local function open_queue(base, named)
  if open_queues[base] ~= nil then return end
  local _, layout = layout_of(base, named)
  open_queues[base] = redis.pcall('HEXISTS', base .. 'meta', 'paused') == 1
    and (layout and layout.pauses_list or redis.call('EXISTS', base .. 'paused') == 1)
  if open_queues[base] then join_lists(base) end
end

-- Open the queues of the ancestors of a job too: its end may move them.
local function open_parents(key, named)
  for _ = 1, 20 do
    local ok, parent = pcall(cjson.decode, redis.pcall('HGET', key, 'parent') or '')
    if not ok or type(parent) ~= 'table' or not parent.queueKey or not parent.id then return end
    open_queue(parent.queueKey .. ':', named)
    key = parent.queueKey .. ':' .. parent.id
  end
end

local function close_queues()
  for base, is_list in pairs(open_queues) do
    if is_list and redis.call('EXISTS', base .. 'wait') == 1 then
      redis.call('RENAME', base .. 'wait', base .. 'paused')
    end
  end
  open_queues = {}
end

-- Run BullMQ's script on an open queue.
local function run_package(base)
  local ok, answer = pcall(package_script)
  close_queues()
  if not ok then error(answer, 0) end
  return answer
end
