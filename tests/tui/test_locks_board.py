"""The locks' board: who has each, the evidence, what waits behind it, and the way to free it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine import locks
from engine.locks import PidLock
from engine.model import LockEvidence, Verdict
from engine.waiting import Standing
from tests.engine.lockers import later
from tests.engine.test_alerts import a_stale_lock, write_task
from tests.tui.spools import NOW, a_console, a_stuck_lock, disk_place, make_spool, until
from tui import keys
from tui.app import Console
from tui.place import Place
from tui.plain import text_of
from tui.present import Line
from tui.screens.lock import LockScreen
from tui.screens.locks import LocksScreen
from tui.screens.queue import QueueScreen
from tui.views import locks as view
from tui.views.locks import Lock

RED = "\x1b[31mred"


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Two empty queues."""
    found = [tmp_path / name for name in ("first", "second")]
    for root in found:
        make_spool(root, [])
        shutil.rmtree(root / "metrics")
    return found


def a_lock_place(root: Path) -> Place:
    """A place whose lock could be freed by a command; nothing here runs it."""
    return disk_place(root, clock=time.time)._replace(recover=("true",))


class Desk:
    """The board on some spools."""

    def __init__(self, console: Console, pilot: Pilot[None]) -> None:
        self.console, self.pilot = console, pilot

    @property
    def text(self) -> str:
        """What is on the terminal."""
        return text_of(self.console.screen)

    def cells(self, name: str) -> list[str]:
        """The words behind a name on its line."""
        lines = [line[3:].split() for line in self.text.splitlines()]
        return next((words[1:] for words in lines if words[:1] == [name]), [])

    async def until(self, true: Callable[[], object]) -> None:
        """Wait for something, and paint meanwhile what has become known."""

        def painted() -> object:
            if isinstance(self.console.screen, LocksScreen):
                self.console.screen.paint()
            return true()

        await until(self.pilot, painted, lambda: self.text, every=0.05)


@asynccontextmanager
async def a_desk(
    *places: Place, size: tuple[int, int] = (80, 24), **fields: object
) -> AsyncIterator[Desk]:
    """The console, opened on its locks, once each was looked at."""
    console = a_console(*places, clock=time.time, first=keys.LOCKS, **fields)
    async with console.run_test(size=size) as pilot:
        desk = Desk(console, pilot)
        await until(pilot, lambda: isinstance(console.screen, LocksScreen))
        await desk.until(lambda: all(live.looked for live in console.lives))
        yield desk


async def taken(root: Path, silent: float = 0) -> PidLock:
    """The lock of a queue, taken by this process so many seconds ago."""
    ago = later(-silent)
    path = str(root / "run" / "queue.lock")
    return await asyncio.to_thread(locks.acquire, path, 1200, ago["clock"], ago["uptime"])


async def test_a_line_for_each_lock(roots: list[Path]) -> None:
    """Who has which, how long he was silent, the verdict, how many wait; released, it is free."""
    first, second = roots
    lock = await taken(first, 2820)
    for number, age in enumerate((90, 7300, 60)):
        write_task(first, "pending", number, age=age)
    write_task(first, "pending", 9, due_in=3600)
    async with a_desk(*map(a_lock_place, roots)) as desk:
        pid = str(os.getpid())
        wanted = ["47m00s", "PID", pid, "STUCK", "3", "2h01m"]
        await desk.until(lambda: [*desk.cells("first")[1:6]] == wanted[1:])
        assert desk.cells("first")[0].startswith("47m")
        assert desk.cells("LOCK")[:5] == ["BEAT", "HOLDER", "VERDICT", "BLOCKS", "OLDEST"]
        await desk.until(lambda: desk.cells("second")[:4] == ["-", "-", "FREE", "-"])

        a_stale_lock(second)
        await asyncio.to_thread(lock.release)

        await desk.until(lambda: desk.cells("first")[2] == "FREE")
        await desk.until(lambda: "STALE" in desk.cells("second"))


async def test_the_evidence_and_what_waits(roots: list[Path]) -> None:
    """Below is all that is known of the lock under the cursor, and what waits behind it by kind."""
    first, _ = roots
    lock = await taken(first, 2820)
    for number in range(3):
        write_task(first, "pending", number, age=90)
    try:
        async with a_desk(*map(a_lock_place, roots), size=(100, 40)) as desk:
            await desk.until(
                lambda: "waiting behind it: 3 due tasks, the oldest is 1m" in desk.text
            )
            await desk.until(lambda: "by kind: report 3" in desk.text)
            # This process would have to end itself: that is in doubt, and nothing is offered.
            for words in (
                "flock held by PID",
                "limit 20 min",
                "nobody is signalled",
                "ps -o pid,user,",
            ):
                await desk.until(partial(lambda told: told in " ".join(desk.text.split()), words))

            write_task(first, "pending", 4, age=30)
            await desk.until(lambda: "by kind: report 4" in desk.text)
            await desk.pilot.press("j")

            await desk.until(lambda: "none: there is no lock file" in desk.text)
            assert "nothing to free" in desk.text
    finally:
        await asyncio.to_thread(lock.release)


@pytest.mark.parametrize("key", ["enter", "U"])
async def test_the_way_to_the_lock_under_the_cursor(roots: list[Path], key: str) -> None:
    """U and Enter open the lock of the place under the cursor, whichever was looked at before."""
    lock = await taken(roots[1], 2820)
    try:
        async with a_desk(*map(a_lock_place, roots)) as desk:
            await desk.until(lambda: "STUCK" in desk.cells("second"))
            await desk.pilot.press("j", key)

            await desk.until(lambda: isinstance(desk.console.screen, LockScreen))
            await desk.until(lambda: f"PID {os.getpid()}" in desk.text)
            await desk.pilot.press("escape")
            await desk.until(lambda: isinstance(desk.console.screen, LocksScreen))
            await desk.pilot.press("2")
            await desk.until(lambda: isinstance(desk.console.screen, QueueScreen))
            await desk.until(lambda: "/second" in desk.text)
    finally:
        await asyncio.to_thread(lock.release)


async def test_read_only_says_why_nothing_is_freed(roots: list[Path]) -> None:
    """Where nothing may be written, the evidence is there, and no plan is."""
    async with a_desk(*map(a_lock_place, roots), read_only=True) as desk:
        await desk.pilot.press("U")

        await desk.until(lambda: "read only: no lock is freed from here" in desk.text)
        assert isinstance(desk.console.screen, LocksScreen)


@pytest.mark.parametrize("size", [(200, 60), (20, 5), (1, 1)])
async def test_every_size(roots: list[Path], size: tuple[int, int]) -> None:
    """Whatever the size, the board is there and moves."""
    async with a_desk(*map(a_lock_place, roots), size=size) as desk:
        await desk.pilot.press("j", "ctrl+d", "k", "G", "g")
        await desk.until(lambda: size[0] < 20 or "st" in desk.text)

        assert len(desk.text.splitlines()) <= size[1]


async def test_a_board_that_is_taken_down_has_no_row_under_the_cursor(roots: list[Path]) -> None:
    """Whoever wakes while its parts go, one after the other, finds nothing to ask about."""
    async with a_desk(*map(a_lock_place, roots)) as desk:
        screen = desk.console.screen
        assert isinstance(screen, LocksScreen)
        asked = []

        async def ask_on() -> None:
            while screen.children:
                asked.append(screen.picked)
                await asyncio.sleep(0)

        asking = asyncio.ensure_future(ask_on())
        await asyncio.sleep(0)
        await screen.remove()
        await asking

        assert (asked[0], asked[-1], screen.picked) == ("1", "", "")


# Values


def test_foreign_words_are_inert() -> None:
    """What a lock file, a command line or a kind says acts on no terminal."""
    evidence = LockEvidence(Verdict.STUCK, 7, NOW - 9, 9, RED, RED, (("holder", RED),), "x", (7,))
    lock = Lock(1, RED, evidence, Standing(NOW - 60, 2, NOW - 60))

    head, rows = view.table([lock], NOW, 100)
    lines = [head, *rows, *view.about(lock, None, ((" U", "key"),), NOW, 60)]

    text = "".join(text for line in lines for text, _ in line)
    assert "[31mred" in text
    assert text.isprintable()


def test_what_can_be_done() -> None:
    """A lock whose holder is proven to be stuck shows the steps, and where the plan is."""
    lock = Lock(1, "a", a_stuck_lock(), Standing(NOW - 60, 0, None))
    text = words_of(view.about(lock, None, ((" U", "key"), (" shows the plan", "")), NOW, 80))

    assert "send SIGTERM to PID 4711" in text
    assert text.endswith("U shows the plan")
    assert "U shows" not in words_of(view.about(lock, None, (), NOW, 80))


def words_of(lines: list[Line]) -> str:
    """Lines as one text."""
    return "\n".join("".join(text for text, _ in line) for line in lines)


def test_in_doubt_a_person_decides() -> None:
    """A holder that is not proven to be who took the lock is not ended by a plan: it says why."""
    evidence = a_stuck_lock()._replace(doubt="it was taken on the host mx2")
    text = words_of(view.about(Lock(1, "a", evidence), None, ((" U", "key"),), NOW, 80))

    assert "nobody is signalled: it was taken on the host mx2" in " ".join(text.split())
    assert "SIGTERM" not in text
    assert "ps -o pid,user,lstart,args -p 4711" in text
