"""The registry of destinations: read, and changed by compare-and-swap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from engine.destinations.destination import Destination
from engine.store import Gone, Unavailable


class Registry(Protocol):
    """Destinations by origin. Any thread may call it; each call may block for some seconds.

    Each method raises Unavailable, with one line, if the registry is locked, missing, read-only,
    damaged or unreachable."""

    def get(self, origin: str) -> Destination:
        """The destination of an origin; a healthy one with `rev` 0 if it is not registered."""

    def all(self) -> list[Destination]:
        """All destinations, by origin."""

    def swap(self, old: Destination | None, new: Destination | None) -> Destination:
        """Replace `old` by `new` if its revision is unchanged; return `new` with its new revision.

        An `old` of None, or with `rev` 0, is added; a `new` of None is deleted, and the answer is
        then the unregistered destination.

        Raises:
            Gone: it has changed, or is registered already; nothing changed."""

    def count_probe(self, origin: str) -> int:
        """Add 1 to the probes of a destination in one statement; return the new number. Raises
        `Gone`: it is not registered."""

    def extra_with(self, key: str, value: object) -> list[Destination]:
        """The destinations whose free JSON has this value for this key."""

    def close(self) -> None:
        """Close the connections."""


MAX_TRIES = 20
"""Compare-and-swaps after which `update` gives up."""


def update(
    registry: Registry, origin: str, change: Callable[[Destination], Destination]
) -> Destination:
    """Apply a change to the newest revision, again while another worker is faster; write nothing if
    it changes nothing. Raises `Unavailable`: see `Registry`, or others changed it each time."""
    for _ in range(MAX_TRIES):
        old = registry.get(origin)
        new = change(old)
        if new == old:
            return old
        try:
            return registry.swap(old, new)
        except Gone:
            continue
    raise Unavailable(f"{origin}: changed by others {MAX_TRIES} times, try again later")
