"""Names of changed files in some folders, from the kernel by watchfiles (inotify(7) on Linux).

watchfiles does not report that the kernel's event queue overflowed, and it cannot report a name or
watch a path that is not UTF-8. An overflow needs a queue full of events, so many changes in
one answer are taken for one; `shared_watch` compares folder times and finds what else was missed.
"""

from __future__ import annotations

import errno
import math
import os
import threading
import time
from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

STEP_MS, GATHER_MS = 10, 20
"""Milliseconds: interval at which watchfiles checks for events; longest time to collect them."""
QUIET_STEP_MS, QUIET_SECONDS = 20, 10.0
"""The interval in milliseconds after so many seconds without a change: 100 checks a second of
nothing are 0.4 % of a CPU."""
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
            OSError: the kernel refuses a watch, such as for want of file descriptors, watches or a
                thread.
        """
        # Imported on the thread that waits for events, so that no start waits for it.
        from watchfiles._rust_notify import RustNotify, WatchfilesRustInternalError

        self._error = WatchfilesRustInternalError
        self.folders = frozenset(path for path in folders if is_utf8(path) and os.path.isdir(path))
        _require_thread()
        try:
            self._notify = RustNotify(
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
            OSError: a name is not UTF-8; no more events come from this watch.
        """
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
        OSError: none can be started.
    """
    probe = threading.Thread(target=bool, daemon=True)
    try:
        probe.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    probe.join()
