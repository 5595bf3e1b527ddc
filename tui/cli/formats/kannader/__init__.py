"""The commands of a Kannader spool."""
