"""Hears a store's doorbell, on a thread of its own, and says where to look.

The kernel says when events were lost, but some file systems tell of nothing that others do: those
of several machines. So each folder's modification time is compared with the one it had when
something was last heard of it; a difference that nothing explains means: look everywhere.
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
from engine.store import Store, Unavailable
from engine.system import files

if TYPE_CHECKING:
    from engine.live.folder_events import FolderEvents, FolderEventSource

POLL, CHECK = 0.25, 1.0
"""Seconds after which folders are compared where nothing can ring, and where nothing has."""
LATE = 0.2
"""Seconds for which an event may still be on its way when its folder has changed already."""
GRAIN = 50_000_000
"""Nanoseconds: two changes closer than this may leave a folder with one modification time."""
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


class FolderWatch:
    """Follows a doorbell until it is stopped."""

    def __init__(
        self,
        doorbell: ChangeSource,
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
        deaf = False
        while not self._stopped:
            try:
                store = self._open_store()
            except Unavailable:
                deaf = True
                self._pause(RETRY)
                continue
            try:
                self._answer(store, deaf)
            except Unavailable:
                self._everything()
                deaf = True
                self._pause(RETRY)
            finally:
                store.close()

    def _answer(self, store: Store, deaf: bool) -> None:
        """Pass on what the bell says; after having been deaf, nobody knows what has changed."""
        wait = store.doorbell.wait
        if wait is None:
            return
        names = wait(0.0)  # it listens from now on
        self._ready.put(None)
        self._pass_on(None if deaf else names)
        while not self._stopped:
            self._pass_on(wait(POLL))

    def _pass_on(self, names: Collection[str] | None) -> None:
        if names is None:
            self._everything()
        elif names:
            self._touched(set(names))

    # ---- folders

    def _follow_folders(self) -> None:
        """Watch the folders that exist; begin again whenever others do.

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
        """What happened while nobody listened; before the first time nobody has looked either."""
        for path in before:
            if before[path] is None and now[path] is not None:
                self._touched(_names(path))
            elif _differs(before[path], now[path]):
                self._everything()

    def _listen(self, events: FolderEventSource | PollingWatch, stamps: Stamps) -> Stamps:
        """Report changes in folders until one of the folders is another one."""
        known = dict(stamps)
        doubts: dict[str, float] = {}
        while not self._stopped:
            heard = events.wait(CHECK)
            turn, now = time.monotonic(), _stamps(list(known))
            if heard.lost:
                self._everything()
            elif heard.names:
                self._touched(set().union(*heard.names.values()))
            if heard.lost or any(_folder(known[path]) != _folder(now[path]) for path in now):
                # Removed and made again: another folder in its place may have the same times.
                return {path: _doubted(known[path]) for path in known}
            rang = heard.names.keys()
            for path in rang:
                # What is heard is heard in order: no change is hidden behind this time.
                known[path] = _settled(now[path])
            doubts = {
                path: doubts.get(path, turn)
                for path in now.keys() - rang
                if _differs(known[path], now[path])
            }
            if any(turn - since > LATE for since in doubts.values()):
                known, doubts = dict(now), {}
                self._everything()
        return known


class PollingWatch:
    """What there is instead of an ear where the kernel gives us none: the folders' times."""

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = frozenset(folders)

    def wait(self, seconds: float) -> FolderEvents:
        """Wait, but not for long, as no event ends it; report nothing."""
        from engine.live.folder_events import FolderEvents

        time.sleep(min(seconds, POLL))
        return FolderEvents()

    def close(self) -> None:
        """There is nothing to close."""


def _event_source(paths: Sequence[str]) -> FolderEventSource | PollingWatch:
    # Imported on the thread that waits for events, so that no start waits for it.
    from engine.live.folder_events import FolderEventSource

    try:
        return FolderEventSource(paths)
    except OSError:
        return PollingWatch(paths)  # no more watches, or a folder that may not be watched


def _stamps(paths: Iterable[str], heard: Container[str] | None = None) -> Stamps:
    """Folders as they are now; one that is not heard counts as not there yet."""
    return {path: _stamp(path) if heard is None or path in heard else None for path in paths}


def _names(folder: str) -> set[str]:
    try:
        return set(files.listed(folder))
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


def _doubted(stamp: Stamp | None) -> Stamp | None:
    return stamp._replace(racy=True) if stamp else None


def _settled(stamp: Stamp | None) -> Stamp | None:
    return None if stamp is None else stamp._replace(racy=False)


def _differs(known: Stamp | None, now: Stamp | None) -> bool:
    """Whether something may have happened between two looks at a folder."""
    if known is None or now is None:
        return known is not now
    return known.racy or known[:2] != now[:2]
