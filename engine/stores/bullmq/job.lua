-- Jobs whole: of each its revision, position, and hash as a flat list; empty if it is not in this
-- place. Ends early after some bytes. ARGV: base, kept, bytes, id and place of each.
-- The position is a score, or that of `position_in`.
local base, kept, limit = ARGV[1], ARGV[2], tonumber(ARGV[3])

local function whole(id, place)
  local position
  if place == 'wait' and index_in(base .. 'paused', id, true) then place = 'paused' end
  if LISTS[place] then
    position = position_in(base, place, id, tonumber(redis.pcall('HGET', base .. id, 'timestamp')) or 0)
  else
    position = score_in((KEPT[place] and kept or base) .. place, id)
  end
  local lock = place == 'active' and lock_of(base, id) or ''
  local key = job_key(base, kept, id, place)
  local rev = revision(key, lock or '')
  if not rev or not position then return {} end
  local was = KEPT[place] and redis.call('HGET', kept .. 'place', id) or (place .. ' ' .. position)
  return {rev, was or '', redis.call('HGETALL', key)}
end

local jobs, size = {}, 0
for i = 4, #ARGV, 2 do
  local job = whole(ARGV[i], ARGV[i + 1])
  jobs[#jobs + 1] = job
  for _, value in ipairs(job[3] or {}) do size = size + #value end
  if size > limit then break end
end
return jobs
