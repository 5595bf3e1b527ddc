"""When a place counts as one that does not answer, with the times that a console has."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from engine.model import LockEvidence
from engine.operations.notes import Notes
from engine.places.place import Place, WholeQueueFigures
from engine.places.place_watcher import PlaceReadings
from engine.store import Unavailable
from tests.console_places import NOW, PATIENCE, Clock, disk_place, free, make_spool, some_tasks
from tui.session import place_session
from tui.session.place_session import PlaceSession, follow_places

STEPS = 20
"""Steps of the event loop after which all that a turn starts has begun."""


@pytest.fixture
def answers() -> Iterator[threading.Event]:
    """Set while the place answers; at the end it does, so that threads end."""
    event = threading.Event()
    event.set()
    yield event
    event.set()


class Followed:
    """A place that is followed as the console does it, on a clock that the test moves."""

    def __init__(self, session: PlaceSession, clock: Clock) -> None:
        self.session, self.clock = session, clock

    async def wait(self, seconds: float) -> None:
        """Move the clock, and let all begin that is due then."""
        self.clock.now += seconds
        for _ in range(STEPS):
            await asyncio.sleep(0)

    async def until(self, true: Callable[[], object], seconds: float = 0.0) -> float:
        """Wait until this is true, the clock moved by so many seconds each time; return how far
        it has moved."""
        began, patience = self.clock.now, monotonic() + PATIENCE
        while not true():
            assert monotonic() < patience
            await self.wait(seconds)
        return self.clock.now - began


@asynccontextmanager
async def a_followed(
    place: Place, monkeypatch: pytest.MonkeyPatch, is_shown: bool = True
) -> AsyncIterator[Followed]:
    """A place that was read once."""
    clock = Clock(monotonic())
    with monkeypatch.context() as patch:
        patch.setattr(place_session, "monotonic", clock)
        patch.setattr(asyncio.get_running_loop(), "time", clock)
        session = PlaceSession(place, Clock())
        task = asyncio.create_task(follow_places([session], is_shown=lambda _: is_shown))
        followed = Followed(session, clock)
        await followed.until(lambda: session.has_readings)
        yield followed
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await session.close(keep_worker=False)


def a_spool(root: Path, answers: threading.Event) -> Place:
    """A spool that waits with each read of its lock until it answers."""
    make_spool(root, some_tasks())

    def lock() -> LockEvidence:
        answers.wait()
        return free()

    return disk_place(root)._replace(lock=lock)


@pytest.mark.parametrize(("is_shown", "seconds"), [(True, 4.0), (False, 13.0)])
async def test_a_hang_is_seen_in_time_also_after_another_one(
    tmp_path: Path,
    answers: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    is_shown: bool,
    seconds: float,
) -> None:
    """One repaint before the times in the manual, a place counts as silent, whenever it begins to
    hang and however long it did before."""
    place = await asyncio.to_thread(a_spool, tmp_path, answers)
    async with a_followed(place, monkeypatch, is_shown) as followed:
        session = followed.session
        for _ in range(2):
            answers.clear()
            assert await followed.until(session.find_silence, 0.25) <= seconds
            await followed.wait(8)
            answers.set()
            await followed.until(lambda: not session.find_silence())


async def test_an_error_that_comes_quickly_is_no_silence(
    tmp_path: Path, answers: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that times out again and again has been silent since the first time; an error that
    it gives quickly ends that, and is the reason that is shown."""

    def figures() -> WholeQueueFigures:
        answers.wait()
        raise Unavailable("NOAUTH")

    await asyncio.to_thread(make_spool, tmp_path, some_tasks())
    place = disk_place(tmp_path)._replace(lock=free, queue_figures=figures)
    async with a_followed(place, monkeypatch) as followed:
        session = followed.session
        answers.clear()
        await followed.until(session.find_silence, 0.25)
        answers.set()
        await session.wait_for_readings()
        assert session.find_silence()
        await followed.until(lambda: not session.find_silence(), 0.25)
        assert session.readings.queue_figures.unknown == "NOAUTH"


async def test_a_note_keeps_what_was_read_while_it_was_written(
    tmp_path: Path, answers: threading.Event
) -> None:
    """A read that ends while a note is being written is not undone by it."""

    class SlowNotes(Notes):
        """Notes on a slow disk."""

        def add(self, *note: Any) -> None:
            answers.wait()
            super().add(*note)

    place = disk_place(tmp_path)._replace(notes=SlowNotes(str(tmp_path / "notes")))
    session, newer = PlaceSession(place, Clock()), PlaceReadings(last_run=NOW)
    answers.clear()
    writing = asyncio.create_task(session.add_note("t1", "seen", NOW))
    await asyncio.sleep(0)
    session.readings = newer
    answers.set()
    await writing
    assert set(session.noted_ids) == {"t1"} and session.readings.last_run == NOW
    await session.close(keep_worker=False)
