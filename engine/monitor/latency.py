"""Latency per kind of task over the last ten minutes: wait and run p50 and p95, rate and failures.

The wait is the time from due to claim, the run the time from claim to end. Both are from task
events of the log: the line of a start has the wait, or an earlier line or the id shows when the
task became due. The caller passes events and clock in."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import ceil, inf
from operator import attrgetter

from engine.logs.task_events import EventKind, TaskEvent
from engine.monitor.throughput import HISTORY_SECONDS, RATE_WINDOW_SECONDS, seconds_known
from engine.values import NamedTuple

MAX_KINDS = 50
"""Maximum kinds kept; names in logs are not under our control."""

MAX_RUNS = 2_000
"""Maximum runs kept for each kind; with more, the window is shorter than ten minutes."""

MAX_OPEN_TASKS = 10_000
"""Maximum tasks kept whose run has not begun, or not ended."""

LOG, RECORDER = "log", "recorder"
"""Where figures are from: task events of the log, or recorded counts of the queue."""

STEADY_RUNS = 4
"""Successes that are added to the runs for the share that is tried again: of ten runs six may fail
by chance, of a hundred not sixty."""

NO_RUNS = "no runs in the log in 10m"
"""Why figures are unknown if the log has no run of any kind."""

NO_DUE = "wait: most due times are not in the log"
NO_START = "wait and run: most starts are not in the log"
"""Why figures of a kind with runs are unknown."""


class KindFigures(NamedTuple):
    """Figures of one kind of task; None where unknown. Durations are in seconds."""

    kind: str
    per_minute: float | None = None
    failures_share: float | None = None
    wait_p50: float | None = None
    wait_p95: float | None = None
    run_p50: float | None = None
    run_p95: float | None = None
    per_second_now: float | None = None
    """Runs that ended per second in the last minute; since its first one, if that is later."""
    retried_share: float | None = None
    """Share of its runs that failed and are tried again; few runs count as fewer failures
    (`STEADY_RUNS`)."""
    retry_p50: float | None = None
    """Backoff until then."""
    source: str = ""
    """`LOG` or `RECORDER`; "" if nothing is known."""
    unknown: str = ""
    """Why some of it is unknown; "" if all is known."""


class _Run(NamedTuple):
    ended: float
    wait: float | None
    seconds: float | None
    failed: bool


class _TrackedTask(NamedTuple):
    kind: str
    due: float | None
    """When it was or is due; None if no event shows it."""
    began: float | None
    """Start of its running attempt; None while it waits."""


_TRIED = EventKind.FAILED, EventKind.WAITS, EventKind.BURIED
_FAILED_ENDS = (*_TRIED, EventKind.RECOVERED, EventKind.UNSETTLED)
_DUE_IN = {
    EventKind.WAITS: re.compile(r"retry in ([0-9]{1,9})s"),
    EventKind.QUEUED: re.compile(r"\), due in ([0-9]{1,9})s\Z"),
}
_WAITED = re.compile(r"\), waited ([0-9]{1,9}(?:\.[0-9])?)s\Z")
_STAMP = re.compile(r"([0-9]{8}T[0-9]{6}Z)\w*-")


class LatencyMeter:
    """Follows task events and keeps the runs that ended in the last ten minutes."""

    def __init__(self) -> None:
        self._runs: dict[str, deque[_Run]] = {}
        self._retries: dict[str, deque[tuple[float, float]]] = {}
        """By kind: when a run failed that is tried again, and its backoff in seconds."""
        self._tasks: dict[str, _TrackedTask] = {}

    def add(self, events: Iterable[TaskEvent], since: float | None) -> None:
        """Add events in the order of their log; from `since` on (epoch seconds UTC) the caller has
        read every line of it, None: unknown. Lines about the sending of a mail are skipped: they
        belong to the run of a task, which has its own lines."""
        for event in events:
            if event.id and event.when is not None and not event.transport:
                self._add(event, event.when, since)

    def _add(self, event: TaskEvent, when: float, since: float | None) -> None:
        task, what = self._tasks.pop(event.id, None), event.what
        kind = event.kind or ("" if task is None else task.kind)
        if what is EventKind.STARTED:
            due = _first_due(event.id, since) if task is None else task.due
            if (waited := _WAITED.search(event.text)) is not None:
                due = when - float(waited[1])
            self._keep(event.id, _TrackedTask(kind, due, when))
            return
        began = None if task is None else task.began
        if what is EventKind.QUEUED and task is not None and began is not None:
            self._keep(event.id, task)  # claimed before its line was written
            return
        if what is EventKind.SUCCEEDED or what in _FAILED_ENDS:
            is_first_line = task is None and what in (EventKind.SUCCEEDED, EventKind.FAILED)
            if began is not None or is_first_line:
                ended = task or _TrackedTask(kind, None, None)
                self._end(kind, ended, when, what is not EventKind.SUCCEEDED)
        if what is EventKind.SUCCEEDED:
            return
        delay = _DUE_IN[what].search(event.text) if what in _DUE_IN else None
        if what is EventKind.WAITS and kind in self._runs:
            retries = self._retries.setdefault(kind, deque(maxlen=MAX_RUNS))
            retries.append((when, float(delay[1]) if delay else 0.0))
        due = None if what is EventKind.BURIED else when + (float(delay[1]) if delay else 0.0)
        self._keep(event.id, _TrackedTask(kind, due, None))

    def _keep(self, id: str, task: _TrackedTask) -> None:
        self._tasks[id] = task
        if len(self._tasks) > MAX_OPEN_TASKS:
            del self._tasks[next(iter(self._tasks))]

    def _end(self, kind: str, task: _TrackedTask, when: float, failed: bool) -> None:
        if not kind:
            return
        runs = self._runs.pop(kind, deque(maxlen=MAX_RUNS))
        self._runs[kind] = runs  # the kinds are kept in the order of their last run
        if len(self._runs) > MAX_KINDS:
            oldest = next(iter(self._runs))
            del self._runs[oldest]
            self._retries.pop(oldest, None)
        began = task.began
        wait = None if began is None or task.due is None else max(0.0, began - task.due)
        runs.append(_Run(when, wait, None if began is None else max(0.0, when - began), failed))

    def copy(self) -> LatencyMeter:
        """A meter with the same runs; its caller may be another thread than that which adds."""
        other = LatencyMeter()
        other._runs = {kind: runs.copy() for kind, runs in list(self._runs.items())}
        other._retries = {kind: some.copy() for kind, some in list(self._retries.items())}
        return other

    def figures(
        self, now: float, until: float = inf, began: float = inf
    ) -> tuple[KindFigures, ...]:
        """Return the figures of each kind with a run in the ten minutes before `now`, the busiest
        first; for a past time without the runs that ended after `until`. The rates are over the
        time since the logs `began`, if that is shorter."""
        figures, known_seconds = [], seconds_known(now, began, HISTORY_SECONDS)
        for kind, all_runs in self._runs.items():
            # They may be of several logs, or from before and after a clock change.
            runs = sorted(all_runs, key=attrgetter("ended"))
            start = bisect_left(runs, now - HISTORY_SECONDS, key=attrgetter("ended"))
            runs = runs[start : bisect_right(runs, until, key=attrgetter("ended"))]
            is_cut = len(all_runs) == MAX_RUNS and start == 0
            if not runs:
                figures += [KindFigures(kind, unknown="its runs of then are not kept")] * is_cut
                continue
            seconds = now - runs[0].ended if is_cut else known_seconds
            waits = _mostly_known([run.wait for run in runs])
            times = _mostly_known([run.seconds for run in runs])
            since, end = runs[0].ended, runs[-1].ended
            backoffs = [s for at, s in self._retries.get(kind, ()) if since <= at <= end]
            figures.append(
                KindFigures(
                    kind,
                    60 * len(runs) / max(1.0, seconds),
                    sum(run.failed for run in runs) / len(runs),
                    wait_p50=percentile(waits, 0.5),
                    wait_p95=percentile(waits, 0.95),
                    run_p50=percentile(times, 0.5),
                    run_p95=percentile(times, 0.95),
                    per_second_now=_present_rate(runs, now),
                    retried_share=len(backoffs) / (max(len(runs), len(backoffs)) + STEADY_RUNS),
                    retry_p50=percentile(backoffs, 0.5),
                    source=LOG,
                    unknown=NO_START if not times else "" if waits else NO_DUE,
                )
            )
        return tuple(sorted(figures, key=lambda one: (-(one.per_minute or 0.0), one.kind)))


def _present_rate(runs: Sequence[_Run], now: float) -> float | None:
    recent = [run.ended for run in runs if now - run.ended <= RATE_WINDOW_SECONDS]
    return len(recent) / max(1.0, now - recent[0]) if recent else None


def _mostly_known(values: Sequence[float | None]) -> list[float]:
    """The known values; none if most are unknown, because the longest are unknown first."""
    known = [value for value in values if value is not None]
    return known if 2 * len(known) >= len(values) else []


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of all are not above; None without any."""
    if not values:
        return None
    return sorted(values)[max(0, ceil(share * len(values)) - 1)]


def _first_due(id: str, since: float | None) -> float | None:
    """When a task without an earlier line was created, by the time stamp in its id. A task that is
    older than the lines read may have run before, so it is not known since when it was due."""
    match = _STAMP.match(id)
    if match is None or since is None:
        return None
    try:
        created = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None  # digits that are no time
    return created if created >= since else None


def with_unlogged_kinds(
    figures: Sequence[KindFigures],
    waiting: Mapping[str, int],
    outward: float | None,
    finished: bool,
) -> tuple[KindFigures, ...]:
    """Add the kinds that wait or run and have no run in the log.

    If the log has no run at all and all tasks are of one kind, its rate is `outward`, the recorded
    tasks per second that left the queue. If the log has other runs, or no task left the queue, a
    missing kind has none. `finished`: the log was read to its end."""
    if not finished:
        return tuple(KindFigures(kind, unknown="reading the log") for kind in sorted(waiting))
    logged = {one.kind for one in figures}
    missing = sorted(kind for kind in waiting if kind not in logged)
    if not figures and len(missing) == 1 and outward is not None:
        why = "the log has no runs: waits and runs unknown"
        return (KindFigures(missing[0], 60 * outward, source=RECORDER, unknown=why),)
    none = 0.0 if figures or outward == 0 else None
    source = "" if none is None else LOG if figures else RECORDER
    others = (KindFigures(kind, none, source=source, unknown=NO_RUNS) for kind in missing)
    return (*figures, *others)
