-- A script of BullMQ on an open queue, for our worker.
-- ARGV: the queue's base, then the arguments of the script.
-- Answer: {its answer}, or {false, why our worker does not run this queue}.
local base = table.remove(ARGV, 1)
local why = why_not_worked(base, true)
if why then return {false, why} end
open_queue(base, true)
return {run_package(base)}
