"""Stores that act through the programs of another server, also on other hosts; names no format."""
