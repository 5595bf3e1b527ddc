"""The lock on screen: its evidence, the plan to free it, and which processes are signalled."""

from __future__ import annotations

import asyncio
import os
import select
import shlex
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine import lockfile
from engine.model import LockEvidence, State, Verdict
from tests.engine.lockers import INNOCENT, is_unharmed, true_claim
from tests.tui.desks import Desk, a_desk
from tests.tui.holders import HOLDER, Starter, children, on_disk, open_lock, tasks_in
from tests.tui.spools import (
    a_memory,
    a_place,
    a_stuck_lock,
    a_task,
    make_spool,
    queue_of,
    some_tasks,
)
from tui.recovery import Recovery
from tui.screens.lock import LockScreen
from tui.views.lock import difference
from tui.widgets.lines import LongText

PID = 4711
"""The holder by the evidence of these tests; no process is asked for it."""

SILENT = 1300
"""Seconds without a heartbeat, more than the 1200 after which a holder counts as stuck."""

STUCK = a_stuck_lock()


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts a Python program and waits for its first line; it is killed when the test is over."""
    with children() as starter:
        yield starter


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue with one task."""
    made = tmp_path / "data"
    make_spool(made, [a_task(2)])
    return made


@asynccontextmanager
async def a_deck(
    *evidence: LockEvidence,
    recover: tuple[str, ...] = ("/nowhere/spooldeck",),
    size: tuple[int, int] = (80, 24),
    look: Callable[[], LockEvidence] | None = None,
) -> AsyncIterator[Desk]:
    """An armed console on a queue in memory whose lock is as the evidence says."""
    place = a_place(a_memory(some_tasks()), lock=look or (lambda: evidence[0]), recover=recover)
    async with a_desk(place, size=size) as desk:
        yield desk


def leaves_a_trace(trace: Path) -> tuple[str, ...]:
    """A command that writes down the lock it was told to free."""
    return ("/bin/sh", "-c", f'printf %s "$0" > {shlex.quote(str(trace))}; echo "freed $0"')


async def left_in(root: Path) -> list[tuple[str, State, int | None]]:
    """What is in a queue on disk."""
    tasks = await asyncio.to_thread(tasks_in, root)
    return [(task.id, task.state, task.attempts) for task in tasks]


# ---- freeing it


async def test_a_stuck_holder_is_ended_and_its_task_is_back(root: Path, start: Starter) -> None:
    """Typing the PID of a stuck holder ends it, frees the lock, and its task waits again."""
    async with on_disk(root, SILENT) as desk:
        holder = start(HOLDER, str(root))
        await desk.until(lambda: "! CRIT stuck" in desk.line("lock"))
        assert f"PID {holder.pid}" in desk.line("lock")

        await open_lock(desk)
        await desk.sees("scope if you act now: PID")
        assert f"STUCK 21m  PID {holder.pid}" in desk.line("title")
        assert f"spooldeck--root{root}" in desk.page.replace(" ", "")
        await desk.press(*str(holder.pid))
        await desk.sees("the lock is free again")

        assert holder.wait() == -signal.SIGTERM
        await desk.until(lambda: "FREE" in desk.line("title"))
        await desk.press("escape")
        assert "unlock: the lock is free again" in desk.line("hints")
    assert await left_in(root) == [(a_task(2).id, State.PENDING, 1)]


async def test_a_lock_without_a_holder_is_freed_by_y(root: Path, start: Starter) -> None:
    """Where the holder is gone, `y` frees the lock and its task waits again; no PID is asked."""
    holder = start(HOLDER, str(root))
    holder.kill()
    holder.wait()
    async with on_disk(root) as desk:
        await open_lock(desk)
        assert desk.line("title").startswith(" lock  STALE")
        assert "scope if you act now: the lock; 1 in work" in desk.page
        await desk.press("7")
        assert "asks for no PID: y applies" in desk.page
        await desk.press("y")
        await desk.sees("the lock is free again")

    assert await left_in(root) == [(a_task(2).id, State.PENDING, 1)]


@pytest.mark.parametrize("holders", [(4711,), (4711, 4712)], ids=["holder", "children"])
async def test_only_the_pid_that_would_be_signalled_frees(
    tmp_path: Path, holders: tuple[int, ...]
) -> None:
    """Other digits do nothing, nor do `y` and Enter. Where the holder is gone and its children have
    the lock, the first of those is asked for.
    """
    trace = tmp_path / "trace"
    evidence = STUCK._replace(pid=9, holders=holders)
    async with a_deck(evidence, recover=leaves_a_trace(trace)) as desk:
        screen = await open_lock(desk)
        pids = ", ".join(map(str, holders))
        assert f"scope if you act now: PID {pids}; 1 in active" in desk.page
        await desk.press("4", "7", "1", "2")
        assert "4712 is not the PID: nothing was done" in desk.page
        await screen._look()
        assert "4712 is not the PID: nothing was done" in desk.page
        await desk.press("y", "enter", "4", "7", "1", "9")
        await desk.press("4", "7", "2", "4", "7", "1", "backspace")
        assert "[ 47__ ]" in desk.page
        assert not trace.exists()

        await desk.press("1", "1")
        await desk.sees("the lock is free again")

    assert trace.read_text() == STUCK.seen


async def test_an_innocent_process_is_named_and_not_signalled(root: Path, start: Starter) -> None:
    """A lock that names a process which never took it: the screen says why nothing is offered."""
    lock = root / "run" / "queue.lock"
    await asyncio.to_thread(lock.touch)
    innocent, forger = start(INNOCENT), start(INNOCENT, str(lock))  # which has the flock
    claim = await asyncio.to_thread(true_claim, innocent.pid)
    await asyncio.to_thread(lock.write_bytes, lockfile.compose(claim))
    async with on_disk(root, SILENT) as desk:
        await desk.until(lambda: "! CRIT stuck" in desk.line("lock"))
        await open_lock(desk)
        await desk.sees("nothing will be signalled", "scope if you act now: nothing")
        await desk.sees(f"ps -o pid,user,lstart,args -p {innocent.pid}")
        await desk.press(*str(innocent.pid), "y")
        assert "nothing will be signalled" in desk.page
        assert not queue_of(desk.console).live.recovery.running

    assert is_unharmed(innocent)
    assert is_unharmed(forger)


# ---- never another lock than the one that was seen


def test_which_change_withdraws_a_plan() -> None:
    """Another holder, the same PID that took it again, another verdict or a new doubt withdraw it;
    evidence that only grows older does not.
    """
    changed = (
        STUCK._replace(pid=815, seen="2.bb"),
        STUCK._replace(seen="2.bb"),
        STUCK._replace(verdict=Verdict.HELD),
        STUCK._replace(doubt="PID 4711 runs under several uids"),
        LockEvidence(Verdict.FREE, reason="no lock file"),
    )

    assert all(difference(STUCK, now) for now in changed)
    assert not difference(STUCK, STUCK._replace(age=2880.0, reason="silent for 2880 s"))


async def test_a_withdrawn_plan_does_not_come_back(tmp_path: Path) -> None:
    """While the same claim grows older, what was typed stays. A plan is withdrawn once its lock is
    another one, and what was typed is dropped, also when the first one is seen again.
    """
    trace, evidence = tmp_path / "trace", [STUCK]
    async with a_deck(look=lambda: evidence[-1], recover=leaves_a_trace(trace)) as desk:
        await open_lock(desk)
        await desk.press("4", "7")
        evidence.append(STUCK._replace(age=2880.0, reason="silent for 2880 s"))
        await desk.sees("STUCK 48m")
        assert "[ 47__ ]" in desk.page

        evidence.append(STUCK._replace(seen="2.bb"))
        await desk.sees("plan withdrawn: the lock has changed hands")
        assert "scope if you act now: PID" not in desk.page
        evidence.append(STUCK)
        await desk.until(lambda: "STUCK 47m  PID 4711" in desk.line("title"))
        await desk.press("1", "1", *str(PID), "y")
        assert "withdrawn" in desk.line("word")

    assert not trace.exists()


# ---- where nothing is offered


@pytest.mark.parametrize(
    ("place", "fields", "why"),
    [
        ({"recover": ()}, {}, "no command is known"),
        ({"lock": None}, {}, "this place has no lock"),
        ({}, {"read_only": True}, "read only"),
    ],
)
async def test_a_place_whose_lock_cannot_be_freed(
    place: dict[str, object], fields: dict[str, Any], why: str
) -> None:
    """Where there is no lock, no command for it, or no right to, `U` is no hint and says why."""
    shown = a_place(a_memory([]), **({"lock": a_stuck_lock, "recover": ("true",)} | place))
    async with a_desk(shown, **fields) as desk:
        assert " U" not in desk.line("lock")
        await desk.press("U")

        assert why in desk.line("hints")
        assert not isinstance(desk.console.screen, LockScreen)


NOTHING = {
    "nobody holds the lock": LockEvidence(Verdict.FREE, reason="no lock file"),
    "its holder is at work": STUCK._replace(verdict=Verdict.HELD, age=3.0),
    "who holds the lock is not known": LockEvidence(
        Verdict.UNKNOWN, reason="queue.lock: Permission denied"
    ),
}


async def test_a_lock_that_needs_nothing() -> None:
    """A lock that is free, at work or unreadable is shown with its evidence, and without a plan."""
    evidence = [STUCK]
    async with a_deck(look=lambda: evidence[-1]) as desk:
        for why, now in NOTHING.items():
            evidence.append(now)
            await open_lock(desk)
            await desk.sees(now.reason)
            assert why in desk.line("word")
            assert "scope if you act now: PID" not in desk.page
            assert "plan, nothing is done yet" not in desk.page
            await desk.press("1", "y")
            assert why in desk.line("word")
            await desk.press("escape")


# ---- the child


SAYS = (
    ("echo freed; exit 0", "the lock is free again", "freed"),
    ("echo PID 4711 took it up again; exit 2", "the lock was left alone", "took it up again"),
    ("echo 'no such queue' >&2; exit 69", "its command ended with 69", "no such queue"),
    ("echo half; kill -9 $$", "its command was ended by SIGKILL", "half"),
    ("printf 'a\\033]0;b\\007\\n'; exit 3", "its command ended with 3", "a\ufffd]0;b\ufffd"),
)
"""What a child does, what is said of it, and what of its words is shown."""


async def test_what_the_child_says_is_shown(tmp_path: Path) -> None:
    """The child's words are on screen, made safe, and what its exit code means; or that it did not
    start.
    """
    program = tmp_path / "child"
    await asyncio.to_thread(program.write_text, "")
    await asyncio.to_thread(program.chmod, 0o755)
    async with a_deck(STUCK, recover=(str(program),)) as desk:
        for script, outcome, said in SAYS:
            await asyncio.to_thread(program.write_text, f"#!/bin/sh\n{script}\n")
            await open_lock(desk)
            await desk.press(*str(PID))
            await desk.sees(outcome)
            assert outcome in desk.line("word")
            assert said in desk.page
            assert desk.page.isprintable()
            await desk.press("1", "y")
            assert "this has been done: Esc closes" in desk.page
            await desk.press("escape")
            assert f"unlock: {outcome}" in desk.line("hints")

        await asyncio.to_thread(program.unlink)
        await open_lock(desk)
        await desk.press(*str(PID))
        await desk.sees("nothing was done, its command did not start")


@pytest.fixture
def held_up(tmp_path: Path) -> tuple[tuple[str, ...], Path, Path]:
    """A command that waits for the first pipe, and says so in the second when it has ended.

    It says "began" if it leads a session of its own: no closing terminal ends it.
    """
    go, done = tmp_path / "go", tmp_path / "done"
    os.mkfifo(go)
    os.mkfifo(done)
    session = 'read pid name state parent group session rest < /proc/$$/stat; [ "$session" = $$ ]'
    script = f"{session} && echo began; read x < {go}; echo ended; echo y > {done}"
    return ("/bin/sh", "-c", script), go, done


async def test_esc_leaves_it_running(held_up: tuple[tuple[str, ...], Path, Path]) -> None:
    """While the child runs Esc leads back and it goes on; `U` shows it again; its end is said.
    While the lock is freed a second time, the result of the first time is not on screen.
    """
    recover, go, done = held_up
    async with a_deck(STUCK, recover=recover) as desk:
        await open_lock(desk)
        await desk.press(*str(PID))
        await desk.sees("began")
        assert "freeing the lock" in desk.line("word")
        await desk.press("escape")
        await open_lock(desk)
        await desk.sees("began", "freeing the lock")
        await desk.press(*str(PID))
        assert "it runs already" in desk.page
        await desk.press("escape")
        await asyncio.to_thread(let_go, go, done)
        await desk.until(lambda: "unlock: the lock is free" in desk.line("hints"))

        await open_lock(desk)
        await desk.press(*str(PID))
        assert "freeing the lock" in desk.line("word")
        assert "began ended" not in desk.page
        await desk.sees("began")
        await asyncio.to_thread(let_go, go, done)
        await desk.sees("the lock is free again", "began ended")


async def test_it_goes_on_without_the_console(held_up: tuple[tuple[str, ...], Path, Path]) -> None:
    """The child is in a session of its own, and outlives a console that is closed meanwhile."""
    recover, go, done = held_up
    async with a_deck(STUCK, recover=recover) as desk:
        await open_lock(desk)
        await desk.press(*str(PID))
        await desk.sees("began")

    let_go(go, done)


def let_go(go: Path, done: Path) -> None:
    """Let the held-up child go on, and see that it reached its end."""
    go.write_text("x\n")
    with done.open("rb") as end:
        assert select.select([end], [], [], 30)[0]
        assert end.read() == b"y\n"


def test_a_recovery_that_never_ran_has_said_nothing() -> None:
    """Before the first run there is no line and no outcome."""
    recovery = Recovery(("true",))

    assert not recovery.running
    assert (recovery.lines, recovery.outcome) == ((), ("", ""))


# ---- how it looks


async def test_the_list_names_the_key() -> None:
    """The lock line says `U unlock` where a plan can be had, and `U why` where only doubts can."""
    evidence = [STUCK]
    async with a_deck(look=lambda: evidence[-1]) as desk:
        for size, unlock, why in (((80, 24), "U unlock", "U why"), ((40, 10), " U", " U")):
            await desk.pilot.resize_terminal(*size)
            for now, key in (
                (STUCK, unlock),
                (STUCK._replace(verdict=Verdict.STALE), unlock),
                (STUCK._replace(doubt="PID 4711 is this process"), why),
            ):
                evidence.append(now)
                await desk.until(lambda: desk.console.here.signs.lock == evidence[-1])
                await desk.until(lambda: desk.line("lock").endswith(key))  # noqa: B023
                assert len(desk.line("lock")) <= size[0]
                assert now.verdict in desk.line("lock")


async def test_what_matters_is_seen_first() -> None:
    """At 120x40 all of it is seen, at 80x24 verdict, plan, tasks in work, scope and question; at
    40x10 the verdict, its process, and the question are whole, and the rest is below.
    """
    async with a_deck(STUCK, size=(120, 40)) as desk:
        screen = await open_lock(desk)
        await desk.sees("no log speaks of it")
        assert screen.query_one("#text", LongText).below == 0

        await desk.pilot.resize_terminal(80, 24)
        await desk.until(lambda: len(desk.text.splitlines()) == 24)
        for words in (
            *("STUCK (likely): PID 4711 lives", "behind it: 40 in pending", "SIGKILL to PID 4711"),
            *("or spooldeck", "1 task in work", "scope if you act now: PID 4711"),
            *("type the PID, 4711", "holder  PID 4711"),
        ):
            assert words in desk.text

        await desk.pilot.resize_terminal(40, 10)
        await desk.until(lambda: desk.line("scope").startswith(" scope: PID 4711; 1 in active "))
        assert "STUCK 47m  PID 4711" in desk.line("title")
        assert desk.line("scope").endswith(" more")
        assert desk.line("word") == " type the PID: [ ____ ]"
        await desk.press("G")
        assert desk.line("scope") == " scope: PID 4711; 1 in active"
