"""Postfix: its queues, acts and logs, through its own programs."""
