"""The console on the list of a queue: its keys, marks, plans and worker, and changes."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from textual.events import Resize
from textual.geometry import Size
from textual.widgets import Input

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.logs.log_line import format_log_line
from engine.model import Edge, LockEvidence, State, Task, Verdict
from engine.places.place import Place, WholeQueueFigures
from engine.store import Store, Unavailable
from tests.console_operator import ConsoleOperator, an_operator, clock_of
from tests.console_places import (
    FOLDERS,
    NOW,
    PATIENCE,
    Clock,
    a_console,
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    disk_place,
    free,
    is_done,
    make_spool,
    put_file,
    some_tasks,
    task_list,
)
from tests.examples import few_of
from tui.confirm.action_screen import ActionScreen
from tui.key_tables import keys_on
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.queue import task_details
from tui.queue.filter_line import FilterLine
from tui.queue.parts import Change
from tui.queue.problems_screen import ProblemsScreen
from tui.queue.screen import QueueScreen
from tui.screens.console_context import ARMED_SECONDS, Arming
from tui.screens.dialogs import QuitScreen
from tui.screens.help import HelpScreen
from tui.session import place_session
from tui.task.screen import TaskScreen
from tui.text import keys
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.list_view import ListView
from tui.widgets.task_list import TaskList

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")
DEAD = "4"
"""The tab of the dead tasks in a memory store."""


class ListOperator(ConsoleOperator):
    """An operator on the list of a queue in memory, who lets each key come to its end."""

    memory: MemoryTasks

    async def press(self, *pressed: str) -> None:
        """Press keys; after each, wait until what it began is done."""
        for key in pressed:
            await self.pilot.press(key)
            await self.until(lambda: is_done(self.console))
            await self.pilot.pause()

    @property
    def list(self) -> TaskList:
        """The list."""
        return task_list(self.console)

    @property
    def view(self) -> ListView:
        """What the list shows."""
        return self.list.rows.view

    async def says(self, text: str) -> None:
        """Wait until this is in the line with the scope."""
        await self.until(lambda: text in self.line("scope"))

    @property
    def scope(self) -> str:
        """What a key would act on."""
        return self.line("scope").partition("acts on ")[2].rstrip()

    def hints(self, words: str) -> bool:
        """Whether these are a hint, in full."""
        return words in self.text.replace("\n", " ").split("  ")

    def remove(self, id: str) -> None:
        """Another process removes a task."""
        with self.memory.condition:
            self.memory.put(("", id), None)

    async def starts_worker(self) -> int:
        """Start a worker; its PID."""
        await self.opens(ActionScreen, "W")
        assert self.queue.session.worker.pid is None
        await self.press("y")
        await self.until(lambda: self.queue.session.worker.pid)
        pid = self.queue.session.worker.pid
        assert pid is not None
        return pid


@asynccontextmanager
async def a_list(
    memory: MemoryTasks | None = None,
    size: tuple[int, int] = (80, 24),
    armed: bool = False,
    **place: object,
) -> AsyncIterator[ListOperator]:
    """A console on a queue in memory, in OBSERVE unless it is armed."""
    memory = a_memory(some_tasks()) if memory is None else memory
    async with an_operator(a_place(memory, **place), size=size, start_armed=armed) as made:
        operator = ListOperator(made.console, made.pilot)
        operator.memory = memory
        yield operator


# Looking

MOTIONS = (
    (["j"], 1),
    (["down"], 1),
    (["j", "k"], 0),
    (["down", "up"], 0),
    (["G"], 39),
    (["end"], 39),
    (["G", "g"], 0),
    (["end", "home"], 0),
    (["pagedown", "pageup"], 0),
    (["pagedown"], 12),
)
TABS = (
    (["l"], State.ACTIVE),
    (["right"], State.ACTIVE),
    (["l", "h"], State.PENDING),
    (["l", "left"], State.PENDING),
    (["4"], State.DEAD),
    (["h"], None),
    (["4", "2"], State.PENDING),
)


async def test_keys_move_the_cursor_and_turn_the_tabs() -> None:
    """The motion keys move the cursor, whose task the scope line names; h, l, arrows and digits
    turn the tabs, one for each state with its count and one for problems; each tab keeps its
    cursor."""
    async with a_list(size=(100, 24)) as operator:
        assert operator.line("tabs") == (
            " pending 40    active 1    held 0    dead 12    done 0    trash 0    problems 0"
        )
        for pressed, state in TABS:
            await operator.press(*pressed)
            assert operator.queue.parts.state is state, pressed
            await operator.press("2")
        await operator.pilot.resize_terminal(80, 24)
        for pressed, at in MOTIONS:
            await operator.press("g", *pressed)
            assert operator.view.cursor.at == at, pressed
            assert operator.scope == operator.view.cursor.id[-8:]
        cursor_id = operator.view.cursor.id
        for tab, is_same in ((DEAD, False), ("2", True)):
            await operator.press(tab)
            assert (operator.view.cursor.id == cursor_id) is is_same


DIGITS = {
    **{"1": keys.OVERVIEW, "2": keys.LIST, "3": keys.WORKERS, "4": keys.LIST, "5": keys.LOCKS},
    **{"6": keys.TRANSPORTS, "7": keys.LOG, "8": keys.OPERATIONS, "9": keys.CONTROLS},
}
"""The screen of each digit."""


async def test_each_digit_leads_to_one_screen() -> None:
    """From the overview, the list, a task, clusters, a log and other screens, a digit opens the
    same screen; Esc closes them all in a few steps."""
    async with a_list() as operator:
        for there in few_of({"1", "enter", "9"}, ("1", "4", "enter", *"ct569")):
            for digit, kind in DIGITS.items():
                await operator.press("2", there, digit)
                await operator.until(lambda: getattr(operator.console.screen, "KIND", "") == kind)  # noqa: B023
                assert len(operator.console.screen_stack) <= 5, (there, digit)
            await operator.press("2", "4")
            assert operator.queue.parts.state is State.DEAD


async def test_enter_opens_the_task_and_question_mark_the_help() -> None:
    """Enter shows the task under the cursor, `?` the help, which is moved through; Esc goes back;
    `r` looks at everything again, and says when it has. A key without an action names itself and
    where all keys are, on each kind of screen once."""
    async with a_list() as operator:
        await operator.press("f5")
        assert "no key f5 here; ? lists the keys" in operator.line("scope")
        await operator.press("a")
        assert "no key a" not in operator.line("scope")
        await operator.opens(PlanScreen, DEAD, "R")
        await operator.press("f5")  # a plan says itself what it waits for
        await operator.opens(QueueScreen, "escape")
        await operator.press("2", "j")
        task = operator.memory.tasks["", operator.view.cursor.id]
        await operator.opens(TaskScreen, "enter")
        await operator.sees("waits", task.id, task.description)
        await operator.step("a", "no key a here; ? lists the keys")
        await operator.until(lambda: "files 1" in operator.line("parts"))
        await operator.press("h")
        await operator.sees(f'"description": "{task.description}"')
        screen = await operator.opens(HelpScreen, "escape", "?")
        await operator.press("pagedown")
        assert screen.query_one("#text", LongText).top > 0
        await operator.step("this space page")
        await operator.until(lambda: operator.text.count("  ?  ") == 1)
        await operator.step("space z", "no matching keys; Esc closes")
        await operator.opens(QueueScreen, "escape")
        await operator.press("r")
        await operator.says("scanned again")


async def test_problems_are_counted_and_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that cannot be read is counted on its tab and listed there with the reason; no verb
    is for it, and Enter shows all problems in full, which is grey where there is none. Of more
    problems than are listed, the title says how many there are."""
    monkeypatch.setattr("engine.index.reader.MAX_PROBLEMS", 2)
    make_spool(tmp_path, some_tasks())
    async with an_operator(disk_place(tmp_path)) as operator:
        await operator.press("h")
        hints = operator.console.screen.query_one("#hints", Lines)
        grey = [text for line in hints.lines for text, style in line if style == "muted"]
        assert "Enter details" in "".join(grey)

        (tmp_path / "queue" / "dlq" / "broken.task").write_bytes(b"")
        await operator.until(lambda: "problems 1" in operator.line("tabs"))
        await operator.until(lambda: "broken.task" in operator.rows)
        assert "interrupted" in operator.rows
        await operator.press("X")
        assert "problems cannot be changed here" in operator.line("scope")
        await operator.opens(ProblemsScreen, "enter")
        await operator.sees("problem 1 of 1", "broken.task", "empty: a write was interrupted")
        await operator.opens(QueueScreen, "escape")
        for number in range(2):
            (tmp_path / "queue" / "dlq" / f"broken{number}.task").write_bytes(b"")
        await operator.sees("Problems 2 of 3")


async def test_nothing_is_planned_without_a_task() -> None:
    """A key of an action says that there is no task, also for all that match, and opens no plan;
    among the hints, which have no room for all keys, it is not."""
    async with an_operator(a_place(a_memory([a_task(1)]))) as operator:
        for pressed in (DEAD, "*"):
            await operator.step(pressed, "no tasks in dead")
            await operator.press("X")
            await operator.until(lambda: "no task to act on  " in operator.line("scope"))
            assert not re.search("X purge|R retry", operator.line("hints"))


async def test_a_list_of_problems_grows_for_what_is_folded(tmp_path: Path) -> None:
    """On a large screen the log gives its lines to problems that are longer than a line."""
    make_spool(tmp_path, some_tasks(3, 0, 2))
    for number in range(4):
        (tmp_path / "queue" / "dlq" / f"{'broken' * 4}{number}.task").write_bytes(b'TASK_ID="x"')
    async with an_operator(disk_place(tmp_path), size=(120, 40)) as operator:
        await operator.step("h", "problems 4")
        await operator.until(lambda: operator.rows.count("interrupted") == 4)


async def test_places_are_switched() -> None:
    """`]` and `[` go round the places, with the tab. An empty list of dead tasks says how many
    other places have."""
    places = a_place(a_memory([])), a_place(a_memory(some_tasks()), name="/srv/other")
    async with an_operator(*places) as operator:
        await operator.press(DEAD)
        await operator.sees("no tasks in dead here, 12 at other places: ] next place")
        await operator.press("]")
        await operator.sees("> other", "(2/2)")
        await operator.until(lambda: operator.queue.parts.state is State.DEAD)
        await operator.press("l", "[")
        await operator.until(lambda: "> other" not in operator.line("top-line"))
        await operator.until(lambda: operator.queue.parts.state is not State.DEAD)


# Marks and scope


async def test_hidden_marks_are_in_no_plan() -> None:
    """No verb acts on a mark that a filter hides, also before the screen knows which are hidden. A
    plan that is made when the operator has gone elsewhere is dropped, and that is said."""
    async with a_list() as operator:
        await operator.press(DEAD, "space", "space", "space")
        filter_text = operator.queue.parts.filter
        filter_text.is_open = filter_text.take("unknown")
        assert operator.scope == "3 marked"
        operator.queue.action_key("X")
        await operator.opens(PlanScreen)
        await operator.sees("1 marked, 2 excluded: hidden or gone")
        assert len(operator.picker.rows) == 1

        await operator.opens(QueueScreen, "escape")
        for key in "Xo":
            operator.queue.action_key(key)
        await operator.until(lambda: not any(w.group == "plan" for w in operator.queue.workers))
        await operator.pilot.pause()
        assert not any(isinstance(s, PlanScreen) for s in operator.console.screen_stack)
        await operator.press("escape")
        assert "no plan: another screen" in operator.line("scope")


async def test_what_is_asked_while_the_console_is_left_ends_nothing() -> None:
    """A question that comes after the index was closed is answered by a word, not by a crash."""
    async with a_list() as operator:
        await operator.press("space")
        await operator.queue.session.inspector.close()
        for what in ("explain_filter", "check_marks"):
            operator.queue.say("")
            assert "closed" not in operator.line("scope"), what
            operator.queue.run(what, getattr(operator.queue.parts, what))
            await operator.says("closed")


async def test_a_range_marks_what_was_painted() -> None:
    """A row that left while the order is held draws no row from outside into the range. When a
    marked task leaves, its mark does, and the operator is told; a row that has left stays on screen
    for a moment, but is not among all that match."""
    async with a_list() as operator:
        await operator.press("j", "v", "j", "j", "j")
        painted = [operator.view.held_ids(1, 4)[at] for at in (1, 2, 3, 4)]
        victim = painted.pop(1)
        operator.remove(victim)
        await operator.until(lambda: victim in operator.view.departed)
        await operator.opens(PlanScreen, "v", "H")
        assert {row.key for row in operator.picker.rows} == set(painted)

        await operator.opens(QueueScreen, "escape")
        await operator.press(DEAD)
        marked = operator.view.cursor.id
        await operator.press("space")
        operator.remove(marked)
        await operator.says("marked task gone")
        assert " marked" not in operator.scope

        await operator.press("j", "*")
        operator.remove(operator.view.cursor.id)
        await operator.until(lambda: operator.view.is_gone)
        await operator.until(lambda: operator.scope == "all 10 matching")
        await operator.opens(PlanScreen, "R")
        await operator.sees("all 10 that match")


# Plans


async def test_a_task_that_changed_is_left_alone() -> None:
    """A task that another process changed after the plan was made is gone, and left as it is. When
    a plan cannot be applied at all, every task of it has failed for that reason."""
    memory = a_memory(some_tasks())
    closed: list[bool] = []

    def open_store() -> Store:
        if closed:
            raise Unavailable("the disk is gone")
        return a_place(memory).open()

    async with a_list(memory, armed=True, open=open_store) as operator:
        await operator.opens(PlanScreen, DEAD, "space", "space", "R")
        rival = operator.picker.rows[0].key
        with operator.memory.condition:
            operator.memory.put(("", rival), operator.memory.tasks["", rival])
        await operator.sees("1 skipped, changed since: changed")
        await operator.press("y")
        await operator.sees("1 retried + 1 skipped = 2")
        assert operator.memory.tasks["", rival].state is State.DEAD

        await operator.opens(QueueScreen, "escape")
        await operator.opens(PlanScreen, "*", "X")
        closed.append(True)
        await operator.press("1", "1")
        await operator.sees("11 failed", "11: the disk is gone")


async def test_the_age_of_the_last_listing_is_shown() -> None:
    """Where tasks are listed from time to time, the second line says how old they are, and how many
    moved meanwhile."""
    async with a_list(
        server="Postfix", lock=None, listed_at=lambda: NOW - 34, moved_in_listing=lambda: 3
    ) as operator:
        await operator.sees("Postfix delivers", "listed 34s ago", "3 moved during the listing")


async def test_details_beside_the_list_are_whole() -> None:
    """A reason that is too long for its line goes on below, also where a warning takes a row: the
    graph makes room."""
    why = "no log of the scheduler is known: set stores.zmailer.log in the configuration"
    place = a_place(
        a_memory([a_task(1)]), lock=a_stuck_lock, no_server_log=why, server="the server"
    )
    place = place._replace(queue_metrics="/nonexistent/queue.prom")
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.step("2", "no queue.prom yet")

        def details() -> str:
            lines = (
                line.rpartition("|")[0].rpartition("|")[2] for line in operator.text.split("\n")
            )
            return " ".join(" ".join(lines).split())

        whole = (f"still? unknown: {why}", "lock is stuck: no heartbeat from PID 4711 for")
        await operator.until(lambda: all(text in details() for text in whole))


async def test_facts_below_the_states_are_whole() -> None:
    """Each word of a long fact is shown, also if it is as wide as the frame leaves."""
    fact = "? no statistics log: option -l of the scheduler, or stores.zmailer.statistics"
    figures = WholeQueueFigures(rows=(("failures", fact),))
    async with a_list(queue_figures=lambda: figures) as operator:
        await operator.pilot.resize_terminal(120, 40)

        def facts() -> str:
            lines = (line.rstrip("| ").rpartition("|")[2] for line in operator.text.split("\n"))
            return " ".join(" ".join(lines).split())

        await operator.until(lambda: f"failures {fact}" in facts())


async def test_details_follow_lock_and_limit_while_the_cursor_rests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Why a task waits is as it is now, though neither the task nor the cursor has changed."""
    monkeypatch.setattr(task_details, "REASONS_SECONDS", 0.1)
    now, token_at = [free()], [0.0]
    waiting = a_memory([a_task(1)])
    place = a_place(waiting, lock=lambda: now[0], token_at=lambda kind: token_at[0])
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.step("2", "backoff until")
        token_at[0] = NOW + 3600
        await operator.sees("no token until")
        now[0] = a_stuck_lock()
        await operator.sees("lock is stuck: no heartbeat from")
        now[0] = free()
        await operator.until(lambda: "lock is stuck" not in operator.text)


async def test_a_barred_task_has_grey_keys_and_stays() -> None:
    """Keys for a task that the store bars are grey with the reason, in list and task; for several
    tasks the plan counts it. Where changes are only requested, plan and result say so."""
    memory = a_memory(some_tasks())
    guarded_id = min(task.id for task in memory.tasks.values() if task.state is State.DEAD)

    def bar(task: Task, now: float) -> str:
        return "its parent runs" if task.id == guarded_id else ""

    def open_store() -> Store:
        store, transition = MemoryStore(memory), (State.DEAD, State.HELD)
        store.edges = {**store.edges, transition: Edge(exact=False, bars=bar)}
        return store

    async with a_list(memory, armed=True, open=open_store) as operator:
        await operator.press(DEAD, "home")
        assert operator.queue.parts.verb_refusal("hold")
        await operator.press("H")
        assert "hold: its parent runs" in operator.line("scope")
        await operator.opens(TaskScreen, "enter")
        await operator.sees("dead since")
        await operator.press("H")
        await operator.sees("hold: its parent runs")
        await operator.opens(QueueScreen, "escape")
        await operator.press("down")
        assert not operator.queue.parts.verb_refusal("hold")
        await operator.opens(PlanScreen, "*", "H")
        await operator.sees("1 excluded: its parent runs", "sent as a request: the server decides")
        await operator.press("1", "1")
        await operator.sees("11 held", "1 excluded", "asked for 11; the server decides")
        assert memory.tasks["", guarded_id].state is State.DEAD


async def test_read_only_offers_no_verb() -> None:
    """With --read-only no verb is among the hints, and pressing one says so."""
    async with an_operator(a_place(a_memory(some_tasks())), read_only=True) as operator:
        await operator.press(DEAD)
        await operator.until(lambda: "retry" not in operator.line("hints"))
        for key in ("R", "X", "!", "W"):
            operator.queue.say("")
            await operator.press(key)
            assert "read only" in operator.line("scope")
        assert "READ ONLY" in operator.line("top-line")


# The mode


async def test_arming_ends() -> None:
    """Armed, writes are allowed for 15 minutes, counted down in the header, and after each write
    for as long again; when they are over, or `!` is pressed once more, it is OBSERVE. `!` is called
    what it does, arm or disarm, on every screen that has the key."""
    async with a_list() as operator:
        clock = clock_of(operator)
        await operator.press(DEAD)
        for key in ("c", "enter", "R"):
            await operator.press(key)
            await operator.until(lambda: operator.console.screen is not operator.queue)
            for hint in ("! arm", "! disarm"):
                await operator.until(partial(operator.hints, hint), lambda: f"{key}: {hint}")  # noqa: B023
                await operator.press("!")
            await operator.opens(QueueScreen, "escape")
        await operator.press("!")
        assert "ARMED 15:00" in operator.line("top-line")
        clock.now += 28
        await operator.sees("ARMED 14:32")
        await operator.opens(PlanScreen, "R")
        await operator.press("y")
        await operator.sees("1 retried")
        await operator.opens(QueueScreen, "escape")
        await operator.sees("ARMED 15:00")
        clock.now += ARMED_SECONDS
        await operator.sees("OBSERVE")
        await operator.press("!", "!")
        assert "OBSERVE" in operator.line("top-line")


def test_an_ended_arming_does_not_come_back() -> None:
    """The time is that of a clock that is never set; after the end only the key arms again."""
    uptime = Clock(100.0)
    arming = Arming(uptime, armed=True)
    uptime.now += ARMED_SECONDS
    assert not arming.is_armed
    arming.extend()
    assert not arming.is_armed
    arming.toggle()
    assert arming.seconds_left == ARMED_SECONDS


# The worker


async def test_the_worker_is_started_and_stopped() -> None:
    """`W` plans to start a child in its own session, or to stop it, and `y` does it. With a worker
    running `q` asks first, on top of the screen, and Esc stays."""
    async with a_list(armed=True, worker_command=SLEEPER) as operator:
        pid = await operator.starts_worker()
        await operator.says("worker started")
        assert os.getsid(pid) == pid

        screen = await operator.opens(QuitScreen, "q")
        await operator.sees("Quit with a running worker", str(pid))
        assert screen.styles.background.a == 0
        await operator.opens(QueueScreen, "escape")
        await operator.opens(ActionScreen, "W")
        await operator.sees(f"SIGTERM to PID {pid}")
        await operator.press("y")
        await operator.says("was ended by SIGTERM")


async def test_a_worker_that_cannot_start() -> None:
    """What went wrong is said, and the console goes on."""
    async with a_list(armed=True, worker_command=("/nowhere/spooldeck",)) as operator:
        await operator.opens(ActionScreen, "W")
        await operator.press("y")
        await operator.sees("not done: the worker did not start")


@pytest.mark.parametrize("key", ["s", "k"])
async def test_leaving_stops_or_keeps_the_worker(key: str) -> None:
    """Asked before it is left, however often `q` is pressed, the console stops the worker with `s`,
    and lets it run on with `k`."""
    async with a_list(armed=True, worker_command=SLEEPER) as operator:
        pid = await operator.starts_worker()
        process = operator.queue.session.worker._process
        assert process is not None
        await operator.opens(QuitScreen, "q", "q", "q")
        assert process.returncode is None
        operator.console.simulate_key(key)
        async with asyncio.timeout(PATIENCE):
            while operator.console.return_code is None:  # noqa: ASYNC110 - its pilot has ended
                await asyncio.sleep(0.01)

    if key == "s":
        assert process.returncode == -signal.SIGTERM
    else:  # it was there until now, if this is the signal that it dies of
        os.kill(pid, signal.SIGKILL)
        _, status = await asyncio.to_thread(os.waitpid, pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL


# What changes by itself


async def test_what_changes_on_disk_is_shown(tmp_path: Path) -> None:
    """A task that another process adds or removes appears and disappears by itself; the metrics
    file has a warning where it differs from our count, until a task moves; new lines of the log
    appear."""
    make_spool(tmp_path, some_tasks())
    other = next((tmp_path / "queue" / FOLDERS[State.PENDING]).iterdir())
    new = put_file(tmp_path, a_task(99))
    folders = tuple(str(tmp_path / "queue" / name) for name in FOLDERS.values())
    for folder in folders:
        os.utime(folder, (NOW - 60, NOW - 60))
    async with an_operator(disk_place(tmp_path)._replace(task_folders=folders)) as operator:
        rows = task_list(operator.console).rows
        await operator.until(lambda: rows.view.total == 41)
        warning = "! WARN queue.prom differs: pending 40, counted 41"
        await operator.until(lambda: warning in operator.line("figures"))
        new.unlink()
        other.unlink()  # with only the new one gone, the numbers are those of the file
        await operator.until(lambda: rows.view.total == 39)
        await operator.until(lambda: not operator.console.screen.query_one("#figures").display)

        with (tmp_path / "log" / "queue.log").open("a") as log:
            log.write("[2026-11-20 09:42:00] [ERROR] disk on fire\n")
        await operator.pilot.resize_terminal(120, 40)
        await operator.until(lambda: operator.line("log").endswith(" E disk on fire"))


async def test_a_place_that_comes_and_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A place that is not there is said in words; when it comes, so do its tasks, and again."""
    for module in ("index_sync", "folder_watch"):
        monkeypatch.setattr(f"engine.live.{module}.RETRY_SECONDS", 0.1)
    root = tmp_path / "spool"
    async with an_operator(disk_place(root), early=True) as operator:
        tasks = operator.console.navigator.queue_screen().widgets.list

        async def is_missed() -> None:
            await operator.until(lambda: "Retried every second" in operator.text)

        await is_missed()
        await operator.press("j", "enter", "R", "space", "*", "tab")
        make_spool(root, [a_task(1)])
        await operator.until(lambda: tasks.rows.view.total == 1)
        root.rename(tmp_path / "elsewhere")
        await is_missed()
        await operator.until(lambda: "?" in operator.line("tabs") and not tasks.row_words)
        (tmp_path / "elsewhere").rename(root)
        await operator.until(lambda: tasks.row_words == "row 1 of 1")
        await operator.until(lambda: "Retried every second" not in operator.text)


async def test_the_seconds_of_a_silence_repaint_the_top_line_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a place does not answer its list is painted once, with the reason; the seconds for
    which it has not are in the top line."""
    answers, asked = threading.Event(), threading.Event()
    seconds, painted = Clock(), list[float]()
    answers.set()
    monkeypatch.setattr(place_session, "monotonic", seconds)

    def lock() -> LockEvidence:
        if not answers.is_set():
            asked.set()
        answers.wait()
        return free()

    async with a_list(lock=lock) as operator:
        paint = operator.queue.widgets.paint

        def note_paint() -> None:
            painted.append(seconds.now)
            paint()

        answers.clear()
        try:
            await operator.until(asked.is_set)
            monkeypatch.setattr(operator.queue.widgets, "paint", note_paint)
            for second in range(3, 7):
                seconds.now = NOW + second
                await operator.until(lambda: f" {second}s" in operator.line("top-line"))  # noqa: B023
            await operator.sees("is unavailable:", "no answer")
            assert set(painted) == {NOW + 3}
            assert "no answer for" not in operator.text.partition("\n")[2]
        finally:
            answers.set()
        await operator.until(lambda: "unavailable" not in operator.text)


async def test_the_lock_is_watched() -> None:
    """A stuck lock is said with its age and the reason, and that it is free when it is. At 40x10 a
    free one has no line and a stuck one has; the place, the mode and three columns are there, too.
    """
    evidence = [stuck := LockEvidence(Verdict.STUCK, 42, NOW - 2820, 2820, "no heartbeat")]
    async with a_list(lock=lambda: evidence[-1]) as operator:
        lock = operator.queue.query_one("#lock")
        await operator.sees("STUCK 47m", "PID 42", "no heartbeat")
        evidence.append(LockEvidence(Verdict.FREE))
        await operator.until(lambda: "free" in operator.line("lock"))

        await operator.pilot.resize_terminal(40, 10)
        await operator.until(lambda: not lock.display)
        evidence.append(stuck)
        await operator.until(lambda: "STUCK" in operator.line("lock") and lock.size.height == 1)
        assert operator.line("top-line").startswith(" nftban ")
        assert operator.list.render_line(0).text.split()[:3] == ["ID", "DUE", "ERROR"]


HOSTILE = "[/nope][@click=app.quit]x[/] \x1b[31m\x1b]0;owned\x07\x9b2J\u202e\x00" + "A" * 20_000


async def test_hostile_text_is_text(tmp_path: Path) -> None:
    """Markup, escapes and endless lines are text in the list, the log, a plan and each part of the
    task."""
    task = a_task(1, State.DEAD, error=HOSTILE, description=HOSTILE, destination=HOSTILE)
    texts = f"Processing task: {task.id} (x: x)", f"Task failed: {task.id} (x): {HOSTILE[:999]}"
    lines = b"".join(format_log_line("ERROR", text, NOW - 9) for text in texts)
    log = tmp_path / "queue.log"
    log.write_bytes(lines + HOSTILE[:1000].encode() + b"\n")
    async with a_list(a_memory([task]), (120, 40), logs=(str(log),)) as operator:
        await operator.press(DEAD)
        await operator.until(lambda: operator.view.total == 1)
        assert "[/nope]" in operator.list.render_line(1).text
        await operator.until(lambda: "nope" in operator.line("log"))
        operator.assert_inert()
        await operator.opens(PlanScreen, "R")
        operator.assert_inert()
        await operator.opens(TaskScreen, "escape", "enter")
        await operator.sees("attempts 1 log 2 files 1")
        parts = {"summary": "description", "payload": "60,519 bytes", "attempts": "failed"}
        parts |= {"log": "Task failed", "files": "60,519 bytes"}
        for part, text in parts.items():
            await operator.on_part(part, text)
            operator.assert_inert()
            await operator.press("l")


async def test_any_size() -> None:
    """The list starts on one cell, and goes on through all sizes. A screen and a question above it
    that get a size late keep the terminal's own: else two sizes at once are laid out in turn
    without end. Textual passes on a new size by a timer that a busy machine can lose."""
    async with a_list(size=(1, 1)) as operator:
        await operator.press("j", DEAD, "G")
        for size in ((20, 5), (59, 14), (120, 30), (200, 60), (1, 1), (80, 24)):
            await operator.pilot.resize_terminal(*size)
            operator.assert_inert()

        for pressed in ((), (":",)):
            await operator.press(*pressed)
            for late in (Size(100, 30), Size(120, 40)):
                operator.console.screen.post_message(Resize(late, late))
            await operator.pilot.pause()
            screens = operator.console.screen_stack[1:]
            assert [(screen.is_modal, screen.outer_size) for screen in screens] == [
                (is_modal, (80, 24)) for is_modal in (False, True)[: 1 + len(pressed)]
            ]

        await operator.press("escape")
        operator.console._resize_timer = operator.console.set_timer(3600, lambda: None)
        await operator.pilot.resize_terminal(120, 40)
        await operator.until(lambda: len(operator.text.splitlines()) == 40)


@pytest.mark.deep
async def test_every_key_is_pressed_here() -> None:
    """On any screen, no key brings the console down, and in OBSERVE none writes."""
    leaves = ("leave", "app.suspend_process")
    pressed = [name for key in keys_on(keys.LIST) for name in key.keys if key.action not in leaves]
    for tab in few_of({DEAD}, ("2", DEAD, "h")):
        async with a_list() as operator:
            for key in pressed:
                before = operator.memory.change_count
                await operator.pilot.press(tab, key)
                await operator.pilot.pause()
                assert operator.console.is_running, key
                await operator.pilot.press("escape")
                assert operator.memory.change_count == before, key


def test_a_console_needs_no_place_on_disk(tmp_path: Path) -> None:
    """A console is made without looking at its places: what is wrong with one is shown in it."""
    place = Place(str(tmp_path / "none"), lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    assert a_console(place).navigator.queue_screen().session.place is place


async def test_ctrl_c_cancels_and_twice_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-c ends typing, closes a plan, and on the list leaves when it is pressed again; a tick of
    the console's clock that comes after that is no error."""
    async with a_list() as operator:
        await operator.press("/", "x", "ctrl+c")
        assert operator.list.has_focus
        assert not operator.queue.query_one(FilterLine).display

        await operator.opens(PlanScreen, DEAD, "R")
        await operator.opens(QueueScreen, "ctrl+c")

        await operator.press("ctrl+c")
        assert "Ctrl-c again: quit" in operator.line("scope")
        assert operator.console.return_code is None
        await operator.pilot.press("ctrl+c")
        await operator.until(lambda: operator.console.return_code == 0)

    monkeypatch.setattr("tui.terminal.bandwidth.ANSWER_SECONDS", 0.0)
    monkeypatch.setattr("tui.terminal.bandwidth.IDLE_SAMPLES", 1000)  # keeps its hurried period
    assert not operator.console.screen_stack
    operator.console._sample()


async def test_a_failure_outside_the_places_is_shown_once() -> None:
    """The text is asked for each second; a new one is a message, without control characters."""
    said = [""]
    place = a_place(a_memory([]))
    async with an_operator(place, trouble=lambda: said[0]) as operator:
        said[0] = "traffic ended: \x1b[2Jboom"
        await operator.sees("traffic ended: ")
        assert "boom" in operator.line("scope")
        assert operator.console.sessions[0].messages == deque()
        operator.console._sample()
        assert operator.console.sessions[0].messages == deque()


async def test_a_queue_is_opened_again() -> None:
    """A queue that was left for the overview is there again, as it was left, and shows its rows.
    Ctrl-c leaves from the overview, too, when it is pressed again."""
    async with an_operator(a_place(a_memory(some_tasks())), first=keys.OVERVIEW) as operator:
        for _ in range(3):
            await operator.opens(QueueScreen, "4")
            await operator.until(lambda: "row " in operator.text)
            assert operator.queue.parts.state is State.DEAD
            await operator.press("j")
            await operator.until(
                lambda: task_list(operator.console).rows.view.cursor.id[-8:] in operator.text
            )
            await operator.opens(OverviewScreen, "q")
        await operator.step("ctrl+c", "Ctrl-c again: quit")
        await operator.pilot.press("ctrl+c")
        await operator.until(lambda: operator.console.return_code == 0)


async def test_a_countdown_is_of_the_time_at_which_it_is_painted() -> None:
    """Details and list count down by one clock, without anything being read again."""
    memory = a_memory([a_task(1, due=NOW + 50, attempts=1, error="busy")])
    async with an_operator(a_place(memory, lock=free), size=(120, 40)) as operator:
        await operator.sees("in <1m", "backoff until 09:42:58Z (in 50s)")
        clock_of(operator).now += 20
        await operator.sees("in <1m", "backoff until 09:42:58Z (in 30s)", "09:42:58Z (in 30s)")
        clock_of(operator).now += 31
        await operator.sees("ready", "due now")


async def test_a_closed_list_is_not_painted_while_the_console_ends() -> None:
    """A list that was closed is kept. When the console ends, its parts go one by one, in any order;
    a change of the queue that comes meanwhile paints nothing."""
    async with an_operator(a_place(a_memory(some_tasks())), first=keys.OVERVIEW) as operator:
        screen = await operator.opens(QueueScreen, "2")
        await operator.opens(OverviewScreen, "escape")
        words, closed = screen.query_one(Input), list[bool]()
        close = screen._close_messages

        async def change_and_close(wait: bool = True) -> None:
            await words._close_messages()
            closed.append(words.is_attached)
            screen.show_change(Change.ALL)
            await close(wait)

        screen._close_messages = change_and_close  # type: ignore[method-assign]
    assert closed == [False]
