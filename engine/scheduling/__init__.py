"""Threads and agents of a mail scheduler: what is due, what may run, the lines with an agent."""
