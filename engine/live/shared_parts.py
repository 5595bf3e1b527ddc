"""What the followed places of one process share: the watch of folders, and turns at full scans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from engine.live.shared_watch import SharedFolderWatch

SCANS_TOGETHER = 2
"""Full scans that run together: more are no faster, as they share the interpreter's lock."""
TURN_TIMEOUT_SECONDS = 60.0
"""Seconds to wait for a turn; a store that hangs keeps its turn."""
TURN_CHECK_SECONDS = 0.1
"""Seconds between two calls of `while_waiting`, while a scan waits for its turn."""


class SharedParts:
    """Shared by the places of one console, so that many cost the memory and CPU of a few."""

    def __init__(self, places: int = 1) -> None:
        """`places` is the number of places."""
        self.places = places
        self.folders = SharedFolderWatch()
        self._turns = threading.Semaphore(SCANS_TOGETHER)

    @contextmanager
    def scan_turn(
        self, is_urgent: Callable[[], bool], while_waiting: Callable[[], None]
    ) -> Iterator[None]:
        """Wait for a turn at a full scan, and hold it; not while it `is_urgent`, nor longer than
        `TURN_TIMEOUT_SECONDS`. Calls `while_waiting` ten times a second."""
        deadline, is_taken = time.monotonic() + TURN_TIMEOUT_SECONDS, False
        while not (is_taken or is_urgent() or time.monotonic() > deadline):
            is_taken = self._turns.acquire(timeout=TURN_CHECK_SECONDS)
            if not is_taken:
                while_waiting()
        try:
            yield
        finally:
            if is_taken:
                self._turns.release()
