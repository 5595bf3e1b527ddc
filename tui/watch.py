"""What is looked at once a second beside the tasks: the lock, the metrics files, the logs.

Everything here blocks, so the screen calls it on a thread, one call at a time.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from engine import metrics
from engine.logtail import LogLine, Tail
from engine.model import LockEvidence, Verdict
from engine.store import StoreError
from tui.figures import Reading
from tui.place import Place

KEPT = 500
"""Log lines that are kept: more than any screen shows."""


class Signs(NamedTuple):
    """How a place looked, apart from its tasks."""

    lock: LockEvidence | None = None
    queue: Reading = None
    mail: Reading = None
    log: tuple[LogLine, ...] = ()


def lock_of(place: Place) -> LockEvidence | None:
    """What is to be said of a place's lock now; None where it has none."""
    if place.lock is None:
        return None
    try:
        return place.lock()
    except (OSError, StoreError) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=str(error))


class Watch:
    """Looks at one place; reads a file again only when it has changed."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._files = (File(place.queue_metrics), File(place.mail_metrics))
        self._tails = [Tail(path) for path in place.logs]
        self._log: deque[LogLine] = deque(maxlen=KEPT)
        self._shown: tuple[LogLine, ...] = ()

    def look(self) -> Signs:
        """How it looks now."""
        queue, mail = (file.read() for file in self._files)
        return Signs(lock_of(self._place), queue, mail, self._follow())

    def _follow(self) -> tuple[LogLine, ...]:
        new = merged([_polled(tail) for tail in self._tails])
        if new:
            self._log.extend(new)
            self._shown = tuple(self._log)
        return self._shown

    def close(self) -> None:
        """Let go of the logs."""
        for tail in self._tails:
            tail.close()


def merged(logs: Iterable[Sequence[LogLine]]) -> list[LogLine]:
    """Lines of several logs in the order of time; one without a time stays where it was."""
    timed: list[tuple[float, LogLine]] = []
    for log in logs:
        when = 0.0
        for line in log:
            when = when if line.when is None else line.when
            timed.append((when, line))
    return [line for _, line in sorted(timed, key=itemgetter(0))]


def _polled(tail: Tail) -> Sequence[LogLine]:
    try:
        return tail.poll()
    except OSError:
        return ()  # not readable now: the tail takes it up again when it is


class File:
    """A metrics file, parsed anew only when it was written."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._reading: Reading = None

    def read(self) -> Reading:
        """What it holds now; why not, in words; None when there is no such file to be read."""
        if not self._path:
            return None
        try:
            state = os.stat(self._path)  # noqa: PTH116 - a path as it was configured
            seen = (state.st_ino, state.st_mtime_ns, state.st_size)
            if seen != self._seen:
                self._reading = metrics.read(self._path)
                self._seen = seen
        except OSError as error:
            self._seen, self._reading = None, error.strerror or str(error)
        except metrics.BadMetrics as error:
            self._seen, self._reading = seen, f"not understood: {error}"
        return self._reading
