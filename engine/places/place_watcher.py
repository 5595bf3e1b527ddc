"""Read a place's lock, metrics files, logs, notes and delivery records, once a second.

Everything here blocks; the session calls it on a thread, one call at a time."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

from engine.destinations.watch import DestinationsReading
from engine.locks.process_stats import count_open_files
from engine.locks.token_buckets import BucketState
from engine.logs.log_line import LogLine
from engine.logs.merged_log import END, LineScan, LogPosition, MergedLog
from engine.logs.recent_lines import REACH_SECONDS
from engine.logs.task_events import EventKind, TaskEvent, parse_event
from engine.model import LockEvidence, Verdict
from engine.monitor import prometheus
from engine.monitor.alerts import LimitUse
from engine.monitor.delivery_reader import DeliveryReader
from engine.monitor.latency import KindFigures
from engine.monitor.mail_monitor import NO_RECORDS, TransportMonitor
from engine.monitor.metrics_check import LAST_RUN, MetricsReading, Rest
from engine.monitor.throughput import RunTimes, measure_runs
from engine.monitor.transport_health import (
    OTHER_SETTINGS,
    Failure,
    MailHealth,
    MailRoutes,
    Refusals,
    believe_log,
    find_mail_log,
    mark_explained,
)
from engine.operations.notes import NO_NOTES, NotesById
from engine.places.place import Place, WholeQueueFigures
from engine.places.recent_events import RecentTaskEvents
from engine.store import StoreError, Unavailable
from engine.system import mounts
from engine.system.host import DiskSpace, HostFigures, identify_folders
from engine.text.error_text import error_text
from engine.values import NamedTuple

MAX_LOG_LINES = 500
"""Maximum log lines kept, more than any screen shows."""

MAX_NEW_LINES, MAX_STEPS = 10_000, 16
"""Lines and steps of one reading; the next one goes on."""

FIGURES_COST_FACTOR = 20
"""Minimum pause between two reads of the queue's state, by the duration of the last one."""

QUICK_READ_SECONDS, QUICK_PAUSE_SECONDS = 0.25, 1.5
"""Duration of a quick read, and the maximum pause after one: only the next read finds that the
server has stopped."""

MAX_RETRY_SECONDS = 5.0
"""Maximum pause after a state that could not be read, however long that took."""

REGISTRY_SECONDS = 2.0
"""Minimum seconds between two reads of the registry of destinations."""

T = TypeVar("T")


class PlaceReadings(NamedTuple):
    """What was read of a place, apart from its tasks. A field without a text has the last answer of
    what has this name, or returns this type, in `Place` and `PlaceMail`."""

    lock: LockEvidence | None = None
    queue: MetricsReading = None
    mail: MetricsReading = None
    log: tuple[LogLine, ...] = ()
    sending: MailHealth = MailHealth()
    last_run: float | None = None
    """Time of the last run in a log, epoch seconds UTC; None if no run is logged."""
    tokens: Sequence[BucketState] | str = ()
    """Tokens of its rate limits, or why they cannot be read."""
    notes: NotesById = NO_NOTES
    notes_error: str = ""
    """Why the notes cannot be read now; "" if they can."""
    routes: MailRoutes | None = None
    queue_figures: WholeQueueFigures = WholeQueueFigures()
    listed_at: float | None = None
    """The last listing when the figures were read: they may count what it has shown."""
    runs: RunTimes | None = None
    """Worker runs in logs and metrics; None until these are read to their end."""
    kinds: tuple[KindFigures, ...] | None = None
    """Figures of each kind with runs in the log; None until the logs are read to their end."""
    destinations: DestinationsReading = DestinationsReading()
    host: HostFigures | None = None
    journal_changed: int = 0
    """Modification time of the journal's folder in nanoseconds; 0 if missing."""
    refusals: Refusals | str = Refusals()
    """Mails refused for good or lost, of the delivery records; or why these cannot be read."""
    lacks: tuple[TaskEvent, ...] = ()
    """The lines of the last hour about what workers lack, one of each kind."""
    clock_step: str = ""
    mail_obstacle: str = ""
    identity: tuple[tuple[int, int], ...] = ()
    """Device and inode of the folders of its tasks, or of its file; () if unknown, or a server."""
    disks: tuple[DiskSpace, ...] = ()
    limits: tuple[LimitUse, ...] = ()
    """Limits of the processes of the place, with how much of each is used."""
    rest: Rest | None = None
    """Since when and until when no task has come, left or moved; None if unknown."""
    is_watched: bool = False
    """True if the kernel reports changes of its files: a local file system, not another host."""

    @property
    def is_without_worker(self) -> bool:
        """True if the lock is free; without a lock, if no worker of any program runs there."""
        if self.lock is None:
            return self.queue_figures.has_worker is False
        return self.lock.verdict is Verdict.FREE

    def without_answer(self, why: str) -> PlaceReadings:
        """These readings while the place does not answer: unknown, and why. What has its own times
        stays: log lines, notes, destinations."""
        routes, mail = self.routes, self.sending
        return self._replace(
            lock=self.lock and LockEvidence(Verdict.UNKNOWN, reason=why),
            queue=self.queue and why,
            mail=self.mail and why,
            sending=MailHealth(sources=mail.sources, backlog=mail.backlog and why),
            tokens=self.tokens and why,
            routes=routes and MailRoutes(unknown=why),
            queue_figures=WholeQueueFigures(unknown=why),
            runs=None,
            kinds=None,
            destinations=self.destinations._replace(unknown=why),
            host=None,
            refusals=why,
            clock_step="",
            disks=(),
            limits=(),
            rest=None,
        )


def read_lock(place: Place) -> LockEvidence | None:
    """Lock evidence of a place now; None if it has no lock."""
    if place.lock is None:
        return None
    try:
        return place.lock()
    except (OSError, StoreError) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=str(error))


def _try_to_read(read: Callable[[], T]) -> T | str:
    """What is read, or why it cannot be."""
    try:
        return read()
    except (OSError, StoreError) as error:
        return error_text(error)


def read_routes(place: Place) -> MailRoutes | None:
    """Mail routes of a place now; None if unknown."""
    if place.mail is None:
        return None
    try:
        return place.mail.routes(place.mail.suspended())
    except Unavailable as error:
        return MailRoutes(unknown=str(error), blocked=isinstance(error.__cause__, ValueError))


def limit_open_files(lock: LockEvidence | None, workers: Collection[int]) -> Iterator[LimitUse]:
    """Yield the open files of the lock's holder and of other workers of a place, with their limits;
    not of processes that we may not see, nor of one that is not proven to hold the lock here: its
    number may be that of an unrelated process."""
    holds = lock is not None and lock.is_proven and lock.verdict in (Verdict.HELD, Verdict.STUCK)
    holder = lock.pid if lock is not None and holds else None
    for pid in sorted({*workers, *(() if holder is None else (holder,))}):
        if (used := count_open_files(pid)) is not None:
            yield LimitUse(f"open files of PID {pid}", *used)


def read_queue_figures(place: Place) -> WholeQueueFigures:
    """State of a place's queue as a whole now."""
    figures = _try_to_read(place.queue_figures or WholeQueueFigures)
    return WholeQueueFigures(unknown=figures) if isinstance(figures, str) else figures


def read_destinations(place: Place) -> DestinationsReading:
    """The registry of destinations of a place now."""
    if place.destinations is None:
        return DestinationsReading()
    try:
        return DestinationsReading(tuple(place.destinations.read()), is_configured=True)
    except StoreError as error:
        return DestinationsReading(unknown=str(error), is_configured=True)


class PlaceWatcher:
    """Reads one place; a file is read again only if it has changed."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.time) -> None:
        self._place, self._clock = place, clock
        self._files = (MetricsReader(place.queue_metrics), MetricsReader(place.mail_metrics))
        self._book = MergedLog(place.all_logs, cached_cells=2 * len(place.all_logs))
        self._position: LogPosition | None = None
        """The end of the log lines that were read; None: none were."""
        self._is_at_end = False
        self._log: deque[LogLine] = deque(maxlen=MAX_LOG_LINES)
        self._latest_lines: tuple[LogLine, ...] = ()
        self.recent_events = RecentTaskEvents(place.logs)
        self._transports = TransportMonitor(find_mail_log(place.logs))
        self._records: DeliveryReader | None = None
        self._refusals: Refusals | str = Refusals()
        self._ran: float | None = None
        self._last_runs: deque[float] = deque(maxlen=MAX_LOG_LINES)
        self._notes: NotesById = NO_NOTES
        self._facts = WholeQueueFigures(), "", place.listed_at()
        self.destinations = DestinationsReading()
        """The registry of destinations, as last read."""
        self._facts_due = self._registry_due = float("-inf")
        self._is_watched: bool | None = None

    def read_all(self) -> PlaceReadings:
        """Read everything."""
        place = self._place
        queue, mail = (file.read() for file in self._files)
        routes = read_routes(place)
        names = () if routes is None else routes.order
        sending = self._transports.poll(mail, self._clock(), names, self._read_records())
        routes = believe_log(routes, sending)
        backlog = None if place.mail is None else _try_to_read(place.mail.backlog)
        events, now = self.recent_events, self._clock()
        events.read_new(now)
        notes = self._notes if place.notes is None else _try_to_read(place.notes.read_all)
        if not isinstance(notes, str):
            self._notes = notes
        facts, obstacle, listed_at = self._read_facts()
        obstacle = "" if routes is not None and routes.unknown == OTHER_SETTINGS else obstacle
        logged = events.latency.figures(now, began=events.began) if events.is_read else None
        lock, journal = read_lock(place), place.journal
        if self._is_watched is None:
            where = place.location  # or the URL of a server
            self._is_watched = os.path.lexists(where) and not mounts.may_hang(where)
        changed_until = self._clock()
        changes = [stamp / 1e9 for each in place.task_folders if (stamp := folder_mtime(each))]
        return PlaceReadings(
            lock=lock,
            queue=queue,
            mail=mail,
            log=self._follow(),
            sending=mark_explained(sending, routes)._replace(backlog=backlog),
            last_run=self._ran,
            tokens=() if place.tokens is None else _try_to_read(place.tokens),
            notes=self._notes,
            notes_error=notes if isinstance(notes, str) else "",
            routes=routes,
            queue_figures=facts,
            listed_at=listed_at,
            runs=self._see_runs(queue),
            kinds=logged if facts.kinds is None else facts.kinds,
            destinations=self._read_registry(),
            host=place.host(),
            journal_changed=0 if journal is None else folder_mtime(journal.folder),
            refusals=self._refusals,
            lacks=events.current_lacks(now),
            clock_step=place.clock_step(),
            mail_obstacle=obstacle,
            identity=identify_folders((place.location, *place.task_folders)),
            disks=place.disks(),
            limits=tuple(limit_open_files(lock, facts.workers)),
            rest=Rest(max(changes), changed_until) if changes else None,
            is_watched=self._is_watched,
        )

    def _see_runs(self, queue: MetricsReading) -> RunTimes | None:
        """Worker runs, from started tasks in the logs and from the last run in the metrics."""
        last = queue.get(LAST_RUN) if isinstance(queue, prometheus.Samples) else None
        if last and last not in self._last_runs:
            self._last_runs.append(last)
        runs = (*self.recent_events.starts, *self._last_runs)
        return measure_runs(runs) if self.recent_events.is_read else None

    def _read_records(self) -> Mapping[str, Sequence[Failure]]:
        """Add the failures in the delivery records to those in the log; note the refusals."""
        if self._place.mail is None:
            return NO_RECORDS
        try:
            if self._records is None:
                self._records = DeliveryReader(*self._place.mail.records())
            failures = self._records.read()
        except (OSError, Unavailable) as error:
            self._refusals = f"delivery records cannot be read: {error_text(error)}"
            return NO_RECORDS
        self._refusals = self._records.refusals
        return failures

    def _read_facts(self) -> tuple[WholeQueueFigures, str, float | None]:
        """Read the queue's state and why no mail can be sent, after each listing, else less often
        if it takes long."""
        began, mail, listed_at = time.monotonic(), self._place.mail, self._place.listed_at()
        if began >= self._facts_due or listed_at != self._facts[2]:
            obstacle = "" if mail is None else _try_to_read(mail.obstacle)
            self._facts = read_queue_figures(self._place), obstacle, listed_at
            ended = time.monotonic()
            pause = FIGURES_COST_FACTOR * (ended - began)
            if ended - began <= QUICK_READ_SECONDS:
                pause = min(pause, QUICK_PAUSE_SECONDS)
            elif self._facts[0].unknown:
                pause = min(pause, MAX_RETRY_SECONDS)
            self._facts_due = ended + pause
        return self._facts

    def _read_registry(self) -> DestinationsReading:
        """Read the registry of destinations every few seconds; if that takes long, less often."""
        began = time.monotonic()
        if began >= self._registry_due:
            registry = read_destinations(self._place)
            ended = time.monotonic()
            if registry.unknown:  # show the last known ones, with the reason
                registry = registry._replace(found=self.destinations.found)
            if self._registry_due < began:  # else a newer one was noted meanwhile
                self.note_destinations(registry)
            pause = max(REGISTRY_SECONDS, FIGURES_COST_FACTOR * (ended - began))
            self._registry_due = ended + pause
        return self.destinations

    def note_destinations(self, registry: DestinationsReading) -> None:
        """Use a registry that was read after a change, on any thread."""
        self.destinations, self._registry_due = registry, time.monotonic() + REGISTRY_SECONDS

    def _follow(self) -> tuple[LogLine, ...]:
        """Read new log lines, about a megabyte at most; first the last ones, also rotated ones."""
        book, position = self._book, self._position
        try:
            if not book.refresh() and self._is_at_end:
                return self._latest_lines
            if position is None:
                end, since = book.end_position(), self._clock() - REACH_SECONDS
                scan = LineScan(book, END, want=MAX_LOG_LINES, forward=False, since=since)
            else:
                scan = LineScan(book, position, want=MAX_NEW_LINES)
            for _ in range(MAX_STEPS):
                if not scan.done:
                    scan.step()
        except OSError:
            return self._latest_lines  # not readable now: the next call reads on
        self._position = end if position is None else scan.reached
        self._is_at_end = position is None or scan.exhausted
        if self._is_at_end:
            book.close_removed()
        new = [entry.line for entry in scan.entries if not entry.is_torn]
        if new:
            self._log.extend(new)
            runs = (line.when for line in new if line.when is not None and is_run_line(line))
            self._ran = max(runs, default=self._ran)
            self._latest_lines = tuple(self._log)
        return self._latest_lines

    def close(self) -> None:
        """Close the logs."""
        self.recent_events.close()
        self._book.close()
        self._transports.close()
        if self._place.destinations is not None:
            self._place.destinations.close()


def is_run_line(line: LogLine) -> bool:
    """True if a worker wrote the line, not a process that adds tasks."""
    if line.text.startswith("Queue processor "):
        return True
    event = parse_event(line)
    # Mail sent without the queue does not prove that a worker runs.
    return event is not None and not event.transport and event.what not in _BY_OTHERS


_BY_OTHERS = (EventKind.QUEUED, EventKind.RETRIED, EventKind.LACKING)


class MetricsReader:
    """A metrics file, parsed again only after a write."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._last_stamp: tuple[int, int, int] | None = None
        self._reading: MetricsReading = None

    def read(self) -> MetricsReading:
        """Its values now, or why it cannot be read; None if there is no such file."""
        if not self._path:
            return None
        try:
            state = os.stat(self._path)
            stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
            if stamp != self._last_stamp:
                self._reading = prometheus.read_metrics(self._path)
                self._last_stamp = stamp
        except OSError as error:
            self._last_stamp, self._reading = None, error_text(error)
        except prometheus.BadMetrics as error:
            self._last_stamp, self._reading = stamp, f"cannot parse: {error}"
        return self._reading


def why_not_abandoned(
    evidence: LockEvidence | None, lingering: Callable[[], int | None] = lambda: None
) -> str:
    """Why active tasks may still have a worker; "" if they have none. `lingering` finds a process
    that works without its lock file; it is called only if there is no lock."""
    if evidence is None:
        return "no lock here: unknown whether active tasks are abandoned"
    if evidence.verdict in (Verdict.FREE, Verdict.STALE):
        pid = lingering() if evidence.verdict is Verdict.FREE else None
        return "" if pid is None else f"PID {pid} still works although its lock file was removed"
    if evidence.verdict is Verdict.UNKNOWN:
        return "lock holder unknown: active tasks may have a worker"
    who = f"PID {evidence.pid}" if evidence.pid is not None else "another process"
    return f"{who} holds the lock: active tasks are not abandoned; free it first"


def folder_mtime(folder: str) -> int:
    """Modification time of a folder in nanoseconds; 0 if it is missing."""
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return 0
