-- One JSON array of rows for some ids of a queue, without data, return value and stack trace.
-- ARGV: base, kept, group of places or 'search' or 'search-whole', effort to stop after, ids.
-- A row: id, place, score, revision, name, timestamp, priority, attempts, attempts allowed, reason,
-- lock, its ms, more.
local base, kept, group, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

local has_paused, has_wait = false, true -- BullMQ 5 moves the jobs of a paused queue to `paused`
if group == 'waiting' then
  has_paused = redis.call('EXISTS', base .. 'paused') == 1
  has_wait = redis.call('EXISTS', base .. 'wait') == 1
end

local function places_of(id, whole)
  local found = {}
  for _, place in ipairs(SETS) do
    local score = score_in(base .. place, id)
    if score then found[#found + 1] = {place, score} end
  end
  for _, place in ipairs({'active', 'wait', 'paused'}) do
    if index_in(base .. place, id, whole) then found[#found + 1] = {place, false} end
  end
  for _, place in ipairs({'held', 'trash'}) do
    local score = score_in(kept .. place, id)
    if score then found[#found + 1] = {place, score} end
  end
  if #found == 0 and not whole and redis.call('EXISTS', base .. id) == 1 then
    local length = redis.pcall('LLEN', base .. 'wait')
    if type(length) == 'number' and length > 2 * NEAR then found[1] = {'wait', false} end
  end
  return found
end

-- The place of a job that was listed in a group of places; nil: search it.
local function place_in_group(id)
  if group == 'active' then return 'active', false end
  if group ~= 'waiting' then
    local score = score_in((KEPT[group] and kept or base) .. group, id)
    if score then return group, score end
    return nil
  end
  for _, place in ipairs({'delayed', 'prioritized', 'waiting-children'}) do
    local score = score_in(base .. place, id)
    if score then return place, score end
  end
  if has_paused and (not has_wait or index_in(base .. 'paused', id)) then return 'paused', false end
  return 'wait', false
end

-- Attempts that the options allow and the delay between them: "5 exponential 1000 0.5"; false if
-- there is only one attempt.
local function attempts_of(said)
  if type(said.attempts) ~= 'number' or said.attempts <= 1 then return false end
  local delay = said.backoff
  if type(delay) == 'number' then delay = {type = 'fixed', delay = delay} end
  if type(delay) ~= 'table' or type(delay.delay) ~= 'number' then return said.attempts .. '' end
  local kind = delay.type == 'exponential' and 'exponential' or 'fixed'
  local jitter = type(delay.jitter) == 'number' and delay.jitter or 0
  return said.attempts .. ' ' .. kind .. ' ' .. delay.delay .. ' ' .. jitter
end

local function describe(id, place, score, also)
  local lock, left = false, false
  if place == 'active' then
    lock = lock_of(base, id)
    left = lock and redis.call('PTTL', base .. id .. ':lock')
  end
  local rev, at, err = revision(job_key(base, kept, id, place), lock or '')
  if not rev then
    return {id, place, score, false, err or false, also or false}
  end
  local more, some = {}, false
  for _, name in ipairs({'pb', 'stc', 'ats', 'processedOn', 'finishedOn', 'parentKey', 'rjk', 'deid'}) do
    if at[name] then more[name] = string.sub(at[name], 1, 500) some = true end
  end
  local opts, most = at.opts, false
  if opts and #opts > 2 then
    local ok, said = pcall(cjson.decode, opts)
    if not ok or type(said) ~= 'table' then
      more.broken = true some = true
    else
      most = attempts_of(said)
    end
  end
  if KEPT[place] then
    more.was = redis.call('HGET', kept .. 'place', id) some = true
  elseif is_needed_by_parent(base, id, at) then
    more.needed = true
  elseif is_next_run(base, id, at) then
    more.next_run = true
  end
  if also then more.also = also some = true end
  return {
    id, place, score, rev, string.sub(at.name or '', 1, 500), at.timestamp or false,
    at.priority or false, at.atm or false, most, string.sub(at.failedReason or '', 1, 2000),
    lock, left, some and more
  }
end

local rows = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  local place, score, also
  if string.sub(group, 1, 6) ~= 'search' then
    place, score = place_in_group(id)
    if place and redis.call('EXISTS', job_key(base, kept, id, place)) == 0 then place = nil end
  end
  if not place then
    local found = places_of(id, group == 'search-whole')
    place, score = false, false
    if found[1] then place, score = found[1][1], found[1][2] end
    if found[2] then
      local words = {}
      for n = 2, #found do words[n - 1] = found[n][1] end
      also = table.concat(words, ' ')
    end
  end
  rows[#rows + 1] = describe(id, place, score, also)
  if effort > limit then break end
end
return #rows == 0 and '[]' or cjson.encode(rows)
