"""A stuck lock from the console's start to freed, with a real worker; and its tasks one by one."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.holder import has_ended
from engine.model import State
from tests.tui.desks import Desk, a_desk
from tests.tui.holders import HOLDER, Starter, children, open_lock, tasks_in, wired
from tests.tui.spools import a_task, make_spool, put_file
from tui import keys
from tui.screens.lock import LockScreen
from tui.screens.overview import OverviewScreen
from tui.screens.plan import PlanScreen

SETTINGS = (
    "queue: {syslog: ''}\nhandlers: {report: {command: [/bin/sleep, '600'], timeout: 5000}}\n"
)
SILENT = 2820
"""Seconds without a heartbeat: the console says 47 min."""


class Spool:
    """A queue on disk with the settings of its worker."""

    def __init__(self, root: Path) -> None:
        self.root, self.settings = root, root.with_suffix(".yaml")
        self.later = 0.0
        """Seconds from now at which its lock is examined."""
        self.settings.write_text(SETTINGS)
        make_spool(root, [])
        self.lock, self.log = root / "run" / "queue.lock", root / "log" / "queue.log"
        self.log.write_text("")
        now = time.time() - 7200
        for number in range(3):
            created = now + number
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
            task = replace(a_task(number), id=f"{stamp}-report-{number:08x}", created=created)
            put_file(root, replace(task, kind="report", due=0.0, error="", attempts=0))

    @property
    def in_work(self) -> list[str]:
        """Ids of the tasks in work."""
        return sorted(path.stem for path in (self.root / "queue" / "work").glob("*.task"))

    def accepts(self, id: str) -> None:
        """Let the log say that a task's mail was accepted."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        with self.log.open("a") as log:
            log.write(f"[{stamp}] [INFO] {id}: 250 2.0.0 Ok: queued as 4F2A\n")

    def tasks(self) -> dict[str, tuple[State, int | None]]:
        """All tasks of the queue, as another process finds them."""
        return {task.id: (task.state, task.attempts) for task in tasks_in(self.root)}


@pytest.fixture
def start() -> Iterator[Starter]:
    """Starts a Python program and waits for its first line; it is killed when the test is over."""
    with children() as starter:
        yield starter


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A queue of three reports, whose handler never comes back."""
    return Spool(tmp_path / "mail.out")


@pytest.fixture
def hung(spool: Spool) -> Iterator[subprocess.Popen[bytes]]:
    """A real worker with a real handler that hangs; then it was stopped, a long time ago."""
    argv = [sys.executable, "-m", "tui.cli", "--root", str(spool.root)]
    argv += ["--config", str(spool.settings), "queue", "work"]
    with (spool.root / "worker.out").open("wb") as said:
        worker = subprocess.Popen(argv, stdout=said, stderr=said, start_new_session=True)
        pidfd = os.pidfd_open(worker.pid)
        for _ in range(1500):
            if b"Executing" in spool.log.read_bytes() and handlers_of(worker.pid):
                break
            assert not has_ended(pidfd, 0.02), (spool.root / "worker.out").read_text()
        os.close(pidfd)
    (handler,) = handlers_of(worker.pid)
    os.kill(worker.pid, signal.SIGSTOP)
    os.waitpid(worker.pid, os.WUNTRACED)
    spool.later = SILENT
    pidfd = os.pidfd_open(handler)
    yield worker
    worker.kill()
    worker.wait()
    with suppress(ProcessLookupError):  # as it should be: it was ended
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)


def handlers_of(pid: int) -> list[int]:
    """The programs of a worker: the children of its supervisors."""
    return [program for supervisor in children_of(pid) for program in children_of(supervisor)]


def children_of(pid: int) -> list[int]:
    """The children of a process."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


@asynccontextmanager
async def opened(spool: Spool, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Desk]:
    """The console on it, in OBSERVE, as the command would open it."""
    place = await asyncio.to_thread(wired, spool.root, SETTINGS, spool.later)
    settings: dict[str, Any] = {"clock": time.time, "first": keys.OVERVIEW}
    async with a_desk(place, size=size, start_armed=False, **settings) as desk:
        yield desk


@pytest.mark.deep
async def test_a_stuck_lock_is_freed_in_two_keys_and_the_pid(
    spool: Spool, hung: subprocess.Popen[bytes]
) -> None:
    """From the overview to freed: `U`, `!` and the PID; the stopped worker and its handler end,
    and what the log says was accepted is held, so that it does not happen twice.
    """
    (handler,), (id,) = handlers_of(hung.pid), spool.in_work
    spool.accepts(id)
    async with opened(spool) as desk:
        await desk.opens(OverviewScreen)
        await desk.opens(LockScreen, "U")
        await desk.sees(
            "STUCK (sure): no sign of life from PID",
            *("is stopped by a signal and does nothing", "is stopped by a signal"),
            *(f"PID {handler} /bin/sleep 600, ", "queue/work", "ago; limit 20 min without one"),
            *("as the lock says: it took it", "250 2.0.0 Ok: queued as 4F2A"),
            *("it was accepted, a repeat would be a duplicate", f"queue recover --hold {id}"),
            *("2 due, the oldest 2 h old", "1 task in work to held: accepted by the log"),
        )
        await desk.press("!", *str(hung.pid))
        await desk.sees("1 doing +")
        await desk.sees("the lock is free again", "1 attempt counted")

        assert hung.wait() == -signal.SIGKILL  # stopped, it could not heed SIGTERM
        steps = re.findall(r"(?m)^  \d  (\w+)", desk.text)
        await desk.until(lambda: "FREE" in desk.line("title"))
    assert steps.pop(2) in ("done", "skipped")  # its handler may have ended by itself by then
    assert steps == ["ignored", *["done"] * 4]
    assert not spool.lock.exists()
    found = await asyncio.to_thread(spool.tasks)
    assert found.pop(id) == (State.HELD, 1)
    assert set(found.values()) == {(State.PENDING, 0)}


ENDS = {"H": (State.HELD, "held"), "L": (State.PENDING, "released"), "K": (State.DEAD, "killed")}


@pytest.mark.parametrize("key", ENDS)
async def test_an_abandoned_task_goes_where_a_key_sends_it(
    spool: Spool, start: Starter, key: str
) -> None:
    """Once its worker is gone, H parks a task in work, L gives it back and K gives it up; the
    attempt counts, the others stay, and the plan says what is recommended.
    """
    state, past = ENDS[key]
    one, two = await asyncio.to_thread(abandoned, spool, start, 2)
    spool.accepts(two)
    async with opened(spool) as desk:
        await open_lock(desk)
        await desk.sees("STALE (sure): PID", "HOLD: accepted")
        await desk.press("j")
        assert desk.line("scope").endswith(two[-17:])
        await desk.opens(PlanScreen, key)
        await desk.sees(f"row {two}", "Recommended: hold it: it was accepted")
        await desk.press("!", "y")
        await desk.sees(f"1 {past}")
        await desk.press("escape")
        await desk.sees("1 in work")
    found = await asyncio.to_thread(spool.tasks)
    assert (found[two], found[one]) == ((state, 1), (State.ACTIVE, 0))


def abandoned(spool: Spool, start: Starter, amount: int) -> list[str]:
    """Tasks in work whose worker was killed."""
    holder = start(HOLDER.replace('"holder", 1', f'"holder", {amount}'), str(spool.root))
    holder.kill()
    holder.wait()
    assert len(spool.in_work) == amount
    return spool.in_work


async def test_no_task_in_work_is_touched_while_a_worker_has_the_lock(
    spool: Spool, start: Starter
) -> None:
    """The lock is examined again when a plan is applied: a worker that took it meanwhile keeps its
    task. From then on it is listed, and its keys say why they do nothing.
    """
    (id,) = await asyncio.to_thread(abandoned, spool, start, 1)
    async with opened(spool, (120, 40)) as desk:
        await open_lock(desk)
        await desk.sees("STALE (sure): PID")
        await desk.opens(PlanScreen, "L")
        await desk.sees(f"row {id}", "1 of work -> pending")  # counted, so a key applies
        taker = await asyncio.to_thread(start, TAKER, str(spool.lock))
        await desk.press("!", "y")
        await desk.sees("1 failed", f"PID {taker.pid} has the lock, nothing in work is abandoned")
        await desk.opens(LockScreen, "escape")

        await desk.sees("1 task in work; its worker lives")
        for key, verb in (("H", "hold"), ("L", "release"), ("K", "kill")):
            assert f" {key} {verb}" not in desk.line("hints")
            await desk.press(key)
            await desk.sees(f"{verb}: PID {taker.pid} has the lock, nothing in work is aband")
            assert isinstance(desk.console.screen, LockScreen)
    assert spool.in_work == [id]


TAKER = """
import signal, sys
from engine import locks
lock = locks.acquire(sys.argv[1], 1200.0)
print("held", flush=True)
while True:
    signal.pause()
"""
"""A worker that has taken the lock, and no task yet."""
