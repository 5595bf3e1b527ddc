-- One JSON array about some ids of a queue, without data, return value and stack trace.
-- ARGV: base, kept, group of places or 'search' or 'search-whole', effort to stop after, packed ids,
-- pattern of the destination in the data or ''.
-- Answer: number of the ids that were read, ids of the plain rows or false for all of these ids, columns
-- of the plain rows or false, other rows or false. A column with one value in all rows is that value.
-- Columns: place, score, revision, name, timestamp, priority, attempts, attempts allowed, reason, time of
-- the failure, destination.
-- A row: id, place, score, revision, name, timestamp, priority, attempts, attempts allowed, reason,
-- lock, its ms, more, destination.
local base, kept, group, limit = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local ids, destination = cmsgpack.unpack(ARGV[5]), ARGV[6]

-- Asked once, not for each job: most queues have none of these.
local has_paused, has_wait = false, true -- BullMQ 5 moves the jobs of a paused queue to `paused`
local waiting_sets = {}
if group == 'waiting' then
  has_paused = redis.call('EXISTS', base .. 'paused') == 1
  has_wait = redis.call('EXISTS', base .. 'wait') == 1
  for _, place in ipairs({'delayed', 'prioritized', 'waiting-children'}) do
    if redis.call('EXISTS', base .. place) == 1 then waiting_sets[#waiting_sets + 1] = place end
  end
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
  for _, place in ipairs(waiting_sets) do
    local score = score_in(base .. place, id)
    if score then return place, score end
  end
  if has_paused and (not has_wait or index_in(base .. 'paused', id)) then return 'paused', false end
  return 'wait', false
end

-- Attempts that the options allow and the delay between them: "5 exponential 1000 0.5", or the name of a
-- strategy of their program: "5 custom:mine"; false if there is only one attempt.
local function attempts_of(said)
  if type(said.attempts) ~= 'number' or said.attempts <= 1 then return false end
  local delay = said.backoff
  if type(delay) == 'number' then delay = {type = 'fixed', delay = delay} end
  if type(delay) ~= 'table' then return said.attempts .. '' end
  local kind = delay.type
  if kind ~= 'exponential' and kind ~= 'fixed' then
    return said.attempts .. ' custom:' .. (type(kind) == 'string' and string.match(kind, '^[%w_-]+$') or '?')
  end
  if type(delay.delay) ~= 'number' then return said.attempts .. '' end
  local jitter = type(delay.jitter) == 'number' and delay.jitter or 0
  return said.attempts .. ' ' .. kind .. ' ' .. delay.delay .. ' ' .. jitter
end

-- The destination that the start of the data names; '' if it names none.
local function destination_of(at)
  if destination == '' or not at.data then return '' end
  return string.sub(string.match(string.sub(at.data, 1, 16384), destination) or '', 1, 300)
end

local NOTED = {'stc', 'parentKey', 'rjk', 'deid'} -- fields that few jobs have

-- The row of a job, and the time of its failure if it is a plain one: nil if it has something unusual.
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
  local more, some = {}, place == 'active' or KEPT[place] or not place
  local function note(name)
    if at[name] then more[name] = string.sub(at[name], 1, 500) end
  end
  for n = 1, #NOTED do
    if at[NOTED[n]] then note(NOTED[n]) some = true end
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
    more.was = redis.call('HGET', kept .. 'place', id)
  elseif is_needed_by_parent(base, id, at) then
    more.needed = true
  elseif is_next_run(base, id, at) then
    more.next_run = true
  end
  if also then more.also = also some = true end
  if not place and is_grouped(at) then more.grouped = true end
  if place == 'delayed' and string.find(score, 'n', 1, true) then some = true end -- inf or nan
  if some then
    note('pb') note('processedOn') note('finishedOn')
  end
  return {
    id, place, score, rev, string.sub(at.name or '', 1, 500), at.timestamp or false,
    at.priority or false, at.attemptsMade or at.atm or false, most,
    place ~= 'completed' and string.sub(at.failedReason or '', 1, 2000) or '',
    lock, left, some and more, destination_of(at)
  }, not some and (place == 'failed' and at.finishedOn or '') or nil
end

local count, plain, plain_ids, columns, others = 0, 0, {}, {}, {}
for c = 1, 11 do columns[c] = {} end
for _, id in ipairs(ids) do
  local place, score, also, row, failed_at
  if string.sub(group, 1, 6) ~= 'search' then
    place, score = place_in_group(id)
    if place then row, failed_at = describe(id, place, score) end
  end
  if not row or not (row[4] or row[5]) then -- it is not there, or its hash is not
    local found = places_of(id, group == 'search-whole')
    place, score = false, false
    if found[1] then place, score = found[1][1], found[1][2] end
    if found[2] then
      local words = {}
      for n = 2, #found do words[n - 1] = found[n][1] end
      also = table.concat(words, ' ')
    end
    row, failed_at = describe(id, place, score, also)
  end
  count = count + 1
  if failed_at then
    plain = plain + 1
    plain_ids[plain] = id
    for c = 1, 9 do columns[c][plain] = row[c + 1] end
    columns[10][plain], columns[11][plain] = failed_at, row[14]
  else
    others[#others + 1] = row
  end
  if effort > limit then break end
end
for c, column in ipairs(columns) do
  local first, n = column[1], 2
  while n <= plain and column[n] == first do n = n + 1 end
  if n > plain then columns[c] = first end
end
return cjson.encode({
  count, plain < count and plain > 0 and plain_ids, plain > 0 and columns, plain < count and others
})
