"""Watch a store's folders for events, or poll its change source, on a thread of its own.

Events can be lost, and network file systems report no changes by other hosts. So each folder's
modification time is compared with the one at its last event; a difference without an event requests
a full scan.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, NamedTuple

from engine.model import ChangeSource
from engine.store import ReadableStore, Unavailable
from engine.system import files

if TYPE_CHECKING:
    from engine.live.folder_events import FolderEvents, FolderEventSource

POLL_SECONDS, CHECK_SECONDS = 0.25, 1.0
"""Seconds between comparisons of folder times: without inotify, and with it while there are no
events."""
EVENT_DELAY_SECONDS = 0.2
"""Seconds that an event may come after its folder's time has changed."""
MTIME_GRAIN_NANOSECONDS = 50_000_000
"""Nanoseconds: two changes closer than this may give a folder the same modification time."""
RETRY_SECONDS = 1.0
"""Seconds until a change source is tried again after an error."""


class Stamp(NamedTuple):
    """The identity and modification time of a folder."""

    folder: tuple[int, int]
    """Device and inode."""
    modified: int
    """Nanoseconds."""
    racy: bool
    """True if it may change again without a new modification time."""


Stamps = Mapping[str, Stamp | None]


class FolderWatch:
    """Forwards changed names until it is stopped."""

    def __init__(
        self,
        doorbell: ChangeSource,
        open_store: Callable[[], ReadableStore],
        touched: Callable[[set[str]], None],
        everything: Callable[[], None],
        is_shown: Callable[[], bool] = lambda: True,
    ) -> None:
        """Calls `touched` with names, or `everything` for a full scan, on its own thread. Unless
        the place `is_shown`, events are noticed up to half a second later.

        A change source that waits gets a store of its own, from `open_store`.
        """
        self._doorbell = doorbell
        self._open_store = open_store
        self._touched = touched
        self._everything = everything
        self._is_shown = is_shown
        self._stopped = False
        self._stop: SimpleQueue[None] = SimpleQueue()
        self._ready: SimpleQueue[None] = SimpleQueue()

    def start(self, patience: float) -> None:
        """Start the thread; returns when it watches, or after `patience` seconds."""
        threading.Thread(target=self._run, name="spooldeck-watch", daemon=True).start()
        try:
            self._ready.get(timeout=patience)
        except Empty:
            return

    def stop(self) -> None:
        """Stop watching; does not wait for the thread."""
        self._stopped = True
        self._stop.put(None)

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

    # ---- a change source that waits

    def _follow_bell(self) -> None:
        missed = False
        while not self._stopped:
            try:
                store = self._open_store()
            except Unavailable:
                missed = True
                self._pause(RETRY_SECONDS)
                continue
            try:
                self._answer(store, missed)
            except Unavailable:
                self._everything()
                missed = True
                self._pause(RETRY_SECONDS)
            finally:
                store.close()

    def _answer(self, store: ReadableStore, missed: bool) -> None:
        """Forward changed names; after a failure (`missed`), request a full scan first."""
        wait = store.changes.wait
        if wait is None:
            return
        names = wait(0.0)  # from here on it collects changes
        self._ready.put(None)
        self._pass_on(None if missed else names)
        while not self._stopped:
            self._pass_on(wait(POLL_SECONDS))

    def _pass_on(self, names: Collection[str] | None) -> None:
        if names is None:
            self._everything()
        elif names:
            self._touched(set(names))

    # ---- folders

    def _follow_folders(self) -> None:
        """Watch the existing folders, and restart when a folder appears, goes or is replaced.

        After a name that is not UTF-8, which ends a watch, the folders' times are compared instead.
        """
        paths = [os.path.abspath(path) for path in self._doorbell.paths]
        stamps: Stamps = {}
        source: Callable[[Sequence[str]], FolderEventSource | PollingWatch] = _event_source
        while not self._stopped:
            with closing(source(paths)) as events:
                now = _stamps(paths, events.folders)
                self._look_into_gap(stamps, now)
                self._ready.put(None)
                try:
                    stamps = self._listen(events, now)
                except OSError:
                    self._everything()
                    stamps, source = now, PollingWatch

    def _look_into_gap(self, before: Stamps, now: Stamps) -> None:
        """Report changes between two watches, by comparing folder times."""
        for path in before:
            if before[path] is None and now[path] is not None:
                self._touched(_names(path))
            elif _differs(before[path], now[path]):
                self._everything()

    def _listen(self, events: FolderEventSource | PollingWatch, stamps: Stamps) -> Stamps:
        """Forward events until a folder appears, goes or is replaced; return the last known
        times.
        """
        known = dict(stamps)
        doubts: dict[str, float] = {}
        while not self._stopped:
            heard = events.wait(CHECK_SECONDS, is_quick=self._is_shown())
            turn, now = time.monotonic(), _stamps(list(known))
            if heard.are_lost or heard.may_lack_names:
                self._everything()
            elif heard.names:
                self._touched(set().union(*heard.names.values()))
            if heard.are_lost or any(_folder(known[path]) != _folder(now[path]) for path in now):
                # Removed and made again: another folder in its place may have the same times.
                return {path: _doubted(known[path]) for path in known}
            rang = heard.names.keys()
            for path in rang:
                # Events are in order: without an overflow there is no earlier change without one.
                known[path] = _settled(now[path])
            doubts = {
                path: doubts.get(path, turn)
                for path in now.keys() - rang
                if _differs(known[path], now[path])
            }
            if any(turn - since > EVENT_DELAY_SECONDS for since in doubts.values()):
                known, doubts = dict(now), {}
                self._everything()
        return known


class PollingWatch:
    """Replaces events where they are not available: the folder times are compared more often."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = frozenset(folders)

    def wait(self, seconds: float, *, is_quick: bool = True) -> FolderEvents:
        """Sleep for at most `POLL_SECONDS` seconds: there are no events."""
        from engine.live.folder_events import FolderEvents

        time.sleep(min(seconds, POLL_SECONDS))
        return FolderEvents()

    def close(self) -> None:
        """Nothing to close."""


def _event_source(paths: Sequence[str]) -> FolderEventSource | PollingWatch:
    # Imported on the thread that waits for events, so that no start waits for it.
    from engine.live.folder_events import FolderEventSource

    try:
        return FolderEventSource(paths)
    except OSError:
        return PollingWatch(paths)  # no more watches, or a folder that may not be watched


def _stamps(paths: Iterable[str], heard: Container[str] | None = None) -> Stamps:
    """The present times of folders; a folder without a watch counts as missing."""
    return {path: _stamp(path) if heard is None or path in heard else None for path in paths}


def _names(folder: str) -> set[str]:
    try:
        return set(files.list_names(folder))
    except OSError:
        return set()  # deleted again: the next turn finds out


def _stamp(path: str) -> Stamp | None:
    try:
        there = os.stat(path)
    except OSError:
        return None
    racy = time.time_ns() - there.st_mtime_ns < MTIME_GRAIN_NANOSECONDS
    return Stamp((there.st_dev, there.st_ino), there.st_mtime_ns, racy)


def _folder(stamp: Stamp | None) -> tuple[int, int] | None:
    return None if stamp is None else stamp.folder


def _doubted(stamp: Stamp | None) -> Stamp | None:
    return stamp._replace(racy=True) if stamp else None


def _settled(stamp: Stamp | None) -> Stamp | None:
    return None if stamp is None else stamp._replace(racy=False)


def _differs(known: Stamp | None, now: Stamp | None) -> bool:
    """True if the folder may have changed between two stamps."""
    if known is None or now is None:
        return known is not now
    return known.racy or known[:2] != now[:2]
