-- The schedules of a queue. ARGV: its base, 1 if texts of any length are wanted, and a packed list with key
-- and possible ids of the next run of each schedule. Answer: {major version, version or '', descriptions}.
local base, whole = ARGV[1], ARGV[2] == '1'
local answer = {}

-- Long texts by their SHA-1: data may have megabytes.
local function shorten(flat)
  if type(flat) ~= 'table' then return flat end
  for i = 1, #flat, 2 do
    local most = flat[i] == 'opts' and 131072 or flat[i] == 'data' and 0 or 4096
    if #flat[i + 1] > most then
      flat[i], flat[i + 1] = flat[i] .. ' sha1', redis.sha1hex(flat[i + 1])
    end
  end
  return flat
end

for _, asked in ipairs(cmsgpack.unpack(ARGV[3])) do
  local key = table.remove(asked, 1)
  local one = describe(base, key, asked)
  if not whole then one[2], one[6] = shorten(one[2]), shorten(one[6]) end
  answer[#answer + 1] = one
end
local version = redis.pcall('HGET', base .. 'meta', 'version')
return {layout_of(base), type(version) == 'string' and version or '', answer}
