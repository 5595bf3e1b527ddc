"""Kannader's spool: one symbolic link per recipient of a mail; a state change renames the link."""

from engine.stores.kannader.store import KannaderStore, make_spool

__all__ = ["KannaderStore", "make_spool"]
