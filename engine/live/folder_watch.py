"""Follow the changes of one store: events of its folders, or its change source that waits; and what
the followed places of one process share: the watch of folders, and turns at full scans."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from engine.live.shared_watch import SharedFolderWatch, WatchedFolders
from engine.model import ChangeSource, TaskCounts
from engine.store import ReadableStore, Unavailable
from engine.system import mounts

POLL_SECONDS = 0.25
"""Seconds that a change source may wait, until this object sees that it was stopped."""
RETRY_SECONDS = 1.0
"""Seconds until a change source is tried again after an error."""


class FolderWatch:
    """Forwards changed names until it is stopped."""

    def __init__(
        self,
        changes: ChangeSource,
        open_store: Callable[[], ReadableStore],
        touched: Callable[[set[str]], None],
        everything: Callable[[], None],
        is_shown: Callable[[], bool] = lambda: True,
        shared: SharedFolderWatch | None = None,
        counted: Callable[[TaskCounts], None] = lambda counts: None,
    ) -> None:
        """Calls `touched` with names, `everything` for a full scan, or `counted` with new counts of
        the change source, on another thread. Unless the place `is_shown`, events are noticed up to
        half a second later.

        A change source that waits gets a thread and a store of its own, from `open_store`. Folders
        are followed by `shared`; those on a file system that may stop answering, by a thread of
        their own."""
        self._changes, self._open_store, self._shared = changes, open_store, shared
        self._touched, self._everything, self._counted = touched, everything, counted
        self._is_shown = is_shown
        self._leave: Callable[[], None] = lambda: None
        self._stopped = threading.Event()
        self._ready = threading.Event()

    def start(self, patience: float) -> None:
        """Start to watch; returns when it watches, or after `patience` seconds."""
        if paths := self._changes.paths:
            folders = WatchedFolders(paths, self._touched, self._everything, self._is_shown)
            shared = self._shared
            if shared is None or mounts.may_hang(paths[0]):
                shared = SharedFolderWatch()
            self._leave = shared.follow(folders, patience)
        elif self._changes.wait is not None:
            threading.Thread(
                target=self._follow_source, name="spooldeck-watch", daemon=True
            ).start()
            self._ready.wait(patience)

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._leave()
        self._stopped.set()

    def _follow_source(self) -> None:
        missed = False
        while not self._stopped.is_set():
            try:
                store = self._open_store()
            except Unavailable:
                missed = True
                self._stopped.wait(RETRY_SECONDS)
                continue
            try:
                self._answer(store, missed)
            except Unavailable:
                self._everything()
                missed = True
                self._stopped.wait(RETRY_SECONDS)
            finally:
                store.close()

    def _answer(self, store: ReadableStore, missed: bool) -> None:
        """Forward changed names; after a failure (`missed`), request a full scan first."""
        wait = store.changes.wait
        if wait is None:
            return
        names, counts = wait(0.0), store.changes.counts  # from here on it collects changes
        last: TaskCounts | None = None
        while not self._stopped.is_set():
            if counts is not None and (now := counts()) is not None and now is not last:
                self._counted(now)
                last = now
            self._ready.set()
            self._pass_on(None if missed else names)
            missed = False
            names = wait(POLL_SECONDS)

    def _pass_on(self, names: Collection[str] | None) -> None:
        if names is None:
            self._everything()
        elif names:
            self._touched(set(names))


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
