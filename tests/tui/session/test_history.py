"""What was done at a place, as it is followed: what a crash left open is found out in the end."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from engine.live.inspector import Inspector
from engine.model import State
from engine.operations import undo
from engine.operations.journal import Intent
from engine.operations.plans import RowResult
from engine.places.place import Place
from tests.console_places import NOW, Clock, make_spool, some_tasks
from tests.journaled_places import a_journaled_place, forget_outcomes, interrupt, kept, seen
from tui.session import history as history_module
from tui.session.history import OLD_SECONDS, SETTLE_RETRY_SECONDS, History
from tui.session.place_session import HIDDEN_READ_SECONDS

off = asyncio.to_thread
"""Nothing of ours may block the loop, that of a test no more than a console's."""


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with twelve dead tasks, and a journal."""
    make_spool(tmp_path, some_tasks(pending=4))
    return a_journaled_place(tmp_path)


@asynccontextmanager
async def a_history(place: Place, clock: Clock) -> AsyncIterator[tuple[History, Inspector]]:
    """What was done there, with what it is asked from."""
    inspector = Inspector(place.open, clock=clock, journal=place.journal, limit=place.max_attempts)
    try:
        await inspector.start()
        await inspector.scan_now()
        yield History(place, inspector, clock, settles=lambda: True), inspector
    finally:
        await inspector.close()


def left_moving(place: Place) -> tuple[str, str]:
    """A replay that was killed with its first task taken away and not put back; both names."""
    first = seen(place, State.DEAD)[0]
    op = interrupt(place, 4, 0)
    queue = Path(place.root, "queue")
    path = queue / "dlq" / f"{first.id}.task"
    crc = zlib.crc32(path.read_bytes())
    path.rename(queue / ".spooldeck" / f"D.{first.id}.dlq.pending.{crc:08x}.1-0-1")
    return op, first.id


async def test_a_moving_task_is_settled_once_it_rests(place: Place) -> None:
    """A task in staging leaves its row open; once it has been recovered, that is found out."""
    op, ident = await off(left_moving, place)
    clock = Clock()
    async with a_history(place, clock) as (history, inspector):
        assert [one.op for one in await history.refresh()] == [op]
        assert [one.open_rows for one in history.interrupted] == [4]
        assert await history.refresh() == ()
        generation = inspector.latest.generation
        with closing(await off(place.open)) as store:  # as a worker does at its start
            await off(store.recover)  # type: ignore[attr-defined]
        await inspector.scan_now()
        await inspector.wait_for_change(generation)
        clock.now += SETTLE_RETRY_SECONDS
        await history.refresh()
        (one,) = history.interrupted
        assert (one.open_rows, one.counts[RowResult.GONE]) == (3, 1)
    entries = await off(lambda: list(kept(place).entries(op)))
    assert [entry.row.id for entry in entries if entry.outcome] == [ident]


async def test_why_nothing_can_be_read_is_shown_until_it_can(place: Place) -> None:
    """While the queue cannot be looked at that is said each time; then it is found out."""
    op = await off(interrupt, place, 4, 1)
    await off(forget_outcomes, place, op)
    dlq = Path(place.root, "queue", "dlq")
    async with a_history(place, Clock()) as (history, _):
        await off(dlq.rename, dlq.with_name("away"))
        for _ in range(2):
            await history.refresh()
            assert "dlq" in history.error
        await off(dlq.with_name("away").rename, dlq)
        await history.refresh()
        (one,) = history.operations
        assert (history.error, one.counts[RowResult.DONE], one.open_rows) == ("", 1, 3)


async def test_what_is_gone_on_with_elsewhere_is_ended(place: Place) -> None:
    """Once another operation resumes one that was interrupted, this one is over."""
    op = await off(interrupt, place, 4, 1)
    async with a_history(place, Clock()) as (history, _):
        await history.refresh()
        assert [one.op for one in history.interrupted] == [op]
        await off(go_on, place, op)
        await history.refresh()
        assert [one.op for one in history.interrupted] != [op]
        assert {one.op: one.ended for one in history.operations}[op] is not None


async def test_the_journal_is_old_after_some_seconds_of_any_clock(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read is old after a time that a clock that was set back does not change; where no
    screen shows the place, not before the next read but one is due."""
    clock, seconds = Clock(), Clock()
    monkeypatch.setattr(history_module, "monotonic", seconds)
    async with a_history(place, clock) as (history, _):
        assert history.age is None
        await history.refresh()
        clock.now -= 3600
        seconds.now += OLD_SECONDS
        assert history.age == OLD_SECONDS
        history.pause_seconds = HIDDEN_READ_SECONDS
        assert history.age is None
        seconds.now += 2 * HIDDEN_READ_SECONDS
        assert history.age == OLD_SECONDS + 2 * HIDDEN_READ_SECONDS


def go_on(place: Place, op: str) -> None:
    """As another console does, that is killed before it writes that the first one is over."""
    journal = kept(place)
    operation = journal.operation(op)
    assert operation is not None
    with closing(place.open()) as store:
        plan = undo.plan_rest(store, journal, operation, NOW)
        journal.begin(Intent("retry", place.who, follows=op), plan).close()
