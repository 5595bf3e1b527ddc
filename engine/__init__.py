"""The queue engine: spool directories, their messages and every change made to them."""
