"""An ETA needs a worker: the drain of a place without one is unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from engine.model import Lease, State, Task, Verdict
from engine.monitor.throughput import MISSING_WORKER, FlowHistory, RunTimes, Trend
from engine.places.place import WholeQueueFigures
from engine.places.place_watcher import PlaceReadings
from tests.console_operator import an_operator
from tests.console_places import (
    NOW,
    Clock,
    a_memory,
    a_place,
    a_stuck_lock,
    disk_place,
    free,
    make_spool,
    some_tasks,
)
from tui.session.place_session import PlaceSession, _note_free_lock

HOUR_AGO = RunTimes(NOW - 3600, 5.0)
HELD = a_stuck_lock()._replace(verdict=Verdict.HELD)


@pytest.mark.parametrize(
    ("readings", "has_leases", "lease_until", "unknown"),
    [
        (PlaceReadings(lock=free(), runs=HOUR_AGO), False, None, MISSING_WORKER),
        (PlaceReadings(lock=free(), runs=RunTimes(NOW - 5, 5.0)), False, None, ""),
        (PlaceReadings(), True, None, MISSING_WORKER),
        (PlaceReadings(), True, NOW - 60, MISSING_WORKER),
        (PlaceReadings(), True, NOW + 60, ""),
        (PlaceReadings(queue_figures=WholeQueueFigures(workers=(77,))), True, None, ""),
        (PlaceReadings(queue_figures=WholeQueueFigures(unknown="denied")), True, None, ""),
        (PlaceReadings(queue_figures=WholeQueueFigures(workers_unknown="?")), True, None, "?"),
    ],
)
async def test_without_a_worker_there_is_no_eta(
    tmp_path: Path,
    readings: PlaceReadings,
    has_leases: bool,
    lease_until: float | None,
    unknown: str,
) -> None:
    """Tasks that left a minute ago are no throughput if lock, log or store show no worker now."""
    make_spool(tmp_path, some_tasks())
    place = disk_place(tmp_path)._replace(has_leases=has_leases)
    session = PlaceSession(place, Clock())
    try:
        session.free_since = NOW - 3600
        session.readings, session.has_readings = readings, True
        for second in range(-90, 1):
            session.flow.add(NOW + second, 0, 90 + second, {State.PENDING: 100 - second})
        if lease_until is not None:
            lease = Lease("77", NOW - 90, lease_until)
            session._active = [Task("a", "mail", State.ACTIVE, NOW - 90, lease=lease)]
        drain = session.estimate_drain(NOW)
        assert drain.unknown == unknown
        assert drain.trend is (Trend.UNKNOWN if unknown else Trend.DRAINING)
    finally:
        await asyncio.wait_for(session.close(keep_worker=False), 5)


async def test_a_worker_that_was_started_gives_an_eta_of_its_own(tmp_path: Path) -> None:
    """The tasks that came while the lock was stuck are not in its trend."""
    make_spool(tmp_path, some_tasks())
    session = PlaceSession(disk_place(tmp_path), Clock())
    try:
        for second in range(-30, 1):
            lock = HELD if second > -20 else a_stuck_lock()
            session.readings = PlaceReadings(lock=lock, runs=RunTimes(NOW, 5.0))
            session.note_stop(NOW + second)
            left = 4 * max(0, 20 + second)
            counts = {State.PENDING: 200 + second - left}
            session.flow.add(NOW + second, 30 + second, left, counts)
        assert session.estimate_drain(NOW).seconds == pytest.approx(40, rel=0.1)
    finally:
        await asyncio.wait_for(session.close(keep_worker=False), 5)


@pytest.mark.parametrize(
    ("between", "running"),
    [
        (PlaceReadings(), PlaceReadings()),
        (PlaceReadings(queue_figures=WholeQueueFigures(workers_unknown="of others")),) * 2,
        (
            PlaceReadings(queue_figures=WholeQueueFigures(has_worker=False)),
            PlaceReadings(queue_figures=WholeQueueFigures(has_worker=True)),
        ),
        (PlaceReadings(queue_figures=WholeQueueFigures(has_worker=False)),) * 2,
        (
            PlaceReadings(lock=free(), runs=RunTimes(None, None)),
            PlaceReadings(lock=HELD, runs=RunTimes(None, None)),
        ),
    ],
)
async def test_a_worker_that_is_not_seen_is_not_stopped(
    tmp_path: Path, between: PlaceReadings, running: PlaceReadings
) -> None:
    """One task each 150 seconds is a rate, not a worker that starts with each of them, even if
    it is known that none runs between them."""
    make_spool(tmp_path, some_tasks())
    place = disk_place(tmp_path)._replace(has_leases=between.lock is None)
    clock, left = Clock(NOW), 0
    session = PlaceSession(place, clock)
    try:
        session.has_readings = True
        for second in range(-600, 1):
            active = second % 150 in (40, 41)
            left += second % 150 == 42
            session.readings, clock.now = running if active else between, NOW + second
            _note_free_lock(session)
            session.note_stop(NOW + second)
            counts = {State.PENDING: 20 - left - active, State.ACTIVE: int(active)}
            session.flow.add(NOW + second, 0, left, counts)
            rates = session.flow.rates(NOW + second)
            assert second < -530 or (rates is not None and rates.outward < 0.02)
    finally:
        await asyncio.wait_for(session.close(keep_worker=False), 5)


async def test_a_running_worker_does_not_start_again_where_folders_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a mount the rates of a worker that was started here before are of all that is seen."""
    async with an_operator(a_place(a_memory([]))) as operator:
        (session,) = operator.console.sessions
        monkeypatch.setattr(type(session.worker), "pid", property(lambda _: 4711))
        await session._restart_flow()
        session.note_stop(NOW)
        assert session.flow.rates_begin < NOW


async def test_a_backlog_that_was_just_emptied_needs_no_time() -> None:
    """The ETA is that of the tasks counted now, not of those a second ago."""
    async with an_operator(a_place(a_memory([]))) as operator:
        (session,) = operator.console.sessions
        await operator.until(lambda: session.inspector.latest.is_complete)
        session.flow = FlowHistory()
        for second in range(-90, 1):
            session.flow.add(NOW + second, 90 + second, 0, {State.PENDING: 100 + second})
        assert session.flow.drain(NOW).trend is Trend.GROWING
        assert session.estimate_drain(NOW).trend is Trend.EMPTY
