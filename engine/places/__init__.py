"""A place: one spool, queue or server, what is read of it, and what its alerts are made of."""
