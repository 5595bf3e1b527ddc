"""The lock on screen: its evidence, the plan to free it, and the tasks that its worker left."""

from __future__ import annotations

import asyncio
import os
import re
import select
import shlex
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from engine.locks.process_stats import ProcessStats
from engine.model import LockEvidence, State, Verdict
from engine.operations import run_plan
from engine.operations.execute import Report
from engine.places.place import Place
from tests.console_operator import an_operator, words
from tests.console_places import (
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    loaded,
    make_spool,
    put_file,
    queue_of,
    recover_command,
    some_tasks,
)
from tests.tables import each
from tests.tui.screenshot_places import hanging
from tests.tui.workers_with_lock import HOLDER, Starter, children, open_lock, tasks_in, wired
from tui.confirm.action_screen import ActionScreen
from tui.locks import lock_plan
from tui.locks.lock_lines import why_outdated
from tui.locks.lock_plan import (
    LOCK_FREED_LINE,
    LOCK_TAKEN_LINE,
    OutputLine,
    RecoveryProgress,
    lock_steps,
    progress_lines,
    step_progress,
    task_steps,
)
from tui.locks.screen import LockScreen
from tui.operations.workers_screen import WorkersScreen
from tui.overview.screen import OverviewScreen
from tui.plan.screen import PlanScreen
from tui.text import keys
from tui.widgets.line_widgets import LongText

PID = 4711
"""The holder by the evidence of these tests; no process is asked for it."""
SILENT_SECONDS = 1300
"""More than the 1200 seconds after which a holder counts as stuck."""
STUCK = a_stuck_lock()
off = asyncio.to_thread


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts a Python program and waits for its first line; it is killed when the test is over."""
    with children() as starter:
        yield starter


def locked(read: Callable[[], LockEvidence], recover: tuple[str, ...] = ("/nowhere",)) -> Place:
    """A queue in memory with that lock, and the command that frees it."""
    return a_place(a_memory(some_tasks()), lock=read, recovery_command=recover)


TAKER = """
import signal, sys
from engine.locks import queue_lock as locks
lock = locks.acquire_lock(sys.argv[1], 1200.0)
print("held", flush=True)
while True:
    signal.pause()
"""
"""A worker that has taken the lock, and no task yet."""


def leaves_a_trace(trace: Path) -> tuple[str, ...]:
    """A command that writes down the lock that it was to free."""
    return ("/bin/sh", "-c", f'printf %s "$0" > {shlex.quote(str(trace))}; echo "freed $0"')


async def left_in(root: Path) -> dict[str, tuple[State, int | None]]:
    """State and attempts of each task of a queue on disk."""
    return {task.id: (task.state, task.attempts) for task in await off(tasks_in, root)}


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """A queue on disk of three reports."""
    root = tmp_path / "mail.out"
    make_spool(root, [])
    (root / "log" / "queue.log").write_text("")
    for number in range(3):
        created = time.time() - 7200 + number
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
        task = a_task(number)._replace(id=f"{stamp}-report-{number:08x}", created=created)
        put_file(root, task._replace(kind="report", due=0.0, error="", attempts=0))
    return root


def in_work(root: Path) -> list[str]:
    """Ids of the tasks in work."""
    return sorted(path.stem for path in (root / "queue" / "work").glob("*.task"))


def accept(root: Path, id: str) -> None:
    """Let the log say that a task's mail was accepted."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
    with (root / "log" / "queue.log").open("a") as log:
        log.write(f"[{stamp}] [INFO] {id}: 250 2.0.0 Ok: queued as 4F2A\n")


async def abandoned(root: Path, start: Starter, amount: int) -> list[str]:
    """Tasks in work whose worker was killed."""
    holder = await off(start, HOLDER.replace('"holder", 1', f'"holder", {amount}'), str(root))
    holder.kill()
    await off(holder.wait)
    assert len(in_work(root)) == amount
    return in_work(root)


# ---- freeing it


async def test_a_stuck_lock_is_freed_in_two_keys_and_the_pid(reports: Path, start: Starter) -> None:
    """From the overview to freed by `U`, `!` and the PID: the holder ends, its task waits again,
    and the one that the log says was accepted is held, so that it does not happen twice."""
    holder = await off(start, HOLDER.replace('"holder", 1', '"holder", 2'), str(reports))
    accepted, lost = in_work(reports)
    accept(reports, accepted)
    place = await off(wired, reports, seconds=SILENT_SECONDS)
    how: dict[str, Any] = {"size": (120, 40), "start_armed": False, "clock": time.time}
    async with an_operator(place, first=keys.OVERVIEW, **how) as operator:
        await operator.opens(OverviewScreen)
        await operator.step(
            "U",
            LockScreen,
            f"PID {holder.pid}",
            "; limit 20m",
            "matches lock file (same process)",
            "250 2.0.0 Ok: queued as 4F2A",
            "accepted (log), a repeat would be a duplicate",
            f"queue recover --hold {accepted}",
            "1 due task waits, oldest 2h",
            "1 task in work to held: accepted (log)",
            "acts on PID",
        )
        assert operator.line("title").startswith(f" mx1 > {reports.name} > lock STUCK ")
        verdict = f"STUCK   21m, sure   PID {holder.pid} "  # once it was watched for 5 s
        await operator.until(lambda: verdict in operator.line("verdict"))
        assert f"spooldeck--root{reports}" in operator.page.replace(" ", "")
        await operator.step(f"! {holder.pid}", "lock freed", "1 attempt counted")
        assert holder.wait() == -signal.SIGTERM
        steps = re.findall(r"(?m)^\|?  \d  (\w+)", operator.text)
        assert steps == ["done", "skipped", "skipped", "done", "done", "done"]
        await operator.until(lambda: "FREE" in operator.line("title"))
        await operator.sees("W starts a worker: no worker running", f"acts on {reports.name}")
        await operator.pilot.resize_terminal(200, 60)
        await operator.sees(f"log of {reports.name}", "Lock recovery completed")
        assert not re.search(r"evidence +\|?\n", operator.text)  # nothing is left to prove
        await operator.opens(ActionScreen, "W")
        await operator.opens(LockScreen, "escape")
        await operator.opens(OverviewScreen, "escape")
    assert not (reports / "run" / "queue.lock").exists()
    left = await left_in(reports)
    assert (left.pop(accepted), left.pop(lost)) == ((State.HELD, 1), (State.PENDING, 1))
    assert set(left.values()) == {(State.PENDING, 0)}


async def test_y_frees_a_lock_whose_holder_is_gone(reports: Path, start: Starter) -> None:
    """Where the holder is gone, `y` frees the lock and its task waits again; no PID is asked."""
    (id,) = await abandoned(reports, start, 1)
    async with an_operator(await off(wired, reports), clock=time.time) as operator:
        await open_lock(operator)
        assert "> lock STALE " in operator.line("title")
        assert "acts on the lock; 1 in work" in operator.page
        await operator.press("7")
        assert "no PID needed: y applies" in operator.page
        await operator.step("y", "lock freed")
        await operator.until(lambda: not queue_of(operator.console).session.recovery.running)
        await operator.opens(WorkersScreen, "3")  # digits open screens again
    assert (await left_in(reports))[id] == (State.PENDING, 1)


@pytest.mark.parametrize("holders", [(4711,), (4711, 4712)], ids=["holder", "children"])
async def test_only_the_right_pid_frees_it(tmp_path: Path, holders: tuple[int, ...]) -> None:
    """Other digits, `y` and Enter do nothing; the PID is the first that has the lock."""
    trace, evidence = tmp_path / "trace", STUCK._replace(pid=9, holders=holders)
    async with an_operator(locked(lambda: evidence, leaves_a_trace(trace))) as operator:
        screen = await open_lock(operator)
        assert f"acts on PID {', '.join(map(str, holders))}; 1 in active" in operator.page
        await operator.step("4712", "4712 is not the PID: nothing done")
        await screen._examine()
        assert "4712 is not the PID: nothing done" in operator.page
        await operator.step("y enter 4719 472471 backspace", "[47__]")
        assert not trace.exists()
        await operator.step("11", "lock freed")
    assert trace.read_text() == STUCK.identity


# ---- never another lock than the one that was seen


@each(("fields", "withdraws"), [
    ({"pid": 815, "identity": "2.bb"}, True),
    ({"identity": "2.bb"}, True),
    ({"verdict": Verdict.HELD}, True),
    ({"signal_refusal": "PID 4711 runs under several uids"}, True),
    (LockEvidence(Verdict.FREE, reason="no lock file")._asdict(), True),
    ({"age": 2880.0, "reason": "silent for 2880 s"}, False),
])  # fmt: skip
def test_which_change_withdraws_a_plan(fields: dict[str, Any], withdraws: bool) -> None:
    """Another claim, verdict or doubt withdraws a plan; evidence that grows older does not."""
    assert bool(why_outdated(STUCK, STUCK._replace(**fields))) is withdraws


async def test_a_withdrawn_plan_does_not_come_back(tmp_path: Path) -> None:
    """What was typed is dropped once the lock is another, also if the first comes back."""
    trace, evidence = tmp_path / "trace", [STUCK]
    async with an_operator(locked(lambda: evidence[-1], leaves_a_trace(trace))) as operator:
        await open_lock(operator)
        await operator.press("4", "7")
        evidence.append(STUCK._replace(age=2880.0, reason="silent for 2880 s"))
        await operator.sees("STUCK 48m", "[47__]")
        evidence.append(STUCK._replace(identity="2.bb"))
        await operator.sees("plan withdrawn: the lock has another holder")
        assert "acts on PID" not in operator.page
        evidence.append(STUCK)
        await operator.sees("STUCK 47m, likely PID 4711 ")
        await operator.press("1", "1", *str(PID), "y")
        assert "withdrawn" in operator.line("word")
    assert not trace.exists()


# ---- where nothing is offered


async def test_a_place_whose_lock_cannot_be_freed() -> None:
    """Where there is no lock, or no command for it, `U` is no hint and says why."""
    stuck = a_place(a_memory([]), name="/srv/stuck", lock=a_stuck_lock)
    without = a_place(a_memory([]), lock=None, recovery_command=("true",))
    async with an_operator(stuck, without) as operator:
        for why in ("no recovery command", "this place has no lock"):
            assert " U" not in operator.line("lock")
            await operator.press("U")
            assert why in operator.line("scope")
            assert not isinstance(operator.console.screen, LockScreen)
            await operator.press("]")
            await loaded(operator.pilot)


NOTHING = {
    "next worker takes it": LockEvidence(Verdict.FREE, reason="no lock file"),
    "its holder is running": STUCK._replace(verdict=Verdict.HELD, age=3.0),
    "lock holder unknown": LockEvidence(Verdict.UNKNOWN, reason="Permission denied"),
    "no process is signalled": STUCK._replace(signal_refusal="PID 4711 never took it"),
}


async def test_the_first_frame_has_the_layout_of_the_last() -> None:
    """Before the holder was examined all panes are there; no key frees the lock yet."""
    may_end, begun, look = Event(), Event(), hanging()

    def examine(pid: int) -> ProcessStats:
        begun.set()
        assert may_end.wait(60)
        return look(pid)._replace(started=1)

    place = locked(lambda: STUCK)._replace(vitals=examine)
    async with an_operator(place, size=(120, 40)) as operator:

        def frames() -> list[int]:
            lines = operator.text.splitlines()
            return [n for n, line in enumerate(lines) if line.startswith("+")]

        (live,) = operator.console.sessions
        await operator.until(lambda: live.readings.lock is not None and live.active)
        await operator.opens(LockScreen, "U")
        await operator.until(begun.is_set)
        await operator.sees("STUCK 47m", "Steps, in this order", "lock not examined yet")
        before = frames()
        await operator.press(*"4711")
        assert "lock not examined yet" in operator.line("word")
        assert not live.recovery.running
        may_end.set()
        await operator.sees("type the PID 4711")
        assert frames() == before


async def test_a_large_screen_has_the_log_below_the_evidence(tmp_path: Path) -> None:
    """In the lines that the evidence leaves are the last ones of the place's log."""
    log = tmp_path / "queue.log"
    log.write_text("[2026-11-20 09:41:00] [INFO] Executing: feeds sync\n")
    place = locked(lambda: STUCK)._replace(logs=(str(log),))
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.opens(LockScreen, "U")
        await operator.sees("log of nftban", "Executing: feeds sync", "tasks in work, by the logs")


async def test_a_task_behind_a_lock_has_the_way_to_free_it() -> None:
    """Below a due task that a stuck lock keeps waiting is the way to the plan that frees it."""
    task = a_task(1)._replace(due=None)
    place = a_place(a_memory([task]), lock=lambda: STUCK, recovery_command=("/nowhere",))
    async with an_operator(place, size=(120, 40)) as operator:
        await operator.step("2", "STUCK")
        await operator.step("enter", "next 5 opens the locks: U there frees that of nftban")


async def test_a_tall_screen_without_a_log_has_no_blank_evidence() -> None:
    """If no log fills the lines below the evidence, the graph has them over the whole width."""
    async with an_operator(locked(lambda: STUCK), size=(200, 60)) as operator:
        screen = await operator.opens(LockScreen, "U")
        await operator.sees("STUCK 47m", "type the PID 4711", "last 10m")
        await operator.until(lambda: screen.query_one("#graph").region.width == 200)
        text = screen.query_one("#text", LongText)
        assert text.size.height == len(text.lines)


async def test_a_lock_that_needs_nothing() -> None:
    """A lock that is free, at work or unreadable has its evidence, no plan, and no keys."""
    evidence = [STUCK]
    async with an_operator(locked(lambda: evidence[-1])) as operator:
        for why, now in NOTHING.items():
            evidence.append(now)
            await open_lock(operator)
            await operator.sees(now.reason)
            assert "acts on PID" not in operator.page
            assert "plan, nothing done yet" not in operator.page
            for pressed in ("", "y", "4711"):
                await operator.press(*pressed)
                await operator.opens(LockScreen)
                assert why in operator.line("word")
            await operator.press("escape")


# ---- the command that frees it


SAYS = (
    ("echo freed; exit 0", "lock freed", "freed"),
    ("echo PID 4711 took it up again; exit 2", "lock unchanged", "took it up again"),
    ("echo 'no such queue' >&2; exit 69", "the command ended with exit code 69", "no such queue"),
    ("echo half; kill -9 $$", "the command was ended by SIGKILL", "half"),
    (r"printf 'a\033]0;b\007\n'; exit 3", "the command ended with exit code 3", "a\ufffd]0;b"),
)
"""A command, the outcome that is shown, and what of its output is shown."""


async def test_output_and_exit_code_of_the_command_are_shown(tmp_path: Path) -> None:
    """The inert output of the command is shown, with what its exit code means."""
    program = tmp_path / "child"
    await off(program.touch, 0o755)
    async with an_operator(locked(a_stuck_lock, (str(program),))) as operator:
        for script, outcome, message in SAYS:
            await off(program.write_text, f"#!/bin/sh\n{script}\n")
            await open_lock(operator)
            await operator.sees("type the PID", "Evidence 4 of 4 agree")
            await operator.step(f"{PID}", outcome, message)
            assert outcome in operator.line("word") and operator.page.isprintable()
            await operator.step("y", "already done: Esc closes")
            await operator.press("escape")
            assert f"unlock: {outcome}" in operator.line("scope")
        await off(program.unlink)
        await open_lock(operator)
        await operator.step(f"{PID}", "nothing done: the command did not start")


async def test_the_command_goes_on_when_its_screen_is_left(tmp_path: Path) -> None:
    """While the command runs Esc leads back, `U` shows it again, and its end is said. A second run
    shows no result of the first; in a session of its own it outlives the console."""
    go, done = tmp_path / "go", tmp_path / "done"
    await off(os.mkfifo, go)
    await off(os.mkfifo, done)
    session = 'read pid name state parent group session rest < /proc/$$/stat; [ "$session" = $$ ]'
    script = f"{session} && echo began; read x < {go}; echo ended; echo y > {done}"

    def finish() -> None:
        go.write_text("x\n")
        with done.open("rb") as end:
            assert select.select([end], [], [], 30)[0]
            assert end.read() == b"y\n"

    async with an_operator(locked(a_stuck_lock, ("/bin/sh", "-c", script))) as operator:
        await open_lock(operator)
        await operator.step(f"{PID}", "began", "freeing the lock")
        await operator.press("escape")
        await open_lock(operator)
        await operator.sees("began", "freeing the lock")
        await operator.step(f"{PID}", "already running")
        await operator.press("escape")
        await off(finish)
        await operator.until(lambda: "unlock: lock freed" in operator.line("scope"))

        await open_lock(operator)
        await operator.press(*str(PID))
        assert "freeing the lock" in operator.line("word")
        assert "began ended" not in operator.page
        await operator.sees("began")
        await off(finish)
        await operator.sees("lock freed", "began ended")
        await operator.press("escape")
        await open_lock(operator)
        await operator.step(f"{PID}", "began")
    finish()


# ---- the steps of the plan


WORDS = {State.PENDING: "pending", State.ACTIVE: "work", State.HELD: "held", State.DEAD: "dlq"}
PLAN = lock_steps(STUCK, task_steps(WORDS, 1))
TERM, KILL, ENDED = "SIGTERM to PID 4711", "SIGKILL to PID 4711", "PID 4711 has ended"


def said(*lines: str) -> list[OutputLine]:
    """What the command prints, a line a second."""
    return [OutputLine(text, float(second)) for second, text in enumerate(lines)]


@each(
    ("lines", "running", "words"),
    [
        ((), True, "to do to do to do to do to do to do"),
        (("the lock is stuck", TERM), True, "doing to do to do to do to do to do"),
        ((TERM, ENDED), True, "done to do to do to do to do to do"),
        ((TERM, KILL), True, "ignored doing to do to do to do to do"),
        ((TERM, KILL, ENDED, "SIGTERM to PID 4712"), True, "ignored done doing to do to do to do"),
        ((TERM, ENDED, LOCK_TAKEN_LINE), True, "done skipped skipped done to do doing"),
        ((TERM, ENDED, LOCK_TAKEN_LINE, "Held: x", LOCK_FREED_LINE), False, "done skipped skipped "
        "done done done"),
        ((TERM, KILL, "nothing was taken"), False, "ignored aborted skipped skipped skipped "
         "skipped"),
        (("SIGTERM to PID 47110",), True, "skipped skipped doing to do to do to do"),
    ],
)  # fmt: skip
def test_how_far_each_step_is(lines: tuple[str, ...], running: bool, words: str) -> None:
    """To do, doing, done, skipped or broken off: by the command's lines, and by nothing else."""
    assert " ".join(at.progress for at in step_progress(PLAN, said(*lines), running)) == words


def test_when_each_step_began() -> None:
    """Each step shows after how many seconds it was begun, and a SIGTERM that it was ignored."""
    lines = said("the lock is stuck", TERM, KILL, ENDED, LOCK_TAKEN_LINE)
    at = step_progress(PLAN, lines, running=True)
    assert [each.after for each in at] == [1.0, 2.0, None, 4.0, None, 4.0]
    text = words(progress_lines(at, 80)).split("\n")
    assert text[0].startswith("  1  ignored    +0.0s   SIGTERM PID 4711")
    assert text[1].startswith("  2  done       +1.0s   SIGKILL PID 4711")
    assert max(map(len, text)) <= 80


def test_without_a_holder_there_are_two_steps_and_in_doubt_none() -> None:
    """Without a holder the lock is taken over; in doubt there is no plan."""
    stale = STUCK._replace(verdict=Verdict.STALE, reason="PID 4711 is gone")
    plan = lock_steps(stale, task_steps(WORDS, 0))
    assert [step.words for step in plan] == [
        "take over the lock, release it: PID 4711 is gone",
        "tasks in work count one failed attempt: to pending",
    ]
    steps = step_progress(plan, said(LOCK_TAKEN_LINE, LOCK_FREED_LINE), False)
    assert [at.progress for at in steps] == [RecoveryProgress.DONE] * 2
    assert lock_steps(STUCK._replace(signal_refusal="it is PID 1"), task_steps(WORDS, 1)) == ()


def test_the_command_that_is_shown_asks_for_the_pid_itself() -> None:
    """It does the same and holds the same tasks, without the words that answer for the operator."""
    shown, command = lock_plan.equivalent_command, recover_command("/q")
    assert shown(command) == "spooldeck --root /q queue recover"
    assert shown(command, ["a"]) == "spooldeck --root /q queue recover --hold a"
    assert "--yes" not in shown(("recover", "--yes", "--seen"))


# ---- how it looks


async def test_the_list_names_the_key() -> None:
    """The lock line says `U unlock` where a plan can be had, and `U why` where only doubts can."""
    stale = STUCK._replace(verdict=Verdict.STALE)
    doubt = STUCK._replace(signal_refusal="PID 4711 is this process")
    evidence = [STUCK]
    async with an_operator(locked(lambda: evidence[-1])) as operator:
        session = operator.console.navigator.session
        for width, rows in (
            (80, ((STUCK, "U unlock"), (stale, "U unlock"), (doubt, "U why"))),
            (40, ((STUCK, " U"), (stale, " U"), (doubt, " U"))),
        ):
            await operator.pilot.resize_terminal(width, 24)
            for now, key in rows:
                evidence.append(now)
                await operator.until(lambda: session.readings.lock == evidence[-1])
                await operator.until(lambda: now.verdict.upper() in operator.line("lock"))  # noqa: B023
                await operator.until(lambda: operator.line("lock").endswith(key))  # noqa: B023
                assert len(operator.line("lock")) <= width


# ---- the tasks of a worker, on disk


HELD, RELEASED = (1, "H", State.HELD, "held"), (0, "L", State.PENDING, "released")
ENDS = (HELD, RELEASED, (2, "K", State.DEAD, "killed"))
"""A task, the key for it, where it ends, and the word for that."""


async def test_an_abandoned_task_goes_where_a_key_sends_it(reports: Path, start: Starter) -> None:
    """Once its worker is gone, H parks a task in work, L gives it back and K gives it up; the
    attempt counts, the others stay, and the plan says what is recommended."""
    ids = await abandoned(reports, start, 3)
    accept(reports, ids[1])
    expected = dict.fromkeys(ids, (State.ACTIVE, 0))
    async with an_operator(await off(wired, reports), clock=time.time, size=(120, 40)) as operator:
        await open_lock(operator)
        await operator.sees("m, sure PID", "HOLD: accepted")
        for number, key, state, past in ENDS:
            operator.picker.select_key(ids[number])
            await operator.press("g")  # the message of the last plan ends
            await operator.until(lambda: ids[number][-8:] in operator.line("next"))  # noqa: B023
            while not isinstance(operator.console.screen, PlanScreen):  # the rows moved just now
                await operator.press(key)
                await operator.pilot.pause(0.05)
            await operator.sees(f"row {ids[number]}", "1 work -> ")  # counted, so a key applies
            if key == "H":
                await operator.sees("Recommended: hold it: accepted")
            await operator.step("y", f"1 {past}")
            expected[ids[number]] = (state, 1)
            assert await left_in(reports) == expected
            await operator.opens(LockScreen, "escape")


async def test_no_task_in_work_is_touched_while_a_worker_has_the_lock(
    reports: Path, start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is examined again when a plan is applied: a worker that took it meanwhile keeps its
    task. From then on it is listed, and its keys say why they do nothing."""
    (id,) = await abandoned(reports, start, 1)
    apply, takers = run_plan.run_journaled_plan, []

    def after_the_key(*arguments: Any, **options: Any) -> Report:
        takers.append(start(TAKER, str(reports / "run" / "queue.lock")))
        return apply(*arguments, **options)

    monkeypatch.setattr(run_plan, "run_journaled_plan", after_the_key)
    async with an_operator(await off(wired, reports), clock=time.time, size=(120, 40)) as operator:
        await open_lock(operator)
        await operator.sees("m, sure PID", f"H L K: {id[-8:]}")
        # counted, so a key applies
        await operator.step("L", PlanScreen, f"row {id}", "1 work -> pending")
        await operator.press("y")
        await operator.until(lambda: takers)
        (pid,) = (taker.pid for taker in takers)
        await operator.sees("1 failed", f"PID {pid} holds the lock: active tasks are not abandoned")
        await operator.step("escape", LockScreen, f"PID {pid} is running")
        for key, verb in (("H", "hold"), ("L", "release"), ("K", "kill")):
            assert f" {key} {verb}" not in operator.line("hints")
            refusal = f"{verb}: PID {pid} holds the lock: active tasks are not aband"
            await operator.step(key, LockScreen, refusal)
    assert in_work(reports) == [id]
