"""The console as it is used: each key, on a queue in memory and on spools on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine.model import LockEvidence, State, Verdict
from engine.plans import Plan
from engine.store import Store, Unavailable
from engine.stores.memory import Memory
from tests.tui.spools import (
    PATIENCE,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_task,
    disk_place,
    is_done,
    loaded,
    make_spool,
    put_file,
    queue_of,
    some_tasks,
    task_list,
    until,
)
from tui import keys
from tui.app import Console
from tui.arming import PERIOD
from tui.place import Place
from tui.plain import text_of
from tui.screens.help import HelpScreen
from tui.screens.plan import PlanScreen
from tui.screens.problems import ProblemsScreen
from tui.screens.queue import QueueScreen
from tui.screens.quit import QuitScreen
from tui.screens.task import TaskScreen
from tui.screens.worker import WorkerScreen
from tui.widgets.filter_line import FilterLine
from tui.widgets.lines import Lines, LongText
from tui.widgets.task_list import TaskList

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
DEAD = "4"
"""The tab of the dead tasks in a memory store."""


class Deck:
    """A console under test."""

    def __init__(self, console: Console, pilot: Pilot[None], memory: Memory, clock: Clock) -> None:
        self.console, self.pilot, self.memory, self.clock = console, pilot, memory, clock

    async def press(self, *pressed: str) -> None:
        """Press keys, and let what they caused come to rest."""
        for key in pressed:
            await self.pilot.press(key)
            await self.rest()

    async def rest(self) -> None:
        """Let the list be loaded, and what was begun come to its end."""
        await until(self.pilot, lambda: is_done(self.console))
        await self.pilot.pause()

    async def on_tab(self, number: str) -> None:
        """On that tab, with its rows there."""
        await self.press(number)

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something."""
        await until(self.pilot, true)

    @property
    def list(self) -> TaskList:
        """The task list."""
        return task_list(self.console)

    def line(self, id: str) -> str:
        """What a pane of the place on screen shows."""
        pane = queue_of(self.console).query_one(f"#{id}", Lines)
        return "\n".join("".join(text for text, _ in line).rstrip() for line in pane.lines)

    @property
    def page(self) -> str:
        """What the page on top shows."""
        rows = [line for pane in self.console.screen.query(Lines) for line in pane.lines]
        return "\n".join("".join(text for text, _ in line).rstrip() for line in rows)

    @property
    def plan(self) -> Plan:
        """The plan that is on screen."""
        screen = self.console.screen
        assert isinstance(screen, PlanScreen)
        return screen._plan

    async def opened(self, kind: type) -> None:
        """Wait for a screen."""
        await self.until(lambda: isinstance(self.console.screen, kind))
        await self.pilot.pause()

    async def result(self) -> None:
        """Wait for a plan to be applied."""
        await self.until(lambda: "in the result" in self.page)

    def states(self) -> dict[str, State]:
        """Where each task stands."""
        return {task.id: task.state for task in self.memory.tasks.values()}


@asynccontextmanager
async def a_deck(
    memory: Memory | None = None,
    *,
    size: tuple[int, int] = (80, 24),
    read_only: bool = False,
    armed: bool = False,
    **place: object,
) -> AsyncIterator[Deck]:
    """A console on a queue in memory."""
    memory = a_memory(some_tasks()) if memory is None else memory
    clock = Clock()
    console = a_console(
        a_place(memory, **place), clock=clock, read_only=read_only, start_armed=armed
    )
    async with console.run_test(size=size) as pilot:
        await loaded(pilot)
        yield Deck(console, pilot, memory, clock)


# Looking


async def test_a_tab_for_each_state() -> None:
    """Each state has a tab by the store's own word with its count; problems have one, too."""
    async with a_deck(size=(100, 24)) as deck:
        assert deck.line("tabs") == (
            " [1 pending 40]  2 active 1   3 held 0   4 dead 12   5 done 0   6 trash 0 "
            "  7 problems 0"
        )


@pytest.mark.parametrize(
    ("pressed", "at"),
    [
        (["j"], 1),
        (["down"], 1),
        (["j", "k"], 0),
        (["down", "up"], 0),
        (["G"], 39),
        (["end"], 39),
        (["G", "g"], 0),
        (["end", "home"], 0),
        (["pagedown"], 9),
        (["pagedown", "pageup"], 0),
    ],
)
async def test_motions(pressed: list[str], at: int) -> None:
    """The motion keys move the cursor, and the scope line names the task it is on."""
    async with a_deck() as deck:
        await deck.press(*pressed)

        assert deck.list.cursor.at == at
        assert deck.line("scope") == f" scope if you act now: row {deck.list.cursor.id}"


@pytest.mark.parametrize(
    ("pressed", "tab"),
    [
        (["tab"], 1),
        (["right"], 1),
        (["tab", "shift+tab"], 0),
        (["tab", "left"], 0),
        (["4"], 3),
        (["shift+tab"], -1),
    ],
)
async def test_tabs(pressed: list[str], tab: int) -> None:
    """Tab and its kin go round the tabs, a digit to the one of its number."""
    async with a_deck() as deck:
        await deck.press(*pressed)
        screen = queue_of(deck.console)

        assert screen._tab == tab % len(screen._tabs)


async def test_a_tab_that_is_not_there() -> None:
    """A digit without a tab changes nothing and says so."""
    async with a_deck() as deck:
        await deck.press("9")

        assert "there is no tab 9" in deck.line("hints")


async def test_each_tab_keeps_its_cursor() -> None:
    """Coming back to a tab, the cursor is where it was left."""
    async with a_deck() as deck:
        await deck.press("j", "j")
        there = deck.list.cursor.id
        await deck.on_tab(DEAD)
        assert deck.list.cursor.id != there
        await deck.on_tab("1")

        assert deck.list.cursor.id == there


async def test_filter_while_typing() -> None:
    """`/` takes plain words and shows what matches while they are typed; Esc clears them."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("/", *"UNKNOWN")
        await deck.until(lambda: deck.list.total == 4)
        assert "4 of 12 match" in deck.line("filter-count")

        await deck.press("enter")
        assert deck.list.has_focus
        assert deck.list.total == 4

        await deck.press("escape")
        await deck.until(lambda: deck.list.total == 12)
        assert not queue_of(deck.console).query_one(FilterLine).is_on


async def test_a_filter_without_a_match_says_so() -> None:
    """Where a filter leaves nothing, that is said in place of the rows."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("/", *"nowhere")
        await deck.until(lambda: deck.list.total == 0)

        assert "none of 12 tasks" in deck.list.render_line(2).text


async def test_enter_opens_the_task() -> None:
    """Enter shows every field, why the task waits, and its text; Esc goes back."""
    async with a_deck() as deck:
        await deck.press("enter")
        await deck.opened(TaskScreen)
        await deck.until(lambda: "why not run" in deck.page)

        task = next(t for t in deck.memory.tasks.values() if t.id == deck.list.cursor.id)
        assert task.id in deck.page
        assert task.description in deck.page
        await deck.pilot.press("7")
        await deck.until(lambda: "as it is stored" in deck.page)

        await deck.press("escape")
        assert not isinstance(deck.console.screen, TaskScreen)


async def test_a_task_on_screen_that_leaves() -> None:
    """A task that leaves while it is looked at stays readable, and is said to be gone."""
    async with a_deck() as deck:
        await deck.press("enter")
        await deck.opened(TaskScreen)
        await deck.until(lambda: "created" in deck.page)
        with deck.memory.changed:
            deck.memory.put(("", deck.list.cursor.id), None)

        await deck.until(lambda: "it is not there any more" in deck.page)
        await deck.until(lambda: "created" in deck.page)


async def test_problems_are_counted_and_listed(tmp_path: Path) -> None:
    """A file that cannot be read has a count on its tab and is listed there with the reason."""
    make_spool(tmp_path, some_tasks())
    (tmp_path / "queue" / "dlq" / "broken.task").write_bytes(b"")
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        screen = queue_of(console)
        await until(pilot, lambda: screen.inspector.latest.problems == 1)
        await pilot.press("shift+tab")
        text = screen.query_one("#problems", LongText)
        await until(pilot, lambda: "broken.task" in str(text.lines))

        assert "interrupted" in str(text.lines)
        await pilot.press("X")
        assert "a problem is no task" in str(screen.query_one("#hints", Lines).lines)

        await pilot.press("enter")
        await until(pilot, lambda: isinstance(console.screen, ProblemsScreen))
        await pilot.pause()
        full = str(console.screen.query_one(LongText).lines)
        assert "problem 1 of 1" in full
        assert "broken.task" in full
        await until(pilot, lambda: "it is empty" in str(console.screen.query_one(LongText).lines))


async def test_reread() -> None:
    """`r` looks at everything again, and says when it has."""
    async with a_deck() as deck:
        await deck.press("r")
        await deck.until(lambda: "everything was looked at again" in deck.line("hints"))


async def test_help() -> None:
    """`?` opens the help of the screen, which is moved through and closed."""
    async with a_deck() as deck:
        await deck.press("?")
        await deck.opened(HelpScreen)
        await deck.press("pagedown")
        assert deck.console.screen.query_one("#text", LongText).top > 0
        await deck.press("escape")
        assert not isinstance(deck.console.screen, HelpScreen)


async def test_places_are_switched() -> None:
    """`]` and `[` go round the places; each keeps its tab."""
    places = (a_place(a_memory(some_tasks())), a_place(a_memory([]), name="/srv/other"))
    console = a_console(*places)
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await pilot.press("2", "]")
        await until(pilot, lambda: queue_of(console).place.name == "/srv/other")
        await loaded(pilot)
        head = str(queue_of(console).query_one("#top-line", Lines).lines)
        assert "/srv/other" in head
        assert "(2/2)" in head

        await pilot.press("[")
        await until(pilot, lambda: queue_of(console).place.name != "/srv/other")
        assert queue_of(console)._tab == 1


# Marks and scope


async def test_marks_and_the_scope() -> None:
    """Space marks, again it does not; `*` is all that match; `\\` takes all away."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("space", "space")
        assert deck.line("scope") == " scope if you act now: 2 marked"

        await deck.press("k", "space")
        assert deck.line("scope") == " scope if you act now: 1 marked"

        await deck.press("*")
        assert deck.line("scope") == " scope if you act now: all 12 matching"

        await deck.press("\\")
        assert deck.line("scope").startswith(" scope if you act now: row ")


async def test_hidden_marks_are_not_included() -> None:
    """A mark that a filter hides is counted, said, and not acted on."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("space", "space", "space")
        await deck.press("/", *"unknown", "enter")
        assert deck.line("scope") == (
            " scope if you act now: 1 marked   2 hidden marks not included"
        )

        await deck.press("R")
        await deck.opened(PlanScreen)
        assert len(deck.plan.rows) == 1


async def test_a_mark_that_is_hidden_by_the_time_of_the_plan_is_in_none() -> None:
    """A verb that comes before the screen knows which marks are hidden leaves those alone."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("space", "space", "space")
        screen = queue_of(deck.console)
        screen._filter.put("unknown")
        assert not screen._hidden
        screen.action_plan("purge")
        await deck.opened(PlanScreen)

        assert len(deck.plan.rows) == 1
        assert "1 marked, 2 hidden or gone ones not included" in deck.page


async def test_a_filter_in_error_widens_no_scope() -> None:
    """While the filter is wrong, verbs, all and ranges are refused, and the scope line says why."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("/", *"tris>5", "enter")
        wrong = deck.line("scope").removeprefix(" scope if you act now: nothing: ")
        assert wrong.startswith('no field "tris"')

        for key in ("*", "v", "X"):
            queue_of(deck.console).say("")
            await deck.press(key)
            assert wrong.removesuffix("…") in deck.line("hints")
        assert not queue_of(deck.console)._everything
        assert deck.list.range_from is None
        assert isinstance(deck.console.screen, QueueScreen)

        await deck.press("escape", "*")
        assert deck.line("scope") == " scope if you act now: all 12 matching"


@pytest.mark.parametrize("what", ["_explain_filter", "_sort_marks"])
async def test_what_is_asked_while_the_console_is_left_ends_nothing(what: str) -> None:
    """A question that comes after the index was closed is answered by a word, not by a crash."""
    async with a_deck() as deck:
        screen = queue_of(deck.console)
        await deck.press("space")
        await screen.inspector.close()

        screen._ask_for(what, getattr(screen, what))

        await deck.until(lambda: "closed" in deck.line("hints"))


async def test_a_range_marks_what_was_painted() -> None:
    """A row that left while the order is held draws no row from outside into the range."""
    async with a_deck() as deck:
        await deck.press("j", "v", "j", "j", "j")
        screen = queue_of(deck.console)
        painted = [deck.list.held(1, 4)[at] for at in (1, 2, 3, 4)]
        victim = painted.pop(1)
        with deck.memory.changed:
            deck.memory.put(("", victim), None)
        await deck.until(lambda: victim in deck.list.ghosts)
        await deck.press("v")

        assert screen._marked == set(painted)


async def test_a_plan_comes_on_no_other_screen() -> None:
    """A plan that is made when the operator has gone elsewhere is dropped, and that is said."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        screen = queue_of(deck.console)
        screen.action_plan("purge")
        screen.action_order()
        await deck.until(lambda: not any(w.group == "plan" for w in screen.workers))
        await deck.pilot.pause()

        assert not any(isinstance(s, PlanScreen) for s in deck.console.screen_stack)
        assert screen._said[0].startswith("no plan: another screen")


async def test_a_mark_goes_with_its_task() -> None:
    """When a marked task leaves, its mark does, and the operator is told."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("space")
        (marked,) = queue_of(deck.console)._marked
        with deck.memory.changed:
            deck.memory.put(("", marked), None)

        await deck.until(lambda: "marked task left" in deck.line("hints"))
        assert " marked" not in deck.line("scope")


# Plans


async def test_observe_shows_a_plan_and_applies_none() -> None:
    """In OBSERVE a plan is built and seen; no key applies it, and that is said."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        before = deck.states()
        await deck.press("X")
        await deck.opened(PlanScreen)
        assert "OBSERVE: this plan cannot be applied" in deck.page

        for key in ("y", "1", "enter"):
            await deck.press(key)

        assert deck.states() == before
        assert isinstance(deck.console.screen, PlanScreen)


async def test_one_reversible_task_is_applied_by_y() -> None:
    """`!` in a plan arms and the plan stays; `y` applies it to the task under the cursor."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("j")
        id = deck.list.cursor.id
        await deck.press("R")
        await deck.opened(PlanScreen)
        await deck.press("!", "enter")
        assert deck.states()[id] is State.DEAD
        await deck.press("y")
        await deck.result()

        assert deck.states()[id] is State.PENDING
        assert "1 retried" in deck.page
        assert "1 planned, 1 in the result: all accounted for" in deck.page


async def test_many_are_applied_by_their_count() -> None:
    """A plan for many asks for their count: the last right digit applies, nothing else does."""
    async with a_deck(armed=True) as deck:
        await deck.on_tab(DEAD)
        await deck.press("*", "X")
        await deck.opened(PlanScreen)
        before = deck.states()
        await deck.press("y", "enter", "2", "1", "3", "1", "backspace")
        assert deck.states() == before

        await deck.press("1", "2")
        await deck.result()

        assert sum(state is State.TRASH for state in deck.states().values()) == 12
        assert "12 purged" in deck.page


async def test_esc_discards_a_plan() -> None:
    """Esc closes a plan, and nothing has happened."""
    async with a_deck(armed=True) as deck:
        before = deck.states()
        await deck.press("X")
        await deck.opened(PlanScreen)
        await deck.press("escape")

        assert not isinstance(deck.console.screen, PlanScreen)
        assert deck.states() == before


async def test_a_task_that_changed_is_left_alone() -> None:
    """A task that somebody else changed after the plan was made is gone, and left as it is."""
    async with a_deck(armed=True) as deck:
        await deck.on_tab(DEAD)
        await deck.press("space", "space", "R")
        await deck.opened(PlanScreen)
        rival = deck.plan.rows[0].id
        with deck.memory.changed:
            deck.memory.put(("", rival), deck.memory.tasks["", rival])
        await until(deck.pilot, lambda: "1 dropped since: changed" in deck.page)
        screen = deck.console.screen
        assert isinstance(screen, PlanScreen)
        await deck.press("y")
        await deck.result()

        assert deck.states()[rival] is State.DEAD
        assert "1 retried" in deck.page
        assert "1 gone" in deck.page
        assert "2 planned, 2 in the result: all accounted for" in deck.page


async def test_a_grey_key_says_why() -> None:
    """A verb that is not to be had here is grey among the hints, and pressing it says why."""
    async with a_deck() as deck:
        assert "retry" in queue_of(deck.console).refusal("retry")
        await deck.press("R")

        assert "retry: not from pending" in deck.line("hints")
        assert not isinstance(deck.console.screen, PlanScreen)


async def test_read_only_offers_no_verb() -> None:
    """With --read-only no verb is among the hints, and none opens a plan."""
    async with a_deck(read_only=True) as deck:
        await deck.on_tab(DEAD)
        assert "retry" not in deck.line("hints")
        for key in ("R", "X", "!", "W"):
            await deck.press(key)
            assert "read only" in deck.line("hints")

        assert "READ ONLY" in deck.line("top-line")


# The mode


async def test_arming_ends() -> None:
    """Armed, writes are allowed for 15 minutes, counted down in the header; then it is OBSERVE."""
    async with a_deck() as deck:
        screen = queue_of(deck.console)
        await deck.press("!")
        assert "ARMED 15:00" in deck.line("top-line")

        deck.clock.now += 28
        screen._tick()
        assert "ARMED 14:32" in deck.line("top-line")

        deck.clock.now += PERIOD
        screen._tick()
        assert "OBSERVE" in deck.line("top-line")


async def test_arming_again_disarms() -> None:
    """`!` while armed goes back to OBSERVE."""
    async with a_deck(armed=True) as deck:
        await deck.press("!")

        assert "OBSERVE" in deck.line("top-line")


async def test_what_is_applied_extends_the_armed_time() -> None:
    """Each write begins the 15 minutes anew."""
    async with a_deck(armed=True) as deck:
        await deck.on_tab(DEAD)
        deck.clock.now += 600
        await deck.press("R")
        await deck.opened(PlanScreen)
        await deck.press("y")
        await deck.result()

        assert deck.console.queue(1)._arming.left == PERIOD


@pytest.mark.parametrize("way", [("c",), ("enter",)], ids=["clusters", "task"])
@pytest.mark.parametrize(("armed", "words"), [(True, "! disarm"), (False, "! arm")])
async def test_the_hint_says_what_the_arming_key_does(
    way: tuple[str, ...], armed: bool, words: str
) -> None:
    """`!` disarms where it is armed, on every screen that has the key."""
    async with a_deck(armed=armed) as deck:
        await deck.on_tab(DEAD)
        await deck.press(*way)
        await deck.until(lambda: not isinstance(deck.console.screen, QueueScreen))

        await deck.until(
            lambda: words in text_of(deck.console.screen).replace("\n", " ").split("  ")
        )


async def test_hints_promise_no_problem_where_there_is_none() -> None:
    """On the tab of problems Enter shows all of them in full; there is no cursor to open."""
    async with a_deck() as deck:
        await deck.press("7")

        assert "Enter all in full" in deck.line("hints")
        assert "open" in queue_of(deck.console)._grey()


# The worker


async def test_the_worker_is_started_and_stopped() -> None:
    """`W` plans to start a child in its own session, or to stop it, and `y` does it."""
    async with a_deck(armed=True, work=SLEEPER) as deck:
        await deck.press("W")
        await deck.opened(WorkerScreen)
        assert queue_of(deck.console).worker.pid is None
        await deck.press("y")
        await deck.until(lambda: "worker started" in deck.line("hints"))
        pid = queue_of(deck.console).worker.pid
        assert pid is not None
        assert os.getsid(pid) == pid

        await deck.press("W")
        await deck.opened(WorkerScreen)
        assert f"SIGTERM to PID {pid}" in deck.page
        await deck.press("y")
        await deck.until(lambda: "told to stop" in deck.line("hints"))
        await deck.until(lambda: "was ended by SIGTERM" in deck.line("hints"))


async def test_no_worker_in_observe() -> None:
    """A worker changes tasks: in OBSERVE none is started."""
    async with a_deck(work=SLEEPER) as deck:
        await deck.press("W")
        await deck.opened(WorkerScreen)
        await deck.press("y")

        assert "OBSERVE" in deck.page
        assert not queue_of(deck.console).worker.pid


async def test_a_worker_that_cannot_start() -> None:
    """What went wrong is said, and the console goes on."""
    async with a_deck(armed=True, work=("/nowhere/spooldeck",)) as deck:
        await deck.press("W")
        await deck.opened(WorkerScreen)
        await deck.press("y")

        await deck.until(lambda: "did not start" in deck.line("hints"))


async def test_leaving_asks_about_the_worker() -> None:
    """With a worker running `q` asks first, on top of the screen, and stops nothing, however often
    it is pressed; Esc stays, `s` stops the worker and leaves.
    """
    async with a_deck(armed=True, work=SLEEPER) as deck:
        await deck.press("W")
        await deck.opened(WorkerScreen)
        await deck.press("y")
        await deck.until(lambda: queue_of(deck.console).worker.pid)
        process = queue_of(deck.console).worker._process
        assert process is not None
        await deck.press("q")
        await deck.opened(QuitScreen)
        assert str(process.pid) in deck.page
        assert deck.console.screen.styles.background.a == 0
        await deck.press("escape", "q", "q", "q")
        await deck.opened(QuitScreen)
        assert process.returncode is None
        deck.console.simulate_key("s")
        await ended(deck.console)

        assert process.returncode == -signal.SIGTERM


async def test_leaving_can_keep_the_worker() -> None:
    """With `k` the worker runs on without the console."""
    async with a_deck(armed=True, work=SLEEPER) as deck:
        await deck.press("W")
        await deck.opened(WorkerScreen)
        await deck.press("y")
        await deck.until(lambda: queue_of(deck.console).worker.pid)
        pid = queue_of(deck.console).worker.pid
        assert pid is not None
        await deck.press("q")
        await deck.opened(QuitScreen)
        deck.console.simulate_key("k")
        await ended(deck.console)

    assert await asyncio.to_thread(_ended, pid) == signal.SIGKILL


async def ended(console: Console) -> None:
    """Wait until the console has said how it was left: its pilot cannot be asked any more."""
    for _ in range(int(PATIENCE / 0.01)):
        if console.return_code is not None:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the console did not end")


def _ended(pid: int) -> int:
    """Ends what was left running: it was there until now if this is the signal it died of."""
    os.kill(pid, signal.SIGKILL)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


# What happens around it


async def test_a_change_outside_is_shown(tmp_path: Path) -> None:
    """A task that somebody else adds or removes appears and disappears by itself."""
    make_spool(tmp_path, [a_task(1)])
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        new = put_file(tmp_path, a_task(2))
        await until(pilot, lambda: task_list(console).total == 2)
        new.unlink()
        await until(pilot, lambda: task_list(console).total == 1)


async def test_a_place_that_comes_and_goes(tmp_path: Path) -> None:
    """A place that is not there is said in words; when it comes, so do its tasks, and again."""
    root = tmp_path / "spool"
    console = a_console(disk_place(root))
    async with console.run_test(size=(80, 24)) as pilot:
        screen = console.queue(1)
        await until(pilot, lambda: "cannot be reached" in str(screen.list._notice))
        await pilot.press("j", "enter", "R", "space", "*", "tab")

        make_spool(root, [a_task(1)])
        await until(pilot, lambda: screen.list.total == 1)
        root.rename(tmp_path / "elsewhere")
        await until(pilot, lambda: "cannot be reached" in str(screen.list._notice))
        assert "?" in str(screen.query_one("#tabs", Lines).lines)
        assert "1/1" not in screen.list.render_line(0).text
        (tmp_path / "elsewhere").rename(root)
        await until(pilot, lambda: not screen.list._notice)


async def test_the_lock_is_watched() -> None:
    """A stuck lock is said with its age and the reason, and that it is free when it is."""
    evidence = [LockEvidence(Verdict.STUCK, 42, Clock().now - 2820, 2820, "no sign of life")]
    async with a_deck(lock=lambda: evidence[-1]) as deck:
        assert "! CRIT stuck by PID 42" in deck.line("lock")
        assert "47m ago" in deck.line("lock")
        assert "no sign of life" in deck.line("lock")

        evidence.append(LockEvidence(Verdict.FREE))
        await deck.until(lambda: "free" in deck.line("lock"))


async def test_the_figures_are_compared(tmp_path: Path) -> None:
    """The metrics file is shown with its age; where it differs from our count, it warns."""
    make_spool(tmp_path, some_tasks())
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        pane = queue_of(console).query_one("#figures", Lines)

        def said() -> str:
            return "\n".join("".join(text for text, _ in line) for line in pane.lines)

        await until(pilot, lambda: "written just now" in said())
        assert "WARN" not in said()
        assert "sendmail 4 tried 1 sent 3 failed" in said()

        put_file(tmp_path, a_task(99))
        await until(pilot, lambda: "! WARN queue.prom says pending 40, here 41" in said())


async def test_the_log_is_followed(tmp_path: Path) -> None:
    """New lines of the log appear, with their level in words."""
    make_spool(tmp_path, [])
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        with (tmp_path / "log" / "queue.log").open("a") as log:
            log.write("[2026-11-20 09:42:00] [ERROR] disk on fire\n")
        pane = queue_of(console).query_one("#log", Lines)
        await until(pilot, lambda: "disk on fire" in str(pane.lines))


HOSTILE = "[/nope][@click=app.quit]x[/] \x1b[31m\x1b]0;owned\x07\x9b2J\u202e\x00" + "A" * 100_000


async def test_hostile_text_is_text() -> None:
    """Markup, escapes and endless lines are shown as text, in the list, in full and in a plan."""
    task = a_task(1, State.DEAD, error=HOSTILE, description=HOSTILE, destination=HOSTILE)
    memory = a_memory([task])
    async with a_deck(memory, size=(120, 40)) as deck:
        await deck.on_tab(DEAD)
        await deck.until(lambda: deck.list.total == 1)
        assert "[/nope]" in deck.list.render_line(1).text
        assert_printable(deck.console)
        await deck.press("R")
        await deck.opened(PlanScreen)
        assert_printable(deck.console)
        await deck.press("escape", "enter")
        await deck.opened(TaskScreen)
        for part, told in zip("1237", ("what", "description", "payload", "stored"), strict=True):
            await deck.pilot.press(part)
            await deck.until(partial(lambda said: said in deck.page, told))
            assert_printable(deck.console)


def assert_printable(console: Console) -> None:
    """Nothing on screen could make a terminal act."""
    for strip in console.screen._compositor.render_strips():
        assert strip.text.isprintable()


async def test_a_log_with_escapes_is_text(tmp_path: Path) -> None:
    """A log line cannot reach the terminal either."""
    make_spool(tmp_path, [])
    (tmp_path / "log" / "queue.log").write_bytes(HOSTILE[:1000].encode() + b"\n")
    console = a_console(disk_place(tmp_path))
    async with console.run_test(size=(80, 24)) as pilot:
        await loaded(pilot)
        await until(pilot, lambda: "nope" in str(queue_of(console).query_one("#log", Lines).lines))
        assert_printable(console)


@pytest.mark.parametrize("size", [(1, 1), (20, 5), (59, 14), (80, 24), (120, 30), (200, 60)])
async def test_any_size(size: tuple[int, int]) -> None:
    """It starts and goes on at any size, and survives being resized."""
    async with a_deck(size=size) as deck:
        await deck.press("j", DEAD, "G")
        await deck.pilot.resize_terminal(80, 24)
        await deck.pilot.resize_terminal(*size)
        assert_printable(deck.console)


async def test_a_store_that_cannot_be_opened_to_act() -> None:
    """When a plan cannot be applied at all, every task of it has failed for that reason."""
    memory = a_memory(some_tasks())
    closed: list[bool] = []

    def open_store() -> Store:
        if closed:
            raise Unavailable("the disk is gone")
        return a_place(memory).open()

    async with a_deck(memory, armed=True, open=open_store) as deck:
        await deck.on_tab(DEAD)
        await deck.press("*", "X")
        await deck.opened(PlanScreen)
        closed.append(True)
        await deck.press("1", "2")
        await deck.result()

        assert "12 failed" in deck.page
        assert "12: the disk is gone" in deck.page


@pytest.mark.deep
async def test_every_key_is_pressed_here() -> None:
    """Whatever is on screen, no key brings the console down, and in OBSERVE none writes."""
    leaves = ("leave", "app.suspend_process")
    pressed = [name for key in keys.on(keys.LIST) for name in key.keys if key.action not in leaves]
    for tab in ("1", DEAD, "7"):
        async with a_deck() as deck:
            for key in pressed:
                before = deck.memory.moves
                await deck.pilot.press(tab, key)
                await deck.pilot.pause()
                assert deck.console.is_running, key
                await deck.pilot.press("escape")
                assert deck.memory.moves == before, key


def test_a_console_needs_no_place_on_disk(tmp_path: Path) -> None:
    """A console is made without looking at its places: what is wrong with one is shown in it."""
    place = Place(str(tmp_path / "none"), lambda: 1 / 0)  # type: ignore[arg-type, return-value]

    assert a_console(place).queue(1).place is place


# Small screens, Ctrl-c, and what is counted


async def test_a_small_screen_keeps_what_matters() -> None:
    """At 40x10 the place, the mode and three columns are there, and a stuck lock is seen."""
    stuck = LockEvidence(Verdict.STUCK, 42, reason="older than 1200 s")
    async with a_deck(size=(40, 10), lock=lambda: stuck) as deck:
        await deck.until(lambda: "stuck" in deck.line("lock"))
        await deck.until(lambda: queue_of(deck.console).query_one("#lock").size.height == 1)

        assert deck.line("top-line").startswith(" nftban  53 tasks ")
        assert deck.list.render_line(0).text.split()[:3] == ["ID", "DUE", "ERROR"]


async def test_a_small_screen_does_not_show_a_free_lock() -> None:
    """At 40x10 there is no line for a lock that is as it should be."""
    async with a_deck(size=(40, 10)) as deck:
        assert not queue_of(deck.console).query_one("#lock").display


async def test_ghosts_are_not_counted() -> None:
    """Rows that have left stay on screen for a moment, but are not among all that match."""
    async with a_deck() as deck:
        await deck.on_tab(DEAD)
        await deck.press("j", "*")
        left = deck.list.cursor.id
        with deck.memory.changed:
            deck.memory.put(("", left), None)
        await deck.until(lambda: deck.list.gone)
        await deck.until(lambda: deck.line("scope") == " scope if you act now: all 11 matching")

        await deck.press("R")
        await deck.opened(PlanScreen)
        assert "all 11 that matched" in deck.page


async def test_a_plan_says_disarm_while_armed() -> None:
    """The hints of a plan name what `!` would do now, as those of the list do."""
    async with a_deck(armed=True) as deck:
        await deck.on_tab(DEAD)
        await deck.press("R")
        await deck.opened(PlanScreen)
        assert "! disarm" in deck.page

        await deck.press("!")
        assert "! disarm" not in deck.page
        assert "! arm" in deck.page


async def test_ctrl_c_cancels_and_twice_leaves() -> None:
    """Ctrl-c ends typing, closes a plan, and on the list leaves when it is pressed again."""
    async with a_deck() as deck:
        await deck.press("/", "x", "ctrl+c")
        assert deck.list.has_focus
        assert not queue_of(deck.console).query_one(FilterLine).is_on

        await deck.on_tab(DEAD)
        await deck.press("R")
        await deck.opened(PlanScreen)
        await deck.press("ctrl+c")
        assert not isinstance(deck.console.screen, PlanScreen)

        await deck.press("ctrl+c")
        assert "Ctrl-c again" in deck.line("hints")
        assert deck.console.return_code is None
        await deck.pilot.press("ctrl+c")
        await until(deck.pilot, lambda: deck.console.return_code == 0)


async def test_a_queue_is_opened_again() -> None:
    """A queue that was left for the overview is there again, as it was left, and shows its rows."""
    console = a_console(a_place(a_memory(some_tasks())), first=keys.OVERVIEW)
    async with console.run_test(size=(80, 24)) as pilot:
        for _ in range(3):
            await pilot.press("4")
            await loaded(pilot)
            assert queue_of(console).state is State.DEAD
            await until(pilot, lambda: "row " in shown_on(console))
            await pilot.press("j")
            assert task_list(console).cursor.id[-8:] in shown_on(console)
            await pilot.press("q")
            await until(pilot, lambda: console.screen.query("AgeTable"))


def shown_on(console: Console) -> str:
    """What is on screen, as text."""
    return "\n".join(strip.text for strip in console.screen._compositor.render_strips())
