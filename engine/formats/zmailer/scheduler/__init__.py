"""The process of the scheduler: the spool's files, its loop over agents, what it shows."""
