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

import pytest

from engine import config
from engine.holder import has_ended
from engine.model import State, Task
from tests.tui.spools import a_task, make_spool, put_file, until
from tests.tui.test_lock_screen import HOLDER, Deck, Starter, at_length, start, tasks_in
from tui import keys
from tui.app import Console
from tui.cli.console import _place
from tui.cli.wiring import Setup
from tui.place import Place
from tui.plain import text_of
from tui.screens.lock import LockScreen
from tui.screens.overview import OverviewScreen
from tui.screens.plan import PlanScreen

__all__ = ["start"]

SETTINGS = (
    "queue: {syslog: ''}\nhandlers: {report: {command: [/bin/sleep, '600'], timeout: 5000}}\n"
)
SILENT = 2820
"""Seconds without a sign of life: the console says 47 min."""


class Spool:
    """A queue on disk with the settings of its worker."""

    def __init__(self, root: Path) -> None:
        self.root, self.settings = root, root.with_suffix(".yaml")
        self.later = 0.0
        """Seconds from now at which its lock is looked at."""
        self.settings.write_text(SETTINGS)
        make_spool(root, [])
        self.log = root / "log" / "queue.log"
        self.log.write_text("")
        now = time.time() - 7200
        for number in range(3):
            created = now + number
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
            id = f"{stamp}-report-{number:08x}"
            fields = {"id": id, "kind": "report", "created": created, "attempts": 0}
            put_file(root, replace(a_task(number), due=0.0, error="", **fields))  # type: ignore[arg-type]

    @property
    def lock(self) -> Path:
        """Its lock file."""
        return self.root / "run" / "queue.lock"

    @property
    def in_work(self) -> list[str]:
        """Ids of the tasks in work."""
        return sorted(path.stem for path in (self.root / "queue" / "work").glob("*.task"))

    def place(self) -> Place:
        """As the command line makes it."""
        found = config.load(str(self.settings), {})
        place = _place(Setup(found, config.queue_for(found, str(self.root), {})), str(self.root))
        return at_length(place, self.root, self.later)

    def accepts(self, id: str) -> None:
        """Let the log say that a task's mail was accepted."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime())
        with self.log.open("a") as log:
            log.write(f"[{stamp}] [INFO] {id}: 250 2.0.0 Ok: queued as 4F2A\n")


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
async def opened(spool: Spool, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Deck]:
    """The console on it, in OBSERVE, as the command would open it."""
    place = await asyncio.to_thread(spool.place)
    console = Console([place], host="mx1", first=keys.OVERVIEW)
    async with console.run_test(size=size) as pilot:
        deck = Deck(console, pilot)
        await until(pilot, lambda: console.lives[0].looked and console.lives[0].standing)
        yield deck


async def test_a_stuck_lock_is_freed_in_six_keys_and_the_pid(
    spool: Spool, hung: subprocess.Popen[bytes]
) -> None:
    """From the overview to freed: `U`, `!` and the PID; the stopped worker and its handler end,
    and what the log says was accepted is held, so that it does not happen twice.
    """
    (handler,), (id,) = handlers_of(hung.pid), spool.in_work
    spool.accepts(id)
    pressed: list[str] = []
    async with opened(spool) as deck:

        async def press(*keys: str) -> None:
            pressed.extend(keys)
            await deck.press(*keys)

        await until(deck.pilot, lambda: isinstance(deck.console.screen, OverviewScreen))
        await press("U")
        await until(deck.pilot, lambda: isinstance(deck.console.screen, LockScreen))
        await until_seen(deck, "STUCK (sure): no sign of life from PID")
        for words in (
            *("is stopped by a signal and does nothing", "is stopped by a signal"),
            *(f"PID {handler} /bin/sleep 600, ", "queue/work", "ago; limit 20 min without one"),
            *("as the lock says: it took it", "250 2.0.0 Ok: queued as 4F2A"),
            *("it was accepted, a repeat would be a duplicate", f"queue recover --hold {id}"),
            *("2 due, the oldest 2 h old", "1 task in work to held: accepted by the log"),
        ):
            await until_seen(deck, words)
        await press("!")
        await press(*str(hung.pid))
        await until_seen(deck, "1 doing +")
        await until_seen(deck, "the lock is free again")

        assert hung.wait() == -signal.SIGKILL  # stopped, it could not heed SIGTERM
        await until_seen(deck, "1 attempt counted")
        page = text_of(deck.console.screen)
        await until(deck.pilot, lambda: "FREE" in deck.line("title"))
    assert len(pressed) - len(str(hung.pid)) == 2
    steps = re.findall(r"(?m)^  \d  (\w+)", page)
    assert steps.pop(2) in ("done", "skipped")  # its handler may have ended by itself by then
    assert steps == ["ignored", *["done"] * 4]
    assert not spool.lock.exists()
    found = {task.id: (task.state, task.attempts) for task in await ordered(spool)}
    assert found.pop(id) == (State.HELD, 1)
    assert set(found.values()) == {(State.PENDING, 0)}


async def until_seen(deck: Deck, words: str) -> None:
    """Wait for words on the terminal, however they are folded; a process may take its seconds."""
    for _ in range(300):
        if words in " ".join(text_of(deck.console.screen).split()):
            return
        await deck.pilot.pause(0.05)
    raise AssertionError(f"{words!r} is not in\n{text_of(deck.console.screen)}")


async def ordered(spool: Spool) -> list[Task]:
    """All tasks of the queue, as another process finds them."""
    return await asyncio.to_thread(tasks_in, spool.root)


async def test_nothing_in_work_is_touched_while_its_worker_lives(
    spool: Spool, hung: subprocess.Popen[bytes]
) -> None:
    """With a holder that lives, what is in work is listed, and its keys say why they do nothing."""
    (id,) = spool.in_work
    async with opened(spool, (80, 24)) as deck:
        await deck.open()
        await until_seen(deck, "1 task in work; its worker lives")
        for key, verb in (("H", "hold"), ("L", "release"), ("K", "kill")):
            assert f" {key} {verb}" not in deck.line("hints")
            await deck.press(key)
            assert f"{verb}: PID {hung.pid} has the lock, nothing in work is aband" in deck.page
            assert isinstance(deck.console.screen, LockScreen)
    assert spool.in_work == [id]


ENDS = {"H": (State.HELD, "held"), "L": (State.PENDING, "released"), "K": (State.DEAD, "killed")}


@pytest.mark.parametrize("key", ENDS)
async def test_an_abandoned_task_goes_where_it_is_told_to(
    spool: Spool, start: Starter, key: str
) -> None:
    """Once its worker is gone, H parks a task in work, L gives it back and K gives it up; the
    attempt counts, the others stay, and the plan says what is recommended.
    """
    state, past = ENDS[key]
    one, two = await asyncio.to_thread(abandoned, spool, start, 2)
    spool.accepts(two)
    async with opened(spool) as deck:
        await deck.open()
        await until_seen(deck, "STALE (sure): PID")
        await until_seen(deck, "HOLD: accepted")
        await deck.press("j")
        assert deck.line("scope").endswith(two[-17:])
        await deck.press(key)
        await until(deck.pilot, lambda: isinstance(deck.console.screen, PlanScreen))
        await until_seen(deck, f"row {two}")
        await until_seen(deck, "Recommended: hold it: it was accepted")
        await deck.press("!", "y")
        await until_seen(deck, f"1 {past}")
        await deck.press("escape")
        await until(deck.pilot, lambda: "1 in work" in deck.page)
    found = {task.id: (task.state, task.attempts) for task in await ordered(spool)}
    assert found[two] == (state, 1)
    assert found[one] == (State.ACTIVE, 0)


def abandoned(spool: Spool, start: Starter, amount: int) -> list[str]:
    """Tasks in work whose worker was killed."""
    code = HOLDER.replace('"holder", 1', f'"holder", {amount}')
    holder = start(code, str(spool.root))
    holder.kill()
    holder.wait()
    assert len(spool.in_work) == amount
    return spool.in_work


async def test_a_worker_that_comes_before_the_plan_keeps_its_task(
    spool: Spool, start: Starter
) -> None:
    """The lock is looked at again when the plan is applied: who has taken it meanwhile works."""
    (id,) = await asyncio.to_thread(abandoned, spool, start, 1)
    async with opened(spool) as deck:
        await deck.open()
        await until_seen(deck, "STALE (sure): PID")
        await deck.press("L")
        await until(deck.pilot, lambda: isinstance(deck.console.screen, PlanScreen))
        await until_seen(deck, f"row {id}")
        await until_seen(deck, "1 of work -> pending")  # counted, so a key applies
        taker = await asyncio.to_thread(start, TAKER, str(spool.lock))
        await deck.press("!", "y")
        await until_seen(deck, "1 failed")
        assert f"PID {taker.pid} has the lock, nothing in work is abandoned" in deck.page
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
