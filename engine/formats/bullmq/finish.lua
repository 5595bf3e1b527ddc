-- The end of each change: BullMQ's script, if there is one, and the new revision.
-- Answer, a list with one for each change, of the first ones if they have cost much:
-- {'done', revision}, or {the reason why nothing changed, answer of the script}, or {'error', text}; if
-- the next job was asked for, {'done', '', answer to that claim}. A claimed job has its lock's token as
-- revision. A job that was given a number: {'done', revision, number}.

local MAX_TRACES = 10
local MAX_EFFORT = 512 * 1024

local function options_text()
  return fields and fields.opts or not fields and redis.call('HGET', job, 'opts') or '{}'
end

local options_read
local function options()
  if not options_read then
    local ok, said = pcall(cjson.decode, options_text())
    options_read = ok and type(said) == 'table' and said or {}
  end
  return options_read
end

-- The stack traces of the job and one more, the last ones if there are many.
local function add_trace(trace)
  local ok, traces = pcall(cjson.decode, redis.call('HGET', job, 'stacktrace') or '[]')
  if not ok or type(traces) ~= 'table' then traces = {} end
  traces[#traces + 1] = trace
  local most, kept = options().stackTraceLimit, {}
  most = type(most) == 'number' and math.min(most, MAX_TRACES) or MAX_TRACES
  for i = math.max(1, #traces - most + 1), #traces do kept[#kept + 1] = cjson.encode(traces[i]) end
  return '[' .. table.concat(kept, ',') .. ']'
end

-- True if the clock that made the time of the change is ahead of the server's by more than 5 minutes.
local function is_clock_ahead()
  local at = redis.pcall('TIME') -- refused to some users
  return at[1] and tonumber(ARGV[2]) - 1000 * at[1] > 300000
end

-- Fill in what depends on the job's own options: how many finished jobs are kept, and its attempts.
local function complete_arguments()
  if ours.push then -- the number of the argument that is the command
    local is_lifo = string.find(options_text(), '"lifo"', 1, true) and options().lifo
    ARGV[ours.push] = is_lifo and 'RPUSH' or 'LPUSH'
  end
  if ours.script ~= 'moveToFinished' then return end
  local said, claim = options(), ours.claim or {}
  local keeps = said[ARGV[5] == 'failed' and 'removeOnFail' or 'removeOnComplete']
  if type(keeps) == 'number' then keeps = {count = keeps} end
  if keeps == cjson.null then keeps = false end -- with which BullMQ fails
  if type(keeps) ~= 'table' then keeps = {count = keeps and 0 or -1} end
  if ours.to == '' then keeps = {count = 0} end
  -- Jobs are too old by the worker's clock, as for BullMQ's worker. A wrong one must not delete them all:
  -- the next job that finishes removes the old ones.
  if keeps.age and is_clock_ahead() then keeps.age = nil end
  ARGV[8] = cmsgpack.pack({
    token = ours.lock ~= '' and ours.lock or '0', keepJobs = keeps, attempts = said.attempts or 1,
    maxMetricsSize = ours.metrics or '', name = claim.name, lockDuration = claim.lockDuration,
    limiter = claim.limiter, fpof = said.fpof, cpof = said.cpof, idof = said.idof, rdof = said.rdof
  })
end

-- Count attempts in the field of the version; Node reads that of the old ones first.
local function translate_attempts()
  for i = 1, #(ours.set or {}), 2 do
    if ours.set[i] == 'atm' and layout.attempts then
      ours.set[i] = layout.attempts
    elseif ours.set[i] == 'atm' and not ours.is_new then
      redis.call('HDEL', job_key(base, kept, id, ours.place), 'attemptsMade')
    end
  end
end

local function finish()
  if ours.action == 'renew' then redis.call('SET', job .. ':lock', ours.token, 'PX', ours.ms) end
  local claimed
  if ours.script then
    complete_arguments()
    if ours.action == 'package' and ours.unset and #ours.unset > 0 then
      redis.call('HDEL', job, unpack(ours.unset))
    end
    local ok, answer = pcall(package_script)
    if not ok then -- half-way: our copy goes only if the job is still there
      if ours.action == 'keep' and present_place() and redis.call('EXISTS', job) == 1 then forget() end
      error(answer, 0)
    end
    if type(answer) == 'number' and answer < 0 or (ours.action == 'keep' and answer ~= 1) then
      if ours.action == 'keep' then forget() end
      return {'refused', answer}
    end
    if layout.attempts then redis.call('HDEL', job, 'atm', 'ats') end
    if ours.claim and type(answer) == 'table' then
      claimed = answer
      if type(answer[1]) == 'table' then -- moveToFinished gives it the token of the finished job
        redis.call('SET', base .. answer[2] .. ':lock', ours.claim.token, 'PX', ours.claim.lockDuration)
      end
    end
  end
  local is_there = (ours.log or ours.trace or ours.set) and redis.call('EXISTS', job) == 1
  if is_there and ours.action == 'package' and ours.set and #ours.set > 0 then
    redis.call('HSET', job, unpack(ours.set))
  end
  if is_there and ours.trace then redis.call('HSET', job, 'stacktrace', add_trace(ours.trace)) end
  if ours.is_new then -- its queue may be new, so that no other program reads its events
    redis.call('XADD', stream, 'MAXLEN', '~', 10000, '*', 'queue', ours.queue, 'id', id)
  end
  if is_there and ours.log then
    local kept_lines = options().kl or options().keepLogs -- its name in Redis, and the one in a program
    redis.call('RPUSH', job .. ':logs', ours.log)
    if type(kept_lines) == 'number' and kept_lines > 0 then redis.call('LTRIM', job .. ':logs', -kept_lines, -1) end
  end
  if ours.to == '' or ours.claim then return {'done', '', claimed} end
  if ours.action == 'renew' then return {'done', ours.token} end
  local rev = revision(job_key(base, kept, id, ours.to), '') or ''
  return ours.is_numbered and {'done', rev, id} or {'done', rev}
end

local function change(one)
  begin(one)
  options_read = nil
  local why, what = refusal()
  if why then return {why, what} end
  translate_attempts()
  if layout.sorts_list and LISTS[here] then redis.call('ZREM', base .. 'priority', id) end
  if relocate then relocate() end
  return finish()
end

local answers = {}
for n, one in ipairs(common.changes) do
  local ok, answer = pcall(change, one) -- so that an error of one does not hide what the others did
  close_queues()
  if not ok then answer = {'error', type(answer) == 'table' and answer.err or tostring(answer)} end
  answers[n] = answer
  if effort > MAX_EFFORT then break end
end
return answers
