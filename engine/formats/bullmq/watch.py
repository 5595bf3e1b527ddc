"""Facts about the BullMQ queues of a server, for the console: read at intervals, by kind."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from engine.formats.base.format import Setup
from engine.formats.bullmq import facts
from engine.formats.bullmq.connection import Connection
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.scan import KnownQueues
from engine.monitor.latency import KindFigures, percentile
from engine.monitor.throughput import HISTORY_SECONDS
from engine.places.place import Place, PlaceGroups, WholeQueueFigures
from engine.text.figure import UNKNOWN
from engine.text.figures import format_rate
from engine.text.safe import safe_line

FIGURES_SECONDS = 2.0
"""Seconds for which the facts on screen are current: as long as the queues that are listed."""
ORPHAN_SECONDS, ORPHAN_COST_FACTOR = 60.0, 100
"""Least seconds between two searches for jobs in no list, and how many times as long as it took:
a search visits all keys."""

KINDS_SECONDS, KINDS_COST_FACTOR = 10.0, 50
"""Seconds between two reads of finished jobs, also as a multiple of the last one's duration."""

URL_FIELDS = ("targetUrl", "url")
"""Fields with the URL: of a delivery to a federation, and of a request of any other kind."""


class ServerWatch:
    """Facts about a server, read at most once in `FIGURES_SECONDS`, on a connection of its own."""

    def __init__(self, setup: Setup) -> None:
        self._address = setup.address
        self._connection: Connection | None = None
        self._queues: KnownQueues | None = None
        self._kinds: tuple[KindFigures, ...] = ()
        self._kinds_due = 0.0
        self._figures = WholeQueueFigures()
        self._due = self._orphans_due = 0.0
        self._orphans: Mapping[str, int] | None = None

    def read(self) -> WholeQueueFigures:
        """Facts about all queues as a whole.

        Raises:
            Unavailable: the server cannot be reached.
        """
        if time.monotonic() < self._due:
            return self._figures
        place = parse_place(self._address)
        if self._connection is None:
            self._connection = Connection(place)
            self._queues = KnownQueues(self._connection, place)
        start = time.monotonic()
        is_search = start >= self._orphans_due
        orphans = None if is_search else self._orphans
        state = facts.read_state(self._connection, place, time.time(), orphans, self._queues)
        if is_search:
            self._orphans, took = state.orphans, time.monotonic() - start
            wait = FIGURES_SECONDS if state.orphans else ORPHAN_SECONDS
            self._orphans_due = start + max(wait, ORPHAN_COST_FACTOR * took)
        warnings = tuple(warning.what for warning in facts.find_warnings(state))
        if time.monotonic() >= self._kinds_due:
            names = [queue.name for queue in state.queues]
            began = time.monotonic()
            runs = facts.read_runs(self._connection, place, names, time.time(), HISTORY_SECONDS)
            self._kinds = kinds_by_jobs(runs)
            spent = time.monotonic() - began
            self._kinds_due = time.monotonic() + max(KINDS_SECONDS, KINDS_COST_FACTOR * spent)
        # Workers are connected to the primary, not to a replica; a paused queue needs none.
        queues = () if "master_link_status" in state.settings else state.queues
        known = [q.workers for q in queues if q.workers is not None and not q.is_paused]
        self._figures = WholeQueueFigures(
            (*facts.describe_state(state, time.time()), *rate_rows(self._kinds)),
            warnings,
            has_worker=any(known) if known else None,
            connected=tuple(state.workers),
            kinds=self._kinds,
            queues=tuple((safe_line(queue.name), queue.counts) for queue in state.queues),
        )
        self._due = time.monotonic() + FIGURES_SECONDS
        return self._figures


def kinds_by_jobs(runs: Iterable[facts.QueueRuns]) -> tuple[KindFigures, ...]:
    """The figures of the queues in which jobs finished, wait or run, the busiest first."""
    kinds = [_kind_of(one) for one in runs if one.has_tasks or one.runs or any(one.counts or ())]
    return tuple(sorted(kinds, key=lambda one: (-(one.per_minute or 0.0), one.kind)))


def rate_rows(kinds: Iterable[KindFigures]) -> list[tuple[str, str]]:
    """Finished jobs per minute of each queue in ten minutes, or why that is unknown, as a row."""
    rates = {
        one.kind: UNKNOWN if one.per_minute is None else format_rate(one.per_minute / 60, "/min")
        for one in kinds
    }
    named = facts.list_names(f"{kind} {rate}" for kind, rate in rates.items())
    why = {one.unknown for one in kinds if one.per_minute is None}
    return [("rates 10m", ": ".join((named, *sorted(why))))] if rates else []


def _kind_of(one: facts.QueueRuns) -> KindFigures:
    completed, failed = one.counts or (0, 0)
    total = completed + failed
    why = "" if one.runs or not total else "no finished job with its times is kept"
    why = why if one.counts is not None else "no completed job is kept, and no metrics of BullMQ"
    return KindFigures(
        safe_line(one.queue),
        None if one.counts is None else 60 * total / one.window,
        failed / total if total else None,
        wait_p50=percentile(one.waits, 0.5),
        wait_p95=percentile(one.waits, 0.95),
        run_p50=percentile(one.runs, 0.5),
        run_p95=percentile(one.runs, 0.95),
        source=one.source,
        unknown=why,
    )


def complete_place(setup: Setup, place: Place) -> Place:
    """The `Place` of a server, with the facts about it."""
    groups = PlaceGroups({"kind": "queue"}, lambda queues: {})
    figures = ServerWatch(setup).read
    schedules = setup.format.schedules(setup)
    place = place._replace(queue_figures=figures, groups=groups, url_fields=URL_FIELDS)
    return place._replace(schedules=schedules)
