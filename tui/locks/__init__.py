"""Locks: examine them and free them."""
