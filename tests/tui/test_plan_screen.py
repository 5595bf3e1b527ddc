"""A plan on screen: what it excludes, what has changed, why, and what it may not be."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.journal import Journal
from engine.model import LockEvidence, State, Verdict
from engine.stores.memory import Memory
from tests.tui.desks import Desk, a_desk
from tests.tui.spools import NOW, Clock, a_memory, a_place, a_task, free, queue_of, some_tasks
from tui import planning
from tui.place import NO_WORKER
from tui.screens.plan import PlanScreen
from tui.screens.queue import QueueScreen
from tui.wire import ANSWERED, Wire


@asynccontextmanager
async def opened(
    memory: Memory, journal: Journal | None = None, lock: object = free, **fields: Any
) -> AsyncIterator[Desk]:
    """A console on these tasks, armed unless told otherwise."""
    place = a_place(memory, journal=journal, lock=lock)
    async with a_desk(place, size=(100, 30), **fields) as desk:
        yield desk


async def on_work(desk: Desk) -> None:
    """To the tab of what is in work, with its task there and the lock looked at."""
    await desk.press("2")
    rows = queue_of(desk.console).list

    def there() -> bool:
        task = rows.task_here
        return rows.loaded and task is not None and task.state is State.ACTIVE

    await desk.until(there)
    await desk.until(lambda: desk.console.lives[0].signs.lock is not None)


def states(memory: Memory) -> dict[str, State]:
    """The state of each task."""
    return {task.id: task.state for task in memory.tasks.values()}


def with_young_ones() -> Memory:
    """Four waiting tasks, of which the last two came a minute ago."""
    old = [a_task(number) for number in range(2)]
    young = [replace(a_task(number), created=NOW - 60) for number in range(2, 4)]
    return a_memory([*old, *young])


async def test_what_looks_odd_is_excluded_unless_it_is_taken_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A purge of a whole state without a filter says so, and excludes the young ones; Space takes
    one in, and the count says so. The plan can be exported, with what becomes of each task.
    """
    monkeypatch.chdir(tmp_path)
    memory = with_young_ones()
    async with opened(memory) as desk:
        screen = await desk.opens(PlanScreen, "*", "X")
        await desk.sees("this is all of pending, no filter is set", "hold parks them")
        await desk.sees("2 left out: younger than 15 minutes", "type 2 to purge 2")
        await desk.press("e")
        await desk.sees("export to", ".csv", "Enter answers")
        await desk.press(*["backspace"] * 3, *"jsonl", "enter")
        await desk.sees("4 rows in spooldeck-plan-purge-")
        assert desk.console.screen is screen
        assert set(states(memory).values()) == {State.PENDING}

        await desk.press("space")
        await desk.sees("1 left out: younger than 15 minutes")
        await desk.press("3")
        await desk.sees("3 purged", "1 left out", "4 planned, 4 in the result")

    assert [*states(memory).values()].count(State.TRASH) == 3
    (path,) = await asyncio.to_thread(lambda: list(Path().glob("spooldeck-plan-purge-*.jsonl")))
    written = [json.loads(line) for line in (await asyncio.to_thread(path.read_text)).splitlines()]
    assert [re.split("[,:]", row["outcome"])[0] for row in written] == [
        *["purged"] * 2,
        *["left out"] * 2,
    ]


async def test_a_task_that_was_picked_is_meant_though_it_is_young() -> None:
    """One task under the cursor is purged by y, and what is odd about it is said; the command that
    does the same names it, too.
    """
    young = replace(a_task(1), created=NOW - 60)
    async with opened(a_memory([young, a_task(2)])) as desk:
        screen = await desk.opens(PlanScreen, "X")
        await desk.sees("though younger than 15 minutes", "y to purge this task")
        assert screen._tally is not None
        words = planning.twin(screen._tally, screen._live, "why not")
        await desk.press("y")
        await desk.sees("1 purged")

    told = f"--state pending --id {young.id} --take-in {young.id} --reason 'why not' --apply 1"
    assert words == f"spooldeck purge {told}"


async def test_a_task_is_excluded_by_hand() -> None:
    """Space excludes a task, and it is accounted for as such."""
    memory = a_memory(some_tasks(3, 0, 0))
    async with opened(memory) as desk:
        await desk.opens(PlanScreen, "*", "H")
        await desk.sees("type 3 to hold 3")
        first = desk.picker.key
        await desk.press("space")
        await desk.sees("1 left out: left out by the operator", "type 2 to hold 2")
        await desk.press("2")
        await desk.sees("2 held", "3 planned, 3 in the result")

    assert [id for id, state in states(memory).items() if state is State.PENDING] == [first]


async def test_a_reason_is_written_to_the_journal(tmp_path: Path) -> None:
    """Tab asks for a reason, which is shown and written down."""
    journal = Journal(str(tmp_path / "journal"))
    async with opened(a_memory(some_tasks(1, 0, 0)), journal) as desk:
        await desk.opens(PlanScreen, "H")
        await desk.press("tab")
        await desk.sees("reason, for the journal")
        await desk.press(*"why", "enter")
        await desk.sees("reason why", "y to hold this task")
        await desk.press("y")
        await desk.sees("1 held", "written down as")
        (operation,) = await desk.console.here.inspector.operations()

    assert (operation.intent.reason, operation.intent.verb) == ("why", "hold")


@pytest.mark.parametrize(
    ("key", "verdict", "end"),
    [
        ("H", Verdict.FREE, State.HELD),
        ("L", Verdict.STALE, State.PENDING),
        ("K", Verdict.FREE, State.DEAD),
        ("HLK", Verdict.HELD, State.ACTIVE),
        ("HLK", Verdict.STUCK, State.ACTIVE),
        ("HLK", Verdict.UNKNOWN, State.ACTIVE),
    ],
)
async def test_work_is_touched_only_when_no_worker_has_the_lock(
    key: str, verdict: Verdict, end: State
) -> None:
    """Hold, release and kill are for tasks in work whose worker is gone: each other verdict on the
    lock refuses them.
    """
    memory = a_memory(some_tasks(0, 1, 0))
    async with opened(memory, lock=lambda: LockEvidence(verdict, 4711, reason="-")) as desk:
        await on_work(desk)
        if end is State.ACTIVE:
            await desk.press(*key)
            assert isinstance(desk.console.screen, QueueScreen)
        else:
            await desk.opens(PlanScreen, key)
            await desk.press("y")
            await desk.sees("all accounted for")

    assert set(states(memory).values()) == {end}


async def test_the_lock_is_read_again_before_work_is_touched() -> None:
    """A worker that took the lock after the plan was made keeps its task."""
    verdict = [Verdict.FREE]
    memory = a_memory(some_tasks(0, 1, 0))
    async with opened(memory, lock=lambda: LockEvidence(verdict[0], 4711)) as desk:
        await on_work(desk)
        screen = await desk.opens(PlanScreen, "K")
        verdict[0] = Verdict.HELD
        screen.carry_out()
        await desk.sees("1 failed", "1 planned, 1 in the result", "PID 4711 has the lock")

    assert set(states(memory).values()) == {State.ACTIVE}


@pytest.mark.parametrize(("verdict", "hint"), [(Verdict.FREE, True), (Verdict.HELD, False)])
async def test_a_result_says_that_no_worker_is_running(verdict: Verdict, hint: bool) -> None:
    """After a retry without a worker the result names the next step; with one it does not. Closing
    the result withdraws its message: no later plan shows it.
    """
    lock = LockEvidence(verdict, since=NOW)
    async with opened(a_memory([a_task(1, State.DEAD)]), lock=lambda: lock) as desk:
        await desk.opens(PlanScreen, "4", "R")
        await desk.press("y")
        await desk.sees("1 planned, 1 in the result")
        assert (NO_WORKER in desk.page) is hint
        news = desk.console.lives[0].news
        await desk.until(lambda: news)

        await desk.press("escape")
        assert not news


async def test_a_plan_shows_no_result_of_another_operation() -> None:
    """The result of an earlier operation waits until the plan that is open is closed."""
    hands = Clock(0.0)
    async with opened(a_memory(some_tasks())) as desk:
        desk.console.wire = Wire(lambda: 0, hands)
        await desk.opens(PlanScreen, "X")
        desk.console.lives[0].news.append("1 purged, 0 gone, 0 failed; u shows it")
        hands.now += ANSWERED
        desk.console._tell_news()
        assert "1 purged" not in desk.page

        await desk.press("escape")
        hands.now += ANSWERED
        desk.console._tell_news()
        await desk.sees("1 purged, 0 gone, 0 failed; u shows it")
