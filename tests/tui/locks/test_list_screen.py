"""The locks' board: who has each, the evidence, what waits behind it, and the way to free it."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.index.age_table import AgeRow, Ages
from engine.index.backlog import BacklogSummary
from engine.locks import queue_lock
from engine.locks.queue_lock import PidLock
from engine.model import LockEvidence, Verdict
from tests.console_operator import ConsoleOperator, an_operator, words
from tests.console_places import (
    NOW,
    Clock,
    a_full_disk,
    a_memory,
    a_place,
    a_stuck_lock,
    disk_place,
    make_spool,
    some_tasks,
)
from tests.engine.monitor.test_alerts import a_stale_lock, write_metrics, write_task
from tests.lock_processes import later
from tests.tables import each
from tests.tui.asked_screen import AskedRowsScreen
from tui import mouse
from tui.locks import list_lines as view
from tui.locks.list_lines import PlaceLock
from tui.locks.list_screen import ROWS, LocksParts, LocksScreen
from tui.locks.screen import LockScreen
from tui.queue.screen import QueueScreen
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.rows_parts import ROW_HAS_LEFT, RowCursor
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import lock_step
from tui.text import keys

RED = "\x1b[31mred"


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two empty queues."""
    paths = [tmp_path / name for name in ("first", "second")]
    for root in paths:
        make_spool(root, [])
        shutil.rmtree(root / "metrics")
    return paths


def cells(operator: ConsoleOperator, name: str) -> list[str]:
    """The words behind a name on its line."""
    text = re.sub(r"[][]", "", operator.text)
    lines = [line.strip("│▶>! ").split() for line in text.splitlines()]
    return next((words[1:] for words in lines if words[:1] == [name]), [])


@asynccontextmanager
async def opened(roots: list[Path], **fields: Any) -> AsyncIterator[ConsoleOperator]:
    """The console, opened on its locks, once each was examined; nothing here runs `recover`."""
    places = [disk_place(root, clock=time.time) for root in roots]
    places = [place._replace(recovery_command=("true",)) for place in places]
    async with an_operator(*places, clock=time.time, first=keys.LOCKS, **fields) as operator:
        await operator.opens(LocksScreen)
        await operator.until(lambda: all(live.has_readings for live in operator.console.sessions))
        yield operator


@asynccontextmanager
async def stuck(root: Path) -> AsyncIterator[PidLock]:
    """The lock of a queue, taken by this process 47 and a half minutes ago."""
    ago, path = later(-2850), str(root / "run" / "queue.lock")
    lock = await asyncio.to_thread(queue_lock.acquire_lock, path, 1200, ago["clock"], ago["uptime"])
    try:
        yield lock
    finally:
        await asyncio.to_thread(lock.release)


async def test_a_line_for_each_lock(roots: list[Path]) -> None:
    """Each lock has holder, heartbeat, verdict and how many wait; below are all its facts."""
    first, second = roots
    for number, age in enumerate((90, 7300, 60)):
        write_task(first, "pending", number, age=age)
    write_task(first, "pending", 9, due_in=3600)
    async with stuck(first) as lock, opened(roots, size=(100, 24)) as operator:
        expected = ["STUCK", "PID", str(os.getpid()), "47m", "ago", "3", "2h01m"]
        await operator.until(lambda: cells(operator, "first")[:7] == expected)
        assert cells(operator, "PLACE")[:4] == ["STATE", "HOLDER", "HEARTBEAT", "WAITING"]
        await operator.until(lambda: cells(operator, "second")[:5] == ["FREE", "-", "-", "0", "-"])
        await operator.sees("waiting: 3 due tasks, oldest 2h01m", "by kind: report 3")
        # This process would have to end itself: that is in doubt, and nothing is offered.
        facts = ("flock held by PID", "limit 20m", "no process is signalled", "ps -o pid,")
        await operator.sees(*facts)
        write_task(first, "pending", 4, age=30)
        await operator.sees("by kind: report 4")
        await operator.step("j", "no lock file", "nothing to free")
        a_stale_lock(second)
        await asyncio.to_thread(lock.release)
        # Tasks wait also while no worker has taken the lock.
        is_free = ["FREE", "-", "-", "4", "2h01m"]
        await operator.until(lambda: cells(operator, "first")[:5] == is_free)
        await operator.until(lambda: "STALE" in cells(operator, "second"))


@pytest.mark.parametrize(("ran", "full", "worker", "list_step", "key", "alert"), [
    (None, False, ("true",), "W starts a worker: no worker running", "W start worker", None),
    (5, False, ("true",), "W starts a worker: no worker running", "W start worker", None),
    (5, True, ("true",), "make room on /srv, then W starts a worker", "", "make room"),
    (5, False, (), "U shows the evidence and frees the lock", "U unlock", None),
])  # fmt: skip
async def test_a_stale_lock_has_one_next_step_on_all_screens(
    roots: list[Path],
    ran: float | None,
    full: bool,
    worker: tuple[str, ...],
    list_step: str,
    key: str,
    alert: str | None,
) -> None:
    """The next worker takes it over, so W comes first, also just after a run and, once there is
    room, on a full disk; without a worker to start it is U. Its alert, its list, its plan and the
    lines beside its tasks name the same."""
    root = roots[0]
    write_task(root, "pending", 1, age=90)
    a_stale_lock(root)
    if ran is not None:
        await asyncio.to_thread(write_metrics, root, 0, age=ran)
    place = disk_place(root, clock=time.time)._replace(disks=lambda: (a_full_disk(),) * full)
    place = place._replace(recovery_command=("true",), worker_command=worker)
    async with an_operator(place, clock=time.time, first=keys.LOCKS, size=(120, 40)) as operator:
        await operator.sees("STALE", "can be freed without a worker", f"next {list_step}")
        assert "nothing to free" not in operator.text
        if worker:
            await operator.step("U !", LockScreen, f"next {list_step}", "take over the lock")
            assert "W worker" in operator.line("hints")
            await operator.step("escape")
        await operator.step("2", "make room, then W" if full else f"next {list_step}", key)
        assert "U unlock" in operator.line("lock") or worker
        await operator.step("1", "stale lock: PID", alert or key)


@pytest.mark.parametrize(("lock", "read_only", "step"), [
    (a_stuck_lock(), False, ("U", "unlock", "shows the evidence and frees the lock")),
    (a_stuck_lock(), True, ("", "", "read only: locks cannot be freed here")),
    (a_stuck_lock()._replace(signal_refusal="x"), False,
     ("U", "why", "shows the evidence and why it stays")),
    (a_stuck_lock()._replace(verdict=Verdict.STALE), True,
     ("", "", "read only: locks cannot be freed here")),
    (a_stuck_lock()._replace(verdict=Verdict.FREE), False, ("", "", "")),
])  # fmt: skip
async def test_the_step_of_a_lock(
    lock: LockEvidence, read_only: bool, step: tuple[str, str, str]
) -> None:
    """U is the key where a plan or its doubts can be seen; a console that only reads says so."""
    place = a_place(a_memory([]), lock=lambda: lock, recovery_command=("true",))
    async with an_operator(place._replace(worker_command=("true",))) as operator:
        (session,) = operator.console.sessions
        await operator.until(lambda: session.readings.lock == lock)
        assert lock_step(session, read_only=read_only) == step


async def test_a_tall_screen_has_the_whole_reason_in_the_row(roots: list[Path]) -> None:
    """On a tall screen the rows have the whole width: no reason is cut beside blank lines."""
    async with stuck(roots[0]), opened(roots, size=(200, 60)) as operator:
        await operator.sees("STUCK", "no heartbeat for 47m (limit 20m)", "flock held by PID")
        assert operator.console.screen.query_one("#rows").region.width == 200


async def test_enter_opens_the_lock_under_the_cursor(roots: list[Path]) -> None:
    """U and Enter open the lock of the place under the cursor; with --read-only U says why not."""
    async with stuck(roots[1]):
        async with opened(roots) as operator:
            await operator.until(lambda: "STUCK" in cells(operator, "second"))
            await operator.press("k")  # the worst lock is the first row
            for key in ("enter", "U"):
                await operator.step(key, LockScreen, f"PID {os.getpid()}")
                await operator.opens(LocksScreen, "escape")
            await operator.step("2", QueueScreen, "> second (2/2)")
        async with opened(roots, read_only=True) as operator:
            await operator.step("U", LocksScreen, "read only: locks cannot be freed here")


def test_foreign_words_are_inert() -> None:
    """Text of a lock file, a command line or a kind acts on no terminal."""
    evidence = a_stuck_lock()._replace(reason=RED, signal_refusal=RED, facts=(("holder", RED),))
    lock = PlaceLock(1, RED, evidence, BacklogSummary(NOW - 60, 2, NOW - 60))
    head, rows = view.lock_table([lock], NOW, 100)
    text = words([head, *rows, *view.detail_lines(lock, None, NOW, 60)]).replace("\n", "")
    assert "[31mred" in text and text.isprintable()


def test_the_name_of_a_place_is_whole_in_half_of_120_columns() -> None:
    """State and holder have the cells that they need, the name the others."""
    stuck = PlaceLock(1, "wedged", a_stuck_lock(), BacklogSummary(NOW - 60, 290, NOW - 60))
    rows = [stuck, PlaceLock(2, "postoffice", why_no_lock="no lock file")]
    _, lines = view.lock_table(rows, NOW, 57)
    assert "postoffice" in words(lines) and "PID 4711" in words(lines)
    long = stuck._replace(evidence=a_stuck_lock()._replace(pid=4194304))
    assert "PID 4194304" in words(view.lock_table([long, *rows[1:]], NOW, 57)[1])


def test_two_counts_of_what_waits_are_no_contradiction() -> None:
    """The kinds are counted by themselves: where their sum differs, that is beside it."""
    lock = PlaceLock(1, "flowing", a_stuck_lock(), BacklogSummary(NOW - 60, 288, NOW - 60))
    for total, label in ((288, "by kind: mail_send"), (289, "by kind (counted at another time):")):
        row = AgeRow("mail_send", (total,))
        lines = view.detail_lines(lock, Ages("kind", (row,), row, 0), NOW, 60)
        assert f"{label}" in words(lines)


def test_a_reason_is_in_a_row_only_where_there_is_room() -> None:
    """At 80 columns a row has no reason that is cut, and a place without a lock says so."""
    stuck = PlaceLock(1, "wedged", a_stuck_lock(), BacklogSummary(NOW - 60, 2, NOW - 60))
    rows = [stuck, PlaceLock(2, "outbox", why_no_lock="no lock file (link renames)")]
    tables = (view.lock_table(rows, NOW, width) for width in (80, 120))
    narrow, wide = (words([head, *lines]) for head, lines in tables)
    assert "WHY" not in narrow and "no lock " in narrow
    assert "WHY" in wide and "(link renames)" in wide


@each(("width", "most"), [(58, 3), (78, 3), (100, 6)])
def test_a_long_command_line_leaves_room_for_the_other_facts(width: int, most: int) -> None:
    """A narrow pane has three lines of it; a wide one, and the copy, has all."""
    command = f"PID 4711: {'/usr/bin/python ' * 20}--root /q"
    evidence = a_stuck_lock()._replace(facts=(("holder", command),))
    text = words(view.detail_lines(PlaceLock(1, "a", evidence), None, NOW, width)).split("\n")
    start = next(at for at, line in enumerate(text) if "PID 4711: " in line)
    shown = [line for line in text[start:] if line.strip()]
    assert len(shown) <= most and max(map(len, shown)) <= width
    assert shown[-1].endswith("…" if most == 3 else "--root /q")


def test_the_steps_are_shown_unless_the_holder_is_in_doubt() -> None:
    """A proven holder has the steps that end it; one in doubt has the reason."""
    lock = PlaceLock(1, "a", a_stuck_lock(), BacklogSummary(NOW - 60, 0, None))
    assert "SIGTERM PID 4711" in words(view.detail_lines(lock, None, NOW, 80))
    reason = "it was taken on the host mx2"
    lock = PlaceLock(1, "a", a_stuck_lock()._replace(signal_refusal=reason))
    text = words(view.detail_lines(lock, None, NOW, 80))
    assert f"no process is signalled: {reason}" in " ".join(text.split())
    assert "SIGTERM" not in text and "ps -o pid,user,lstart,args -p 4711" in text


async def test_a_click_opens_the_row_that_was_clicked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the rows change their order between paint and click, that of the paint counts."""
    place = a_place(a_memory([]), lock=a_stuck_lock, recovery_command=("true",))
    places = [place._replace(name=name) for name in ("aaa", "bbb")]
    async with an_operator(*places, size=(100, 30), first=keys.LOCKS) as operator:
        screen = await operator.opens(LocksScreen)
        # The cursor is on the lock that was examined first, which may be either.
        await operator.until(lambda: operator.rows.count("STUCK") == len(places))
        operator.picker.select_key("1")
        worst_first = view.worst_first
        monkeypatch.setattr(view, "worst_first", lambda locks: worst_first(locks)[::-1])
        assert not mouse._select_line(screen, operator.picker, 2)
        assert operator.picker.key == "2"


async def test_a_scroll_of_the_details_reads_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """It writes the frames, which count the lines below."""
    place = a_place(a_memory(some_tasks()), lock=a_stuck_lock)
    async with an_operator(place, size=(80, 16), first=keys.LOCKS) as operator:
        screen = await operator.opens(LocksScreen)
        await operator.press("tab")
        await operator.until(lambda: screen.panes.in_details and screen.panes.details.below)
        with monkeypatch.context() as patch:
            patch.setattr(screen.parts, "rows", None)
            screen.action_move("down")
        assert screen.panes.details.top == 1


def parts_of(screen: AskedRowsScreen, *names: str, read_only: bool = False) -> LocksParts:
    """The locks of places in memory; the first one gets the cursor."""
    clock = Clock()
    context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=len(names))
    places = [a_place(a_memory([]), name=name, lock=a_stuck_lock) for name in names]
    none = a_place(a_memory([]), lock=None)
    sessions = [PlaceSession(place, clock, number=at) for at, place in enumerate(places, 1)]
    return LocksParts((sessions or [PlaceSession(none, clock)])[0], context, screen, sessions)


@each("key", ["enter", "U", "W"])
def test_a_key_without_a_lock_says_so(key: str) -> None:
    """Where no place has a lock, and on a row that left, its hint is grey and nothing opens."""
    screen = AskedRowsScreen()
    parts = parts_of(screen)
    press(ROWS, key, parts, parts.say)
    assert parts.message.text == "no place has a lock"
    screen.cursor = RowCursor(has_left=True)
    press(ROWS, key, parts, parts.say)
    assert parts.message.text == ROW_HAS_LEFT
    assert {hint.shown for hint in hints_of(ROWS, parts) if hint.is_refused} == {"Enter", "U", "W"}
    assert screen.targets == []


def test_a_key_acts_on_the_place_under_the_cursor() -> None:
    """Before the rows are painted it is the open place, which may have no row."""
    screen = AskedRowsScreen()
    parts = parts_of(screen, "one", "two")
    press(ROWS, "5", parts, parts.say)
    parts.aim, screen.cursor = "3", RowCursor("2")
    press(ROWS, "5", parts, parts.say)
    assert screen.targets == [Target(keys.LOCKS, place=1), Target(keys.LOCKS, place=2)]
    assert parts.selected_session.number == 2  # r scans it
    press(ROWS, "enter", parts, parts.say)
    assert parts.message.text == "no recovery command for this place's lock"


def test_the_graph_has_a_key_where_it_has_room() -> None:
    """Without room no key changes its range; a console that changes nothing starts no worker."""
    screen = AskedRowsScreen()
    parts = parts_of(screen, "one", read_only=True)
    assert {"graph_range", "worker"} <= absent_actions(ROWS, parts)
    screen.is_large = True
    assert "graph_range" not in absent_actions(ROWS, parts)
    press(ROWS, "z", parts, parts.say)
    assert (parts.graph.range, [*screen.questions]) == ("1h", ["graph"])
