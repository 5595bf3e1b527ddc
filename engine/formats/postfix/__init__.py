"""Postfix: one instance, read and changed through its own programs alone."""
