"""Exim, which is read and changed by its own programs, also through a prefix."""
