"""A plan on screen: what is left out, what has changed, why, and what it may not be."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.journal import Journal
from engine.model import LockEvidence, State, Verdict
from engine.stores.memory import Memory
from tests.tui.spools import (
    NOW,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    loaded,
    some_tasks,
    until,
)
from tui import keys, planning
from tui.app import Console
from tui.place import NO_WORKER
from tui.plain import text_of
from tui.screens.plan import PlanScreen
from tui.screens.queue import QueueScreen
from tui.wire import ANSWERED, Wire


class Hand:
    """A console on a queue in memory, whose keys are pressed one by one."""

    def __init__(self, console: Console, pilot: Pilot[None], memory: Memory) -> None:
        self.console, self.pilot, self.memory = console, pilot, memory

    async def press(self, *pressed: str) -> None:
        """These keys."""
        for key in pressed:
            await self.pilot.press(key)

    async def on_work(self) -> None:
        """To the tab of what is in work, with its task there and the lock looked at."""
        await self.press("2")
        screen = self.console.screen
        assert isinstance(screen, QueueScreen)

        def there() -> bool:
            task = screen.list.task_here
            return screen.list.loaded and task is not None and task.state is State.ACTIVE

        await until(self.pilot, there)
        await until(self.pilot, lambda: self.console.lives[0].signs.lock is not None)

    async def shows(self, *words: str) -> str:
        """Wait until these are on screen, and answer with all that is."""
        await until(
            self.pilot,
            lambda: all(word in text_of(self.console.screen) for word in words),
            lambda: text_of(self.console.screen),
        )
        return text_of(self.console.screen)

    async def planned(self, *pressed: str) -> PlanScreen:
        """Press keys that lead to a plan, and wait for it."""
        await self.press(*pressed)
        await until(
            self.pilot,
            lambda: isinstance(self.console.screen, PlanScreen),
            lambda: text_of(self.console.screen),
        )
        screen = self.console.screen
        assert isinstance(screen, PlanScreen)
        await self.pilot.pause()
        return screen

    def states(self) -> dict[str, State]:
        """Where each task stands."""
        return {task.id: task.state for task in self.memory.tasks.values()}


@asynccontextmanager
async def opened(memory: Memory, **fields: object) -> AsyncIterator[Hand]:
    """An armed console on these tasks."""
    place = {"journal", "lock"} & fields.keys()
    of_place = {name: fields.pop(name) for name in place}
    settings: dict[str, object] = {"start_armed": True, "first": keys.LIST, **fields}
    console = a_console(a_place(memory, **of_place), clock=Clock(), **settings)
    async with console.run_test(size=(100, 30)) as pilot:
        await loaded(pilot)
        yield Hand(console, pilot, memory)


def with_young_ones() -> Memory:
    """Four waiting tasks, of which the last two came a minute ago."""
    old = [a_task(number) for number in range(2)]
    young = [replace(a_task(number), created=NOW - 60) for number in range(2, 4)]
    return a_memory([*old, *young])


async def test_what_looks_odd_is_left_out_unless_it_is_taken_in() -> None:
    """A purge of many leaves the young ones out; Space takes one in, and the count says so."""
    async with opened(with_young_ones()) as hand:
        await hand.planned("*", "X")
        await hand.shows("2 left out: younger than 15 minutes", "type 2 to purge 2")
        await hand.press("space")
        await hand.shows("1 left out: younger than 15 minutes", "type 3 to purge 3")
        await hand.press("3")
        await hand.shows("3 purged", "1 left out", "4 planned, 4 in the result")

        trashed = [state for state in hand.states().values() if state is State.TRASH]
        assert len(trashed) == 3


async def test_a_task_that_was_picked_is_meant_though_it_is_young() -> None:
    """One task under the cursor is purged by y, and what is odd about it is said."""
    async with opened(a_memory([replace(a_task(1), created=NOW - 60)])) as hand:
        await hand.planned("X")
        await hand.shows("though younger than 15 minutes", "y to purge this task")
        await hand.press("y")
        await hand.shows("1 purged")


async def test_a_task_is_left_out_by_hand() -> None:
    """Space leaves a task out, and it is accounted for as such."""
    async with opened(a_memory(some_tasks(3, 0, 0))) as hand:
        screen = await hand.planned("*", "H")
        first = screen._plan.rows[0].id
        await hand.press("space")
        await hand.shows("1 left out: left out by the operator", "type 2 to hold 2")
        await hand.press("2")
        await hand.shows("2 held", "3 planned, 3 in the result")

        assert hand.states()[first] is State.PENDING


async def test_a_reason_stands_in_the_journal(tmp_path: Path) -> None:
    """Tab asks for a reason; where one is required nothing is applied without."""
    journal = Journal(str(tmp_path / "journal"))
    memory = a_memory(some_tasks(1, 0, 0))
    async with opened(memory, journal=journal, require_reason=True) as hand:
        await hand.planned("H")
        await hand.press("y")
        await hand.shows("a reason is asked for here")
        await hand.press("tab")
        await hand.shows("reason, for the journal")
        await hand.press(*"noise", "enter")
        await hand.shows("noise", "y to hold this task")
        await hand.press("y")
        await hand.shows("1 held", "written down as")
        (operation,) = await hand.console.lives[0].inspector.operations()

    assert (operation.intent.reason, operation.intent.verb) == ("noise", "hold")


@pytest.mark.parametrize(
    ("verdict", "offered"),
    [
        (Verdict.FREE, True),
        (Verdict.STALE, True),
        (Verdict.HELD, False),
        (Verdict.STUCK, False),
        (Verdict.UNKNOWN, False),
    ],
)
@pytest.mark.parametrize(
    ("key", "end"), [("H", State.HELD), ("L", State.PENDING), ("K", State.DEAD)]
)
async def test_what_is_in_work_is_touched_only_when_nobody_works_on_it(
    key: str, end: State, verdict: Verdict, offered: bool
) -> None:
    """Hold, release and kill are for work that was left behind: by the lock, nobody is at it."""
    lock = LockEvidence(verdict, 4711, reason="as it is")
    async with opened(a_memory(some_tasks(0, 1, 0)), lock=lambda: lock) as hand:
        await hand.on_work()
        if offered:
            await hand.planned(key)
            await hand.press("y")
            await hand.shows("all accounted for")
            assert set(hand.states().values()) == {end}
        else:
            await hand.press(key)
            await hand.pilot.pause()
            assert isinstance(hand.console.screen, QueueScreen)


async def test_the_lock_is_looked_at_again_before_work_is_touched() -> None:
    """A worker that took the lock after the plan was made keeps its task."""
    verdict = [Verdict.FREE]
    memory = a_memory(some_tasks(0, 1, 0))
    async with opened(memory, lock=lambda: LockEvidence(verdict[0], 4711)) as hand:
        await hand.on_work()
        screen = await hand.planned("K")
        verdict[0] = Verdict.HELD
        screen.carry_out()
        await hand.shows("1 failed", "1 planned, 1 in the result", "PID 4711 has the lock")

    assert set(hand.states().values()) == {State.ACTIVE}


async def test_everything_at_once_is_said_to_be_everything() -> None:
    """A purge of a whole state without a filter says so, and what could be done instead."""
    async with opened(a_memory(some_tasks(4, 0, 0))) as hand:
        await hand.planned("*", "X")
        await hand.shows("this is all of pending, no filter is set", "hold parks them")


async def test_read_only_offers_no_plan() -> None:
    """A console that was started with --read-only plans nothing."""
    async with opened(a_memory(some_tasks(1, 0, 0)), read_only=True) as hand:
        for key in "RXHLOEK":
            await hand.press(key)
            await hand.pilot.pause()
            assert isinstance(hand.console.screen, QueueScreen)


async def test_the_command_that_does_the_same_names_what_the_plan_does() -> None:
    """A plan for tasks that were picked names them; what is taken in though odd is named, too."""
    young = replace(a_task(1), created=NOW - 60)
    async with opened(a_memory([young, a_task(2)])) as hand:
        await hand.planned("X")
        screen = hand.console.screen
        assert isinstance(screen, PlanScreen)
        assert screen._tally is not None
        words = planning.twin(screen._tally, screen._live, "why not")

    told = f"--state pending --id {young.id} --take-in {young.id} --reason 'why not' --apply 1"
    assert words == f"spooldeck purge {told}"


async def test_a_plan_is_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task with what would become of it goes to a file, in OBSERVE too; nothing is applied."""
    monkeypatch.chdir(tmp_path)
    async with opened(with_young_ones(), start_armed=False) as hand:
        before = hand.states()
        screen = await hand.planned("*", "X")
        await hand.press("e")
        await hand.shows("export to", ".csv", "Enter answers")
        await hand.press(*["backspace"] * 3, *"jsonl", "enter")
        await hand.shows("4 rows in spooldeck-plan-purge-")
        assert hand.console.screen is screen
        assert hand.states() == before

    (path,) = await asyncio.to_thread(lambda: list(Path().glob("spooldeck-plan-purge-*.jsonl")))
    written = [json.loads(line) for line in (await asyncio.to_thread(path.read_text)).splitlines()]
    assert [row["outcome"].partition(",")[0].partition(":")[0] for row in written] == [
        *["purged"] * 2,
        *["left out"] * 2,
    ]


@pytest.mark.parametrize(("verdict", "hint"), [(Verdict.FREE, True), (Verdict.HELD, False)])
async def test_a_result_says_that_no_worker_is_running(verdict: Verdict, hint: bool) -> None:
    """After a retry without a worker the result names the next step; with one it does not."""
    lock = LockEvidence(verdict, since=NOW)
    async with opened(a_memory([a_task(1, State.DEAD)]), lock=lambda: lock) as hand:
        await hand.planned("4", "R")
        await hand.press("y")
        await hand.shows("1 planned, 1 in the result")

        assert (NO_WORKER in text_of(hand.console.screen)) is hint


async def test_a_plan_shows_no_result_of_another_operation() -> None:
    """The result of an earlier operation waits until the plan that is open is closed."""
    hands = Clock(0.0)
    async with opened(a_memory(some_tasks())) as hand:
        hand.console.wire = Wire(lambda: 0, hands)
        await hand.planned("X")
        hand.console.lives[0].news.append("1 purged, 0 gone, 0 failed; u shows it")
        hands.now += ANSWERED
        hand.console._tell_news()
        assert "1 purged" not in text_of(hand.console.screen)

        await hand.press("escape")
        hands.now += ANSWERED
        hand.console._tell_news()

        await hand.shows("1 purged, 0 gone, 0 failed; u shows it")


async def test_a_result_that_was_read_is_not_told_again() -> None:
    """Closing the result of a plan withdraws its message: no later plan shows it."""
    async with opened(a_memory([a_task(1, State.DEAD)])) as hand:
        await hand.planned("4", "R")
        await hand.press("y")
        await hand.shows("1 planned, 1 in the result")
        news = hand.console.lives[0].news
        await until(hand.pilot, lambda: news)

        await hand.press("escape")

        assert not news
