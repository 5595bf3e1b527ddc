"""Watch the folders of all places on one thread, with one inotify(7) queue, read by watchfiles.

Events can be lost, and network file systems report no changes by other hosts. So each folder's
modification time is compared with the one at its last event; a difference without an event requests
a full scan.

watchfiles does not report that the kernel's event queue overflowed, and it cannot report a name or
watch a path that is not UTF-8. An overflow needs a queue full of events, so many changes in one
answer are taken for one."""

from __future__ import annotations

import errno
import math
import os
import stat
import sys
import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping, Set
from functools import partial
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Any

from engine.system import files
from engine.values import NamedTuple

STEP_MS, GATHER_MS = 10, 20
"""Milliseconds: interval at which watchfiles checks for events; longest time to collect them."""
QUIET_STEP_MS, QUIET_SECONDS = 50, 10.0
"""The interval in milliseconds after so many seconds without a change: 100 checks a second of
nothing are 0.4 % of a CPU, 20 are 0.1 %."""
SLOW_STEP_MS = 200
"""Milliseconds: the interval for places that are not shown; each check wakes a thread."""

QUEUE_LIMIT = "/proc/sys/fs/inotify/max_queued_events"
DEFAULT_QUEUE_EVENTS = 16_384
EVENTS_PER_CHANGE = 8
"""At most so many of the kernel's events become one change of a name."""


class FolderEvents(NamedTuple):
    """Changes since the last call."""

    names: Mapping[str, set[str]] = {}
    """By folder: files that were made, written, renamed or removed there."""
    folders: Set[str] = frozenset()
    """Folders that changed themselves, so that any name there may have changed."""
    may_lack_names: bool = False
    """Whether these are so many changes that the kernel may have dropped others."""


class FolderEventSource:
    """A watch on some folders, from the moment it is made until it is closed."""

    retry_seconds = math.inf
    """Seconds after which to try another source."""

    def __init__(self, folders: Iterable[str]) -> None:
        """Watch those of these folders that exist and whose paths are UTF-8; one that may not be
        read has no events.

        Raises:
            OSError: the kernel refuses a watch, such as for want of descriptors, watches or a
                thread; or the module of watchfiles cannot be loaded."""
        # Loaded on the thread that waits for events, so that no start waits for it.
        native = _load_rust_notify()
        self._error = native.WatchfilesRustInternalError
        self.folders = frozenset(path for path in folders if is_utf8(path) and os.path.isdir(path))
        _require_thread()
        try:
            self._notify = native.RustNotify(
                [*self.folders],
                debug=False,
                force_polling=False,
                poll_delay_ms=0,
                recursive=False,
                ignore_permission_denied=True,
            )
        except self._error as error:
            raise OSError(str(error)) from None
        self._many_changes = _max_queued_events() // EVENTS_PER_CHANGE

    def wait(self, seconds: float, step_ms: int = STEP_MS) -> FolderEvents:
        """Wait at most this long for changes; check for them once in `step_ms` milliseconds.

        Raises:
            OSError: a name is not UTF-8; no more events come from this watch."""
        try:
            gather = max(GATHER_MS, step_ms)
            events = self._notify.watch(gather, step_ms, max(1, round(seconds * 1000)), None)
        except self._error as error:
            raise OSError(str(error)) from None
        if isinstance(events, str):
            return FolderEvents()
        names: dict[str, set[str]] = {}
        for _, path in events:
            folder, _, name = path.rpartition("/")
            if folder in self.folders:
                names.setdefault(folder, set()).add(name)
        changed = self.folders & {path for _, path in events}
        return FolderEvents(names, changed, len(events) >= self._many_changes)

    def close(self) -> None:
        """End the watch."""
        self._notify.close()


def _load_rust_notify() -> Any:
    """The compiled module of watchfiles. Its package also imports modules that are not used here,
    such as multiprocessing: 20 ms and 2.5 MiB.

    Raises:
        OSError: it cannot be loaded, or lacks a name that is used here."""
    name = "watchfiles._rust_notify"
    native: Any = sys.modules.get(name)  # can be loaded only once in a process
    try:
        package = PathFinder.find_spec("watchfiles")
        spec = package and PathFinder.find_spec(name, package.submodule_search_locations)
        if native is None and spec and spec.loader:
            native = module_from_spec(spec)
            spec.loader.exec_module(native)
            sys.modules[name] = native
        elif native is None:
            from watchfiles import _rust_notify as native  # installed by another import hook
    except ImportError as error:
        raise OSError(str(error)) from error
    if lacks := {"RustNotify", "WatchfilesRustInternalError"} - vars(native).keys():
        raise OSError(f"{name} has no {', '.join(lacks)}, as watchfiles 1 has")
    return native


class PollingWatch:
    """Replaces events where they are not available: the folder times are compared more often."""

    retry_seconds = 10.0

    def __init__(self, folders: Iterable[str]) -> None:
        self.folders = frozenset(folders)

    def wait(self, seconds: float, step_ms: int = STEP_MS) -> FolderEvents:
        """Sleep: there are no events."""
        time.sleep(seconds)
        return FolderEvents()

    def close(self) -> None:
        """Nothing to close."""


def open_event_source(folders: Iterable[str]) -> FolderEventSource | PollingWatch:
    """A watch on these folders, or its replacement if the kernel has no more watches."""
    try:
        return FolderEventSource(folders)
    except OSError:
        return PollingWatch(folders)


def is_utf8(name: str) -> bool:
    """True if watchfiles can watch a path, or report a name."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _max_queued_events() -> int:
    """Events that the kernel keeps until they are read; it drops those that follow."""
    try:
        with open(QUEUE_LIMIT) as file:
            return int(file.read())
    except (OSError, ValueError):
        return DEFAULT_QUEUE_EVENTS


def _require_thread() -> None:
    """Start a thread that ends: watchfiles needs one, and aborts the process if it gets none.

    Raises:
        OSError: none can be started."""
    probe = threading.Thread(target=bool, daemon=True)
    try:
        probe.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    probe.join()


CHECK_SECONDS = 1.0
"""Seconds between comparisons of folder times, if all folders have events."""
LAST_EVENTS_SECONDS = 0.01
"""Seconds for the last events of a watch that is replaced."""
TURN_SECONDS = 0.2
"""Seconds until the thread sees that the places have changed, and between comparisons of folder
times if some folders have no events."""
EVENT_DELAY_SECONDS = 0.2
"""Seconds that an event may come after its folder's time has changed."""
MTIME_GRAIN_NANOSECONDS = 50_000_000
"""Nanoseconds: two changes closer than this may give a folder the same modification time."""


class Stamp(NamedTuple):
    """The identity and modification time of a folder."""

    folder: tuple[int, int]
    """Device and inode."""
    modified: int
    """Nanoseconds."""
    racy: bool
    """True if it may change again without a new modification time."""


class WatchedFolders:
    """The folders of one place, and their times at their last events. One may be in another."""

    def __init__(
        self,
        paths: Iterable[str],
        touched: Callable[[set[str]], None],
        everything: Callable[[], None],
        is_shown: Callable[[], bool],
    ) -> None:
        """Calls `touched` with names, or `everything` for a full scan, on the watch's thread."""
        self.paths = frozenset(map(os.path.abspath, paths))
        self.is_shown = is_shown
        self.is_ready = threading.Event()
        """Set once changes are followed."""
        self._touched, self._everything = touched, everything
        self._known: dict[str, Stamp | None] = dict.fromkeys(self.paths)
        self._doubts: dict[str, float] = {}
        self._last_events: dict[str, float] = {}
        self._order = sorted(self.paths)
        self._below: dict[str, list[str]] = {}
        for path in self._order:
            self._below.setdefault(os.path.dirname(path), []).append(path)

    def begin(self, watched: Container[str]) -> bool:
        """Report what changed while there was no watch; a folder without one counts as missing.
        True if such a folder is there now: it was made while the watch began. Perhaps the watch of
        the folder above it began after that, and then no event will report it."""
        is_late = False
        for path in self.paths:
            is_late = is_late or (path not in watched and os.path.isdir(path))
            now = _stamp(path) if path in watched else None
            if not self.is_ready.is_set():
                self._known[path] = now
            elif _folder(before := self._known[path]) != _folder(now):
                self._known[path] = now
                if before is None:
                    self._touched(_names(path))
                else:
                    self._everything()
        self.is_ready.set()
        return is_late

    def pass_on(self, events: FolderEvents, turn: float) -> bool:
        """Forward the events of these folders; True if one of the folders changed itself."""
        rang = self.paths & events.names.keys()
        replaced = self.paths & events.folders
        if replaced or (rang and events.may_lack_names):
            self._everything()
        elif rang:
            self._touched(set().union(*(events.names[path] for path in rang)))
        for path in rang - replaced:
            # Events are in order: without an overflow there is no earlier change without one.
            stamp = _stamp(path)
            if _folder(stamp) == _folder(self._known[path]):
                self._known[path] = stamp and stamp._replace(racy=False)
            self._doubts.pop(path, None)
            self._last_events[path] = turn
        for path in replaced:
            # Removed and made again: another folder in its place may have the same times.
            stamp = self._known[path]
            self._known[path] = stamp and stamp._replace(racy=True)
        return bool(replaced) or any(self._may_have_appeared(path, events) for path in rang)

    def _may_have_appeared(self, path: str, events: FolderEvents) -> bool:
        missing = (below for below in self._below.get(path, ()) if self._known[below] is None)
        names = events.names[path]
        return any(events.may_lack_names or os.path.basename(one) in names for one in missing)

    def check(self, turn: float) -> bool:
        """Compare the times; True if a folder appeared, went or was replaced."""
        now: dict[str, Stamp | None] = {}
        unchanged = set[str]()
        for path in self._order:
            stamp = self._known[path]
            # A missing folder appears only if the one above it changes.
            if (stamp is None and os.path.dirname(path) in unchanged) or _is_at(stamp, path):
                unchanged.add(path)
            else:
                now[path] = _stamp(path)
        if any(_folder(self._known[path]) != _folder(now[path]) for path in now):
            return True
        self._doubts = {path: self._doubts.get(path, turn) for path in now}
        if any(turn - since > EVENT_DELAY_SECONDS for since in self._doubts.values()):
            self._known |= now
            self._doubts = {}
            self._everything()
        return False

    @property
    def has_doubts(self) -> bool:
        """True if a folder's time has changed, and its event may be on its way."""
        return bool(self._doubts)

    def changed(self, turn: float) -> set[str]:
        """Folders that may have changed since their last event, whose next events are lost. The
        time of one that had events a moment ago may be that of a later change."""
        for path, last in self._last_events.items():
            if turn - last < EVENT_DELAY_SECONDS and (stamp := self._known[path]):
                self._known[path] = stamp._replace(racy=True)
        return {path for path, stamp in self._known.items() if not _is_at(stamp, path)}


class SharedFolderWatch:
    """One thread and one watch of the kernel for any number of places; it ends with the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._places: tuple[WatchedFolders, ...] = ()
        self._thread: threading.Thread | None = None
        self._polled: set[str] = set()
        """Folders without events: a name in them cannot be reported."""

    def follow(self, place: WatchedFolders, patience: float) -> Callable[[], None]:
        """Follow a place; returns when it is watched, or after `patience` seconds. Returns a
        function that ends that, without waiting."""
        with self._lock:
            self._places = (*self._places, place)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="spooldeck-watch", daemon=True
                )
                self._thread.start()
        place.is_ready.wait(patience)
        return partial(self._leave, place)

    def _leave(self, place: WatchedFolders) -> None:
        with self._lock:
            self._places = tuple(other for other in self._places if other is not place)

    def _run(self) -> None:
        events: FolderEventSource | PollingWatch = PollingWatch(())
        while places := self._next_places():
            paths = {path for place in places for path in place.paths}
            self._polled = {path for path in paths if path in self._polled or not is_utf8(path)}
            before, events = events, open_event_source(paths - self._polled)
            # The old watch ends after the new one has begun, so that no event is lost.
            if before.folders:
                try:
                    changes = before.wait(LAST_EVENTS_SECONDS)
                    for place in places:
                        place.pass_on(changes, time.monotonic())
                except OSError:
                    self._poll_unnameable(places)
            before.close()
            watched = events.folders | self._polled
            if [place for place in places if place.begin(watched)]:
                continue  # with a watch that also has the late folders
            try:
                self._listen(events, places)
            except OSError:
                self._poll_unnameable(places)
        events.close()

    def _next_places(self) -> tuple[WatchedFolders, ...]:
        with self._lock:
            if not self._places:
                self._thread = None
            return self._places

    def _listen(
        self, events: FolderEventSource | PollingWatch, places: tuple[WatchedFolders, ...]
    ) -> None:
        """Forward events until the places change, or a folder appears, goes or is replaced."""
        began = checked = turn = changed = time.monotonic()
        is_polling = self._polled or isinstance(events, PollingWatch)
        pause = TURN_SECONDS if is_polling else CHECK_SECONDS
        while self._places is places and turn - began < events.retry_seconds:
            step_ms = STEP_MS if turn - changed < QUIET_SECONDS else QUIET_STEP_MS
            if not any(place.is_shown() for place in places):
                step_ms = SLOW_STEP_MS
            changes = events.wait(TURN_SECONDS, step_ms)
            turn = time.monotonic()
            renewed: list[WatchedFolders] = []
            if changes.names or changes.folders:
                changed = turn
                renewed += [place for place in places if place.pass_on(changes, turn)]
            if turn - checked >= pause or any(place.has_doubts for place in places):
                checked = turn
                renewed += [place for place in places if place.check(turn)]
            if renewed:
                return

    def _poll_unnameable(self, places: Iterable[WatchedFolders]) -> None:
        """Do without events for the folders with a name that is not UTF-8, which ended the watch;
        if it is gone already, for all that have changed."""
        turn = time.monotonic()
        changed = {path for place in places for path in place.changed(turn)}
        self._polled |= {path for path in changed if not all(map(is_utf8, _names(path)))} or changed


def _names(folder: str) -> set[str]:
    try:
        return set(files.list_names(folder))
    except OSError:
        return set()  # deleted again: the next turn finds out


def _stamp(path: str) -> Stamp | None:
    try:
        folder_stat = os.stat(path)
    except OSError:
        return None
    if not stat.S_ISDIR(folder_stat.st_mode):
        return None
    racy = time.time_ns() - folder_stat.st_mtime_ns < MTIME_GRAIN_NANOSECONDS
    return Stamp((folder_stat.st_dev, folder_stat.st_ino), folder_stat.st_mtime_ns, racy)


def _folder(stamp: Stamp | None) -> tuple[int, int] | None:
    return None if stamp is None else stamp.folder


def _is_at(known: Stamp | None, path: str) -> bool:
    """True if a folder cannot have changed since its stamp."""
    try:
        folder_stat = os.stat(path)
    except OSError:
        return known is None
    if known is None:
        return not stat.S_ISDIR(folder_stat.st_mode)
    is_same = known[:2] == ((folder_stat.st_dev, folder_stat.st_ino), folder_stat.st_mtime_ns)
    return is_same and not known.racy
