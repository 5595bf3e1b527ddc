-- One job whole: revision, position, and its hash as a flat list; empty if it is not in this place.
-- ARGV: base, kept, id, place. The position is a score, or that of `position_in`.
local base, kept, id, place = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
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
