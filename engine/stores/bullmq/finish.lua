-- The end of each change: BullMQ's script, if there is one, and the new revision.
-- Answer: {'done', revision}, or {the reason why nothing changed, answer of the script}.

local function options(fields)
  local ok, said = pcall(cjson.decode, fields.opts or '{}')
  return ok and type(said) == 'table' and said or {}
end

-- Fill in what depends on the job's own options: how many finished jobs are kept, and its attempts.
local function complete_arguments()
  if ours.push then -- the number of the argument that is the command
    local is_lifo = string.find(fields.opts or '', '"lifo"', 1, true) and options(fields).lifo
    ARGV[ours.push] = is_lifo and 'RPUSH' or 'LPUSH'
  end
  if ours.script ~= 'moveToFinished' then return end
  local said = options(fields)
  local keeps = said[ARGV[5] == 'failed' and 'removeOnFail' or 'removeOnComplete']
  if type(keeps) == 'number' then keeps = {count = keeps} end
  if type(keeps) ~= 'table' then keeps = {count = keeps and 0 or -1} end
  if ours.to == '' then keeps = {count = 0} end
  ARGV[8] = cmsgpack.pack({
    token = ours.lock ~= '' and ours.lock or '0', keepJobs = keeps, attempts = said.attempts or 1,
    maxMetricsSize = '', fpof = said.fpof, cpof = said.cpof, idof = said.idof, rdof = said.rdof
  })
end

if ours.action == 'renew' then redis.call('SET', job .. ':lock', ours.token, 'PX', ours.ms) end
if ours.script then
  if fields then complete_arguments() end
  if ours.action == 'package' and ours.unset and #ours.unset > 0 then
    redis.call('HDEL', job, unpack(ours.unset))
  end
  local answer = package_script()
  if type(answer) == 'number' and answer < 0 or (ours.action == 'keep' and answer ~= 1) then
    if ours.action == 'keep' then forget() end
    return {'refused', answer}
  end
  if ours.action == 'package' and ours.set and #ours.set > 0 and redis.call('EXISTS', job) == 1 then
    redis.call('HSET', job, unpack(ours.set))
  end
end
if ours.is_new then -- its queue may be new, so that no other program reads its events
  redis.call('XADD', stream, 'MAXLEN', '~', 10000, '*', 'queue', ours.queue, 'id', id)
end
if ours.log and redis.call('EXISTS', job) == 1 then
  local kept_lines = fields and options(fields).keepLogs
  redis.call('RPUSH', job .. ':logs', ours.log)
  if type(kept_lines) == 'number' then redis.call('LTRIM', job .. ':logs', -kept_lines, -1) end
end
if ours.to == '' then return {'done', ''} end
local lock = ours.to == 'active' and lock_of(base, id) or ''
return {'done', revision(job_key(base, kept, id, ours.to), lock) or ''}
