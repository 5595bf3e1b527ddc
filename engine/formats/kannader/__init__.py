"""Kannader's spool: one symbolic link per recipient of a mail; a state change renames the link."""
