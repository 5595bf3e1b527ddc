-- ARGV: the base of a queue. Answer: why our worker takes no job of it, or ''.
return why_not_worked(ARGV[1]) or ''
