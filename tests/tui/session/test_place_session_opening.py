"""What is looked at first when a place is opened: its tasks, then all that is beside them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from itertools import count
from pathlib import Path

import pytest

from engine import verbs
from engine.live import queries
from engine.locks.token_buckets import BucketState
from engine.model import LockEvidence, Verdict
from engine.monitor.throughput import Growth, Rates
from engine.places.place import Place
from engine.places.place_watcher import PlaceReadings
from engine.store import Store, Unavailable
from engine.system import mounts
from tests.console_places import NOW, PATIENCE, Clock, disk_place, make_spool, some_tasks
from tui.session import place_session as live_module
from tui.session.place_session import PlaceSession, follow_places


@asynccontextmanager
async def followed(
    place: Place,
    is_shown: Callable[[], bool] = lambda: True,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator[PlaceSession]:
    """A place that is followed as the console follows it."""
    live = PlaceSession(place, clock)
    following = asyncio.create_task(
        follow_places([live], lambda: 0.01, 0.001, lambda _: is_shown())
    )
    try:
        yield live
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await live.close(keep_worker=False)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with tasks."""
    make_spool(tmp_path, some_tasks())
    return disk_place(tmp_path)


def add(place: Place) -> None:
    """Another process adds a task."""
    with closing(place.open()) as store:
        store.swap(None, verbs.enqueue("report", time.time(), "00000abc"))


def count_of(live: PlaceSession) -> int:
    """The number of tasks at the last count."""
    return sum(live.count_samples[-1][1].values())


def test_places_take_turns_in_a_period() -> None:
    """Places have four turns in the first second of a period of 5 s, the same for each fourth."""
    for now in (100.0, 101.5, 104.875):
        turns = [live_module.next_turn(now, 5.0, number) for number in range(1, 21)]
        assert {turn % 5.0 for turn in turns} == {0.0, 0.25, 0.5, 0.75}
        assert all(now < turn <= now + 5.0 for turn in turns)
        assert turns[:16] == turns[4:]


async def test_tasks_are_known_before_the_lock_is_examined(place: Place) -> None:
    """The first scan of lock, figures and logs is made when there are tasks to show."""
    known: list[bool] = []

    def look() -> LockEvidence:
        known.append(any(live.inspector.latest.counts.values()))
        return LockEvidence(Verdict.FREE)

    async with followed(place._replace(lock=look)) as live:
        await asyncio.wait_for(live.wait_for_readings(), PATIENCE)
    assert known[0]


@pytest.mark.parametrize("hangs", [False, True])
async def test_without_tasks_the_rest_is_examined(
    place: Place, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """A place that cannot be reached, or whose disk hangs, has its lock and logs examined."""
    monkeypatch.setattr(live_module, "FIRST_TASKS_SECONDS", 0.01)
    moved = threading.Event()

    def fail() -> Store:
        if not hangs:
            raise Unavailable("no such place")
        moved.wait(PATIENCE)
        return place.open()

    async with followed(place._replace(open=fail)) as live:
        await asyncio.wait_for(live.wait_for_readings(), PATIENCE)
        without = live.has_readings and not live.inspector.latest.is_complete
        moved.set()
    assert without


async def eventually(true: Callable[[], bool]) -> None:
    """Let the place work until `true()` is."""
    while not true():  # noqa: ASYNC110 - the numbers of reads have no event
        await asyncio.sleep(0.01)


async def test_a_place_that_is_not_open_is_read_less_often(place: Place) -> None:
    """Its tasks are counted each time, also new ones; lock, metrics and logs are read only when
    that is due, a caller waits for it, or the place is opened."""
    reads, shown = 0, False

    def look() -> LockEvidence:
        nonlocal reads
        reads += 1
        return LockEvidence(Verdict.FREE)

    place = place._replace(lock=look)
    async with asyncio.timeout(PATIENCE), followed(place, lambda: shown) as live:
        await eventually(lambda: len(live.count_samples) >= 5)
        unopened, before = reads, count_of(live)
        await asyncio.to_thread(add, place)
        await eventually(lambda: count_of(live) > before)
        await live.wait_for_readings()
        waited = reads
        shown = True
        await eventually(lambda: reads >= waited + 3)
    assert unopened <= 2 <= waited


async def test_tasks_of_another_folder_in_its_place_have_not_come(tmp_path: Path) -> None:
    """If other folders are where those of a place were, as after a mount, its tasks are counted,
    but are in no rate."""
    root, other = tmp_path / "root", tmp_path / "other"
    make_spool(root, some_tasks()[:2])
    make_spool(other, some_tasks())
    ticks = count(2 * NOW)
    place = disk_place(root)._replace(location=str(root))
    async with asyncio.timeout(PATIENCE), followed(place, clock=lambda: next(ticks) / 2) as live:
        await eventually(lambda: len(live.count_samples) >= 5)
        few = count_of(live)
        root.rename(tmp_path / "before")
        other.rename(root)
        await eventually(lambda: bool(live.count_samples) and count_of(live) > few)
        seen = live.flow.rates(live.clock())
        while seen is None:
            await asyncio.sleep(0.01)
            seen = live.flow.rates(live.clock())
    assert seen == Rates(0.0, 0.0)


@pytest.mark.parametrize("is_watched", [True, False])
async def test_a_quiet_place_is_read_less_often_where_changes_are_reported(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch, is_watched: bool
) -> None:
    """Without changes of its tasks it is read at the longer interval, but not on a file system of
    another host; after a change at the shorter one."""
    monkeypatch.setattr(live_module, "HIDDEN_READ_SECONDS", 0.01)
    monkeypatch.setattr(live_module, "QUIET_READ_SECONDS", 1000.0)
    monkeypatch.setattr(mounts, "may_hang", lambda path: not is_watched)
    place, turns = place._replace(location=str(tmp_path)), 0

    def take_turn() -> bool:
        nonlocal turns
        turns += 1
        return False

    async with asyncio.timeout(PATIENCE), followed(place, take_turn) as live:
        await eventually(lambda: live.has_readings and live.inspector.latest.is_complete)
        before, generation = live.readings, live.inspector.latest.generation
        if is_watched:
            await live.wait_for_readings()
            before, enough = live.readings, turns + 50
            await eventually(lambda: turns >= enough)
            assert live.readings is before
            assert live.inspector.latest.generation == generation
            await asyncio.to_thread(add, place)
        await eventually(lambda: live.readings is not before)


async def test_a_kind_grows_from_the_first_count_that_has_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which kinds have a rate limit is known only after the first count of the backlog."""
    monkeypatch.setattr(queries, "ANSWER_COST_FACTOR", 0)
    clock = Clock()
    live = PlaceSession(place, clock)
    try:
        await live.inspector.start()
        for seconds in (0, 1, 9, 1):
            clock.now += seconds
            await live.inspector.scan_now()
            await live.query_backlog()
            growth = live.kind_growth(clock.now)
            assert growth == ({"report": Growth(1, 10.0)} if clock.now == NOW + 11 else {})
            live.readings = PlaceReadings(tokens=(BucketState("report", 0, 5, None, 60),))
            if clock.now == NOW + 1:
                await asyncio.to_thread(add, place)
    finally:
        await live.close(keep_worker=False)
