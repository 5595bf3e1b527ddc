-- What is stored about a schedule: its time in the set `repeat`, its hash (none of versions 3 and 4), and
-- the job of its next run.

-- Where the job of a run is: 'delayed', 'begun' if it waits or runs, 'ended', or '' without one.
local function place_of_run(base, id)
  if redis.pcall('EXISTS', base .. id) ~= 1 then return '' end
  if score_in(base .. 'delayed', id) then return 'delayed' end
  return redis.pcall('HEXISTS', base .. id, 'finishedOn') == 1 and 'ended' or 'begun'
end

local MOST_AT_ONCE = 1000 -- delayed jobs of one time that are searched
local searched = {} -- by time: the delayed jobs of that time, by the key of their schedule; true if there are more

local function delayed_at(base, score)
  if not searched[score] then
    local low, jobs = tonumber(score) * 0x1000, {}
    local due = redis.pcall('ZRANGEBYSCORE', base .. 'delayed', low, low + 0xfff, 'LIMIT', 0, MOST_AT_ONCE)
    for _, id in ipairs(due) do
      local key = redis.pcall('HGET', base .. id, 'rjk')
      if type(key) == 'string' then jobs[key] = jobs[key] or id end
    end
    searched[score] = {jobs, #due == MOST_AT_ONCE}
  end
  return unpack(searched[score])
end

-- Id and place of the next run: the first of some ids that exists. A repeatable job has several, and its id
-- can depend on its data: then it is the delayed job of that time that names the schedule. The place is
-- 'unsure' if more jobs have that time than are searched.
local function job_of_run(base, key, score, ids)
  for _, id in ipairs(ids) do
    local place = place_of_run(base, id)
    if place ~= '' then return id, place end
  end
  if #ids == 1 or not score then return ids[1], '' end
  local jobs, has_more = delayed_at(base, score)
  if jobs[key] then return jobs[key], 'delayed' end
  return ids[1], has_more and 'unsure' or ''
end

-- A schedule as it is now: score or false, hash as a flat list or the text of an error, id and place of its
-- job, score of a delayed job, hash of the job, and a SHA-1 of all of this.
local function describe(base, key, ids)
  local score = score_in(base .. 'repeat', key)
  local rev, _, hash = revision(base .. 'repeat:' .. key, '')
  local id, place = job_of_run(base, key, score, ids)
  local job_rev, _, job = revision(base .. id, '')
  local due = place == 'delayed' and score_in(base .. 'delayed', id) or ''
  local texts = {score or '', rev or '', id, place, due, job_rev or ''}
  return {score, hash or {}, id, place, due, job or {}, redis.sha1hex(table.concat(texts, '\0'))}
end
