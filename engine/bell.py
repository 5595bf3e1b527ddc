"""Rings when something happens in a store, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engine.model import Doorbell

DEBOUNCE = 50
"""Milliseconds within which events are gathered before they ring once."""


class Ringer:
    """Calls `ring` from its own thread whenever the doorbell says that something happened.

    It may miss things (the kernel drops events when too many come): whoever relies on it looks
    again after `Doorbell.unwatched` seconds whatever it says.
    """

    def __init__(self, doorbell: Doorbell, ring: Callable[[], None]) -> None:
        self._bell, self._ring = doorbell, ring
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="doorbell", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._stop.set()
        self._thread.join(2.0)

    def _listen(self) -> None:
        if self._bell.wait is not None:
            while not self._stop.is_set():
                if self._bell.wait(0.5):
                    self._ring()
            return
        from watchfiles import watch

        changes = watch(
            *self._there(),
            stop_event=self._stop,
            debounce=DEBOUNCE,
            step=DEBOUNCE,
            recursive=False,
            raise_interrupt=False,
            ignore_permission_denied=True,
            watch_filter=None,
        )
        for _ in changes:
            self._ring()

    def _there(self) -> list[str]:
        import os

        return [path for path in self._bell.paths if os.path.isdir(path)]
