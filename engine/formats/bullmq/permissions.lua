-- Which commands the user of the connection may run. ARGV: each as one text with its arguments.
-- Answer: the numbers of those that are refused; empty for servers that cannot say (before Redis 7).
local refused = {}
if not redis.acl_check_cmd then return refused end
for n, text in ipairs(ARGV) do
  local words = {}
  for word in string.gmatch(text, '%S+') do words[#words + 1] = word end
  if not redis.acl_check_cmd(unpack(words)) then refused[#refused + 1] = n end
end
return refused
