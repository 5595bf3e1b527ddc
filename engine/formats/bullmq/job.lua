-- Jobs whole: of each its revision, position, hash as a flat list, what needs it, and whether a value
-- was cut; empty if it is not in this place. Ends early after some effort.
-- ARGV: base, kept, effort, bytes after which a value is left empty, id and place of each.
-- The position is a score, or that of `position_in`.
local base, kept, limit, longest = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])

local function whole(id, place)
  local position
  if place == 'wait' and index_in(base .. 'paused', id, true) then place = 'paused' end
  local key = job_key(base, kept, id, place)
  if LISTS[place] then
    position = position_in(base, place, id, tonumber(redis.pcall('HGET', key, 'timestamp')) or 0)
  else
    position = score_in((KEPT[place] and kept or base) .. place, id)
  end
  if not position then return {} end
  local lock = place == 'active' and lock_of(base, id) or ''
  local rev, fields, flat = revision(key, lock or '')
  if not rev then return {} end
  local need = ''
  if not KEPT[place] then
    need = is_needed_by_parent(base, id, fields) and 'needed' or is_next_run(base, id, fields) and 'next_run' or ''
  end
  local is_cut = false
  for i = 2, #flat, 2 do
    if #flat[i] > longest then flat[i], is_cut = '', true end
  end
  local was = KEPT[place] and redis.call('HGET', kept .. 'place', id) or (place .. ' ' .. position)
  return {rev, was or '', flat, need, is_cut and 1 or 0, position}
end

local jobs = {}
for i = 5, #ARGV, 2 do
  jobs[#jobs + 1] = whole(ARGV[i], ARGV[i + 1])
  if effort > limit then break end
end
return jobs
