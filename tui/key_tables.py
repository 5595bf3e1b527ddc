"""The keys of all screens, also of those that are not open: for help, palette and mouse."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tui.queue.keys import ROWS
from tui.text import keys
from tui.text.keys import Key

KEYS: tuple[Key, ...] = (*(row.key for row in ROWS), *keys.KEYS)
"""A key that the queue screen has with other screens is in it twice."""


def keys_on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, except the actions in `without`."""
    if screen != keys.LIST:
        yield from keys.keys_on(screen, without)
    else:
        yield from (row.key for row in ROWS if row.key.action not in without)
