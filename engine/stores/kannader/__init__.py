"""Kannader's spool: one mail, several recipients, each a symbolic link that moves."""

from engine.stores.kannader.store import KannaderStore, make_spool

__all__ = ["KannaderStore", "make_spool"]
