"""Kannader's spool: one symbolic link per recipient of a mail; a state change renames the link.

The store is imported when it is used: a command of another format only checks the settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.stores.kannader.store import KannaderStore, make_spool

__all__ = ["KannaderStore", "make_spool"]


def __getattr__(name: str) -> Any:
    """Import what the store's module offers here."""
    if name not in __all__:
        raise AttributeError(name)
    from engine.stores.kannader import store

    return getattr(store, name)
