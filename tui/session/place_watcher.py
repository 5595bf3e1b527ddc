"""What is looked at once a second beside the tasks: the lock, the metrics files, the logs.

Everything here blocks, so the screen calls it on a thread, one call at a time.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from engine.locks.token_buckets import Left
from engine.logs.log_tail import LogLine, Tail
from engine.logs.task_events import EventKind, event
from engine.model import LockEvidence, Verdict
from engine.monitor import prometheus
from engine.monitor.delivery_reader import Deliveries
from engine.monitor.mail_monitor import NO_RECORDS, Transports
from engine.monitor.metrics_check import LAST_RUN, Reading
from engine.monitor.throughput import Runs, runs_seen
from engine.monitor.transport_health import (
    Failure,
    MailBacklog,
    Routes,
    Sending,
    log_among,
    settled,
)
from engine.operations.notes import NOTHING, Noted
from engine.store import StoreError, Unavailable
from tui.session.place import Place, PlaceFigures
from tui.session.recent_events import Doings

KEPT = 500
"""Log lines that are kept: more than any screen shows."""

SPARING = 20
"""What a queue says of itself is asked again no sooner than after so many times what that took."""


class Signs(NamedTuple):
    """How a place looked, apart from its tasks."""

    lock: LockEvidence | None = None
    queue: Reading = None
    mail: Reading = None
    log: tuple[LogLine, ...] = ()
    sending: Sending = Sending()
    """How mail is sent from there."""
    ran: float | None = None
    """When a log last spoke of a run, epoch seconds UTC; None when none did."""
    tokens: Sequence[Left] | str = ()
    """What the buckets of its limits hold; why that cannot be read, in words."""
    notes: Noted = NOTHING
    """What operators wrote down about its tasks, as far as it was read."""
    unread: str = ""
    """Why that could not be read now; "" when it was."""
    routes: Routes | None = None
    """By which way mail goes; None where nothing is known of that."""
    facts: PlaceFigures = PlaceFigures()
    """What is to be known of the queue as a whole."""
    runs: Runs | None = None
    """The runs that log and metrics show; None where these are not read to their end."""


def lock_of(place: Place) -> LockEvidence | None:
    """What is to be said of a place's lock now; None where it has none."""
    if place.lock is None:
        return None
    try:
        return place.lock()
    except (OSError, StoreError) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=str(error))


def tokens_of(place: Place) -> Sequence[Left] | str:
    """What the buckets of a place hold now; why that cannot be read, in words."""
    try:
        return () if place.tokens is None else place.tokens()
    except OSError as error:
        return error.strerror or str(error)
    except StoreError as error:
        return str(error)


def routes_of(place: Place) -> Routes | None:
    """By which way mail leaves a place now; None where nothing is known of that."""
    if place.mail is None:
        return None
    try:
        return place.mail.routes(place.mail.stopped())
    except Unavailable as error:
        return Routes(unknown=str(error), blocked=isinstance(error.__cause__, ValueError))


def heap_of(place: Place) -> MailBacklog | str | None:
    """What the mail spool of a place holds now; why that is not known, in words."""
    try:
        return None if place.mail is None else place.mail.heap()
    except Unavailable as error:
        return str(error)


def facts_of(place: Place) -> PlaceFigures:
    """What is to be known of the queue of a place as a whole now."""
    try:
        return PlaceFigures() if place.facts is None else place.facts()
    except OSError as error:
        return PlaceFigures(unknown=error.strerror or str(error))
    except StoreError as error:
        return PlaceFigures(unknown=str(error))


class PlaceWatcher:
    """Looks at one place; reads a file again only when it has changed."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._place, self._clock = place, clock
        self._files = (File(place.queue_metrics), File(place.mail_metrics))
        self._tails = [Tail(path) for path in place.logs]
        self._log: deque[LogLine] = deque(maxlen=KEPT)
        self._shown: tuple[LogLine, ...] = ()
        self.doings = Doings(place.logs)
        """What the logs say happened to tasks."""
        self._transports = Transports(log_among(place.logs))
        self._records: Deliveries | None = None
        self._ran: float | None = None
        self._last_runs: deque[float] = deque(maxlen=KEPT)
        self._notes: Noted = NOTHING
        self._facts = PlaceFigures()
        self._facts_due = float("-inf")

    def look(self) -> Signs:
        """How it looks now."""
        queue, mail = (file.read() for file in self._files)
        routes = routes_of(self._place)
        names = () if routes is None else routes.order
        sending = self._transports.look(mail, self._clock(), names, self._read_records())
        sending = settled(sending, routes)._replace(heap=heap_of(self._place))
        log = self._follow()
        self.doings.look(self._clock())
        tokens = tokens_of(self._place)
        unread = self._read_notes()
        lock = lock_of(self._place)
        told = (sending, self._ran, tokens, self._notes, unread, routes, self._read_facts())
        return Signs(lock, queue, mail, log, *told, self._see_runs(queue))

    def _see_runs(self, queue: Reading) -> Runs | None:
        """The runs, from started tasks in the logs and each last run that the metrics had."""
        last = queue.get(LAST_RUN) if isinstance(queue, prometheus.Samples) else None
        if last and last not in self._last_runs:
            self._last_runs.append(last)
        return runs_seen((*self.doings.starts, *self._last_runs)) if self.doings.is_read else None

    def _read_records(self) -> Mapping[str, Sequence[Failure]]:
        """What the delivery records tell of failures; they only add to what the log says."""
        if self._place.mail is None:
            return NO_RECORDS
        try:
            if self._records is None:
                self._records = Deliveries(self._place.mail.records())
            return self._records.look()
        except (OSError, Unavailable):
            return NO_RECORDS

    def _read_facts(self) -> PlaceFigures:
        """What the queue says of itself; where that takes long, it is not asked each time."""
        began = time.monotonic()
        if began >= self._facts_due:
            self._facts = facts_of(self._place)
            ended = time.monotonic()
            self._facts_due = ended + SPARING * (ended - began)
        return self._facts

    def _read_notes(self) -> str:
        """Read them if they changed; why that cannot be done now, and those read last stay."""
        try:
            if self._place.notes is not None:
                self._notes = self._place.notes.all()
        except Unavailable as error:
            return str(error)
        return ""

    def _follow(self) -> tuple[LogLine, ...]:
        new = merged([_polled(tail) for tail in self._tails])
        if new:
            self._log.extend(new)
            runs = (line.when for line in new if line.when is not None and speaks_of_run(line))
            self._ran = max(runs, default=self._ran)
            self._shown = tuple(self._log)
        return self._shown

    def close(self) -> None:
        """Let go of the logs."""
        self.doings.close()
        for tail in self._tails:
            tail.close()
        self._transports.close()


def speaks_of_run(line: LogLine) -> bool:
    """Whether a line was written by whoever works tasks off, not by whoever adds some."""
    if line.text.startswith("Queue processor "):
        return True
    told = event(line)
    # Mail that is sent without the queue says nothing of it.
    return told is not None and not told.transport and told.what not in _BY_OTHERS


_BY_OTHERS = (EventKind.QUEUED, EventKind.RETRIED)


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
                self._reading = prometheus.read(self._path)
                self._seen = seen
        except OSError as error:
            self._seen, self._reading = None, error.strerror or str(error)
        except prometheus.BadMetrics as error:
            self._seen, self._reading = seen, f"not understood: {error}"
        return self._reading


def not_abandoned(
    evidence: LockEvidence | None, lingering: Callable[[], int | None] = lambda: None
) -> str:
    """Why what is in work may be somebody's still; "" where nobody works on it.

    `lingering` answers with a process that works on without its lock file; it is asked where there
    is no lock.
    """
    if evidence is None:
        return "this place has no lock, so nobody knows whether what is in work is abandoned"
    if evidence.verdict in (Verdict.FREE, Verdict.STALE):
        pid = lingering() if evidence.verdict is Verdict.FREE else None
        return "" if pid is None else f"PID {pid} works on though its lock file was removed"
    if evidence.verdict is Verdict.UNKNOWN:
        return "who has the lock is not known, so what is in work may be somebody's"
    who = f"PID {evidence.pid}" if evidence.pid is not None else "somebody"
    return f"{who} has the lock, nothing in work is abandoned; free it first"
