"""What is looked at first when a place is opened: its tasks, then all that is beside them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from engine.model import LockEvidence, Verdict
from engine.store import Store, Unavailable
from tests.tui.spools import PATIENCE, disk_place, make_spool, some_tasks
from tui.session import place_session as live_module
from tui.session.place import Place
from tui.session.place_session import PlaceSession


@asynccontextmanager
async def followed(place: Place) -> AsyncIterator[PlaceSession]:
    """A place that is followed as the console follows it."""
    live = PlaceSession(place, time.time)
    following = asyncio.create_task(live.follow(lambda: 0.01, 0.001))
    try:
        yield live
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await live.close(keep_worker=False)


async def test_tasks_are_known_before_the_lock_is_examined(tmp_path: Path) -> None:
    """The first scan of lock, figures and logs is made when there are tasks to show."""
    make_spool(tmp_path, some_tasks())
    known: list[bool] = []
    lives: list[PlaceSession] = []

    def look() -> LockEvidence:
        known.append(any(lives[0].inspector.latest.counts.values()))
        return LockEvidence(Verdict.FREE)

    async with followed(disk_place(tmp_path)._replace(lock=look)) as live:
        lives.append(live)
        await asyncio.wait_for(live.wait_for_readings(), PATIENCE)
    assert known[0]


@pytest.mark.parametrize("hangs", [False, True])
async def test_without_tasks_the_rest_is_examined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    """A place that cannot be reached, or whose disk hangs, has its lock and logs examined."""
    monkeypatch.setattr(live_module, "FIRST_TASKS_SECONDS", 0.01)
    make_spool(tmp_path, some_tasks())
    place, moved = disk_place(tmp_path), threading.Event()

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
