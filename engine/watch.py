"""Hears a store's doorbell, on a thread of its own, and says where to look.

Events can be lost without a word. So each folder's modification time is compared with the one it
had when something was last heard of it; a difference that nothing explains means: look everywhere.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import NamedTuple

from engine.model import Doorbell
from engine.store import Store, Unavailable

DEBOUNCE, STEP = 50, 10
"""Milliseconds for which events are gathered: at most, and after the last of them."""
POLL = 250
"""Milliseconds after which folders are compared, also when nothing rings."""
LATE = 0.2
"""Seconds for which an event may still be on its way when its folder has changed already."""
GRAIN = 50_000_000
"""Nanoseconds: two changes closer than this may leave a folder with one modification time."""
STORM = 4096
"""Names in one go from which on some may have been lost; the kernel keeps 16,384 events."""
STOPPED = 2.0
"""Seconds without a turn from which on this process was stopped, and events may have been lost."""
RETRY = 1.0
"""Seconds until a doorbell that failed is tried again."""


class Stamp(NamedTuple):
    """A folder at an instant."""

    folder: tuple[int, int]
    """Device and inode."""
    modified: int
    """Nanoseconds."""
    racy: bool
    """Whether it might change once more without showing it."""


Stamps = Mapping[str, Stamp | None]


class Watch:
    """Follows a doorbell until it is stopped."""

    def __init__(
        self,
        doorbell: Doorbell,
        open_store: Callable[[], Store],
        touched: Callable[[set[str]], None],
        everything: Callable[[], None],
    ) -> None:
        """Calls `touched` with names, or `everything`, on its own thread.

        A doorbell that waits does so in a store of its own, from `open_store`.
        """
        self._doorbell = doorbell
        self._open_store = open_store
        self._touched = touched
        self._everything = everything
        self._stopped = False
        self._stop: SimpleQueue[None] = SimpleQueue()
        self._ready: SimpleQueue[None] = SimpleQueue()

    def start(self, patience: float) -> None:
        """Begin to listen; returns when it does, or after so many seconds."""
        threading.Thread(target=self._run, name="spooldeck-watch", daemon=True).start()
        try:
            self._ready.get(timeout=patience)
        except Empty:
            return

    def stop(self) -> None:
        """Listen no more; does not wait for it."""
        self._stopped = True
        self._stop.put(None)

    def is_set(self) -> bool:
        """Whether it is stopped, as the watcher asks."""
        return self._stopped

    def _run(self) -> None:
        if self._doorbell.paths:
            self._follow_folders()
        elif self._doorbell.wait is not None:
            self._follow_bell()
        self._ready.put(None)

    def _pause(self, seconds: float) -> None:
        try:
            self._stop.get(timeout=seconds)
        except Empty:
            return

    # ---- a bell that waits

    def _follow_bell(self) -> None:
        while not self._stopped:
            try:
                store = self._open_store()
            except Unavailable:
                self._pause(RETRY)
                continue
            try:
                self._answer(store)
            except Unavailable:
                self._everything()
                self._pause(RETRY)
            finally:
                store.close()

    def _answer(self, store: Store) -> None:
        wait = store.doorbell.wait
        self._ready.put(None)
        while wait is not None and not self._stopped:
            if wait(POLL / 1000):
                self._everything()

    # ---- folders

    def _follow_folders(self) -> None:
        """Watch the folders that are there, anew whenever others are."""
        stamps: Stamps = {}
        while not self._stopped:
            listen = self._listener()
            now = self._stamps()
            self._look_into_gap(stamps, now)
            self._ready.put(None)
            stamps = self._listen(listen, now)

    def _look_into_gap(self, before: Stamps, now: Stamps) -> None:
        """What happened while nobody listened; before the first time nobody has looked either."""
        for path in before:
            if before[path] is None and now[path] is not None:
                self._touched(_names(path))
            elif _differs(before[path], now[path]):
                self._everything()

    def _listener(self) -> Listener:
        """Events from the kernel; where it gives us none, a plain pause."""
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        present = [path for path, stamp in self._stamps().items() if stamp is not None]
        try:
            watcher = RustNotify(present, False, False, 0, False, True)
        except (OSError, UnicodeError, WatchfilesRustInternalError):
            return self._hear_nothing

        def listen() -> set[str]:
            changes = watcher.watch(DEBOUNCE, STEP, POLL, self)
            return {path for _, path in changes} if isinstance(changes, set) else set()

        return listen

    def _hear_nothing(self) -> set[str]:
        self._pause(POLL / 1000)
        return set()

    def _listen(self, listen: Listener, stamps: Stamps) -> Stamps:
        """Pass on what happens in folders, until other folders are there."""
        known = dict(stamps)
        doubts: dict[str, float] = {}
        turn = time.monotonic()
        while not self._stopped:
            events = listen()
            before, turn = turn, time.monotonic()
            now = self._stamps()
            if any(_folder(known[path]) != _folder(now[path]) for path in now):
                return known
            rang = {os.path.dirname(path) for path in events} & now.keys()
            for path in rang:
                # What is heard is heard in order: no change is hidden behind this time.
                known[path] = _settled(now[path])
            doubts = {
                path: doubts.get(path, turn)
                for path in now.keys() - rang
                if _differs(known[path], now[path])
            }
            unexplained = any(turn - since > LATE for since in doubts.values())
            if unexplained or len(events) > STORM or turn - before > STOPPED:
                known, doubts = dict(now), {}
                self._everything()
            elif rang:
                self._touched({os.path.basename(p) for p in events if os.path.dirname(p) in rang})
        return known

    def _stamps(self) -> Stamps:
        return {path: _stamp(path) for path in map(os.path.abspath, self._doorbell.paths)}


Listener = Callable[[], set[str]]
"""Blocks until something happens, or for `POLL`; the paths at which something happened."""


def _names(folder: str) -> set[str]:
    try:
        return set(os.listdir(folder))
    except OSError:
        return set()  # gone again, which the next turn sees


def _stamp(path: str) -> Stamp | None:
    try:
        there = os.stat(path)
    except OSError:
        return None
    racy = time.time_ns() - there.st_mtime_ns < GRAIN
    return Stamp((there.st_dev, there.st_ino), there.st_mtime_ns, racy)


def _folder(stamp: Stamp | None) -> tuple[int, int] | None:
    return None if stamp is None else stamp.folder


def _settled(stamp: Stamp | None) -> Stamp | None:
    return None if stamp is None else stamp._replace(racy=False)


def _differs(known: Stamp | None, now: Stamp | None) -> bool:
    """Whether something may have happened between two looks at a folder."""
    if known is None or now is None:
        return known is not now
    return known.racy or known[:2] != now[:2]
