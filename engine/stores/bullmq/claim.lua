-- moveToActive of the package as `package_script`, and the revision of the job that it claimed.
-- The last argument is a packed table: base. Answer: ms until the rate limit allows
-- another job, ms of the next delayed job; and of a claimed job its id, revision and fields.
local ours = cmsgpack.unpack(table.remove(ARGV)) -- so that the script sees only its own
local answer = package_script()
if type(answer[1]) ~= 'table' then return {answer[3], tostring(answer[4] or 0)} end
local id = answer[2]
local rev = revision(ours.base .. id, lock_of(ours.base, id) or '')
return {answer[3], tostring(answer[4] or 0), id, rev or '', answer[1]}
