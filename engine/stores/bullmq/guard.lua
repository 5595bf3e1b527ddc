-- The start of each change: compare revision, lock and place of a job with what was scanned.
-- The last argument is a packed table; the arguments of BullMQ's script keep their numbers.
local ours = cmsgpack.unpack(table.remove(ARGV)) -- so that the script sees only its own
local base, id = ours.prefix .. ':' .. ours.queue .. ':', ours.id
local kept, stream = 'spooldeck:' .. base, 'spooldeck:' .. ours.prefix .. ':changes'
if ours.is_numbered then -- the number that BullMQ's script gives next; used ones are passed over
  local function next_id() return string.format('%.0f', (redis.call('GET', base .. 'id') or 0) + 1) end
  id = next_id()
  while redis.call('EXISTS', base .. id, kept .. 'job:' .. id) > 0 do
    redis.call('INCR', base .. 'id')
    id = next_id()
  end
end
local job, copy = base .. id, kept .. 'job:' .. id

local here, position
local fields -- nil if only the claim was compared

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

-- Why the job cannot be changed; nil if it can.
local function refusal()
  if ours.image and #ours.image > 4000 then return 'too-many-fields' end
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
  if ours.returns and redis.call('EXISTS', job) == 1 then return 'taken' end
  for name, sha in pairs(ours.unchanged or {}) do
    if not fields[name] or redis.sha1hex(fields[name]) ~= sha then return 'gone' end
  end
  return nil
end

local why = refusal()
if why then return {why} end
