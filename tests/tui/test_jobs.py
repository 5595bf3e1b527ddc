"""The jobs that the console is for, key by key, on a real spool with a real worker."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.journal import Journal
from engine.model import State, Task
from engine.operations import End
from tests.tui.desks import Desk, a_desk
from tests.tui.holders import wired
from tests.tui.spools import make_spool
from tui import keys
from tui.place import Place
from tui.screens.plan import PlanScreen

GONE, STILL = "421 4.7.0 try again later", "550 5.1.1 user unknown"

CONFIG = """\
handlers:
  job: {{command: [sh, {handler}], timeout: 60}}
queue: {{max_retries: 0}}
"""

HANDLER = """\
case $TASK_DESCRIPTION in
  still*) echo "550 5.1.1 user unknown"; exit 1 ;;
esac
"""


def the_dead(many: int, word: str, error: str, first: int) -> Iterator[Task]:
    """So many tasks that died an hour ago of one error."""
    died = time.time() - 3600
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(died - 600))
    for number in range(first, first + many):
        task = Task(f"{stamp}-job-{number:08x}", "job", State.DEAD, float(int(died - 600)))
        extra = {"dead_since": str(int(died))}
        yield replace(task, attempts=1, description=f"{word} {number}", error=error, extra=extra)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A spool with 14 tasks that would run now and 5 that would not, as the command opens it."""
    root = tmp_path
    make_spool(root, [*the_dead(14, "gone", GONE, 0), *the_dead(5, "still", STILL, 100)])
    for old in ("log/queue.log", "metrics/queue.prom", "metrics/mail.prom"):
        (root / old).unlink()
    (root / "handler.sh").write_text(HANDLER)
    return wired(root, CONFIG.format(handler=root / "handler.sh"))


@contextmanager
def a_worker(place: Place) -> Iterator[None]:
    """The place's own worker, in a process of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(place.work, **quiet) as worker:  # type: ignore[call-overload]
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)


class Hand:
    """An operator who presses keys, and how many."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.pressed = desk, 0

    async def press(self, key: str, *words: str) -> None:
        """One key, and wait for what it leads to."""
        self.pressed += 1
        await self.desk.press(key)
        await self.desk.sees(*words)

    async def plan(self, key: str, *words: str) -> int:
        """A key that leads to a plan; arm, and type the count that it asks for: which is it?"""
        self.pressed += 2
        screen = await self.desk.opens(PlanScreen, key)
        if not self.desk.console.around.arming.armed:
            await self.desk.press("!")
        await self.desk.sees(*words)
        wanted = screen.wanted
        await self.desk.press(*wanted)
        return int(wanted)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Hand]:
    """The console as it opens, once everything was looked at."""
    settings: dict[str, Any] = {"clock": time.time, "first": keys.OVERVIEW}
    async with a_desk(place, start_armed=False, **settings) as desk:
        yield Hand(desk)


def folder(root: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, mode and owner of every task file, by its path."""
    found = {}
    for path in sorted((root / "queue").rglob("*.task")):
        seen = path.stat()
        found[str(path)] = (path.read_bytes(), seen.st_mode, seen.st_uid, seen.st_gid)
    return found


def dead_in(root: Path) -> list[str]:
    """The ends of the ids in the dead-letter queue."""
    return sorted(path.stem[-8:] for path in (root / "queue/dlq").iterdir())


def make_all_fail(root: Path) -> None:
    """No task of the dead-letter queue would run now."""
    for path in (root / "queue/dlq").iterdir():
        path.write_text(path.read_text().replace("gone", "still").replace(GONE, STILL))


def change_modes(root: Path) -> None:
    """Give the dead tasks several modes."""
    for number, path in enumerate(sorted((root / "queue/dlq").iterdir())):
        path.chmod((0o600, 0o640, 0o644)[number % 3])


@pytest.mark.deep
async def test_a_cluster_is_replayed_in_at_most_eight_keys_and_its_count(
    place: Place, tmp_path: Path
) -> None:
    """From the overview to a replay whose tasks were all really delivered."""
    with a_worker(place):
        async with opened(place) as hand:
            await hand.press("4", "[4 dlq 19]")
            await hand.press("c", "try again later")
            assert await hand.plan("R", "type 14 to retry 14") == 14
            await hand.desk.sees("14 planned: all accounted for", "delivered 14")

    assert hand.pressed <= 8
    left = await asyncio.to_thread(dead_in, tmp_path)
    assert left == [f"{number:08x}" for number in range(100, 105)]
    journal = Journal(f"{tmp_path}/queue/.spooldeck/journal")
    (operation,) = await asyncio.to_thread(journal.operations)
    assert (operation.intent.verb, operation.counts[End.DONE]) == ("retry", 14)


async def test_a_replay_stops_when_its_error_comes_back(place: Place, tmp_path: Path) -> None:
    """Tasks whose cause is not gone: the canaries say so, and the rest stays where it is."""
    await asyncio.to_thread(make_all_fail, tmp_path)
    with a_worker(place):
        async with opened(place) as hand:
            await hand.press("4", "[4 dlq 19]")
            await hand.desk.press("*")
            await hand.plan("R", "type 19 to retry 19")
            await hand.desk.sees("all accounted for")
            picture = hand.desk.text

    never = next(line for line in picture.splitlines() if "never sent" in line)
    assert int(never.split()[2]) > 0
    assert len(await asyncio.to_thread(dead_in, tmp_path)) == 19


async def test_a_purge_is_undone_byte_for_byte(place: Place, tmp_path: Path) -> None:
    """By a filter into the trash, and back: names, bytes, modes and owners are as they were."""
    await asyncio.to_thread(change_modes, tmp_path)
    before = await asyncio.to_thread(folder, tmp_path)
    async with opened(place) as hand:
        await hand.press("4", "[4 dlq 19]")
        await hand.desk.press("/", *"unknown", "enter")
        await hand.desk.sees("5 of 19")
        await hand.desk.press("*")
        await hand.plan("X", "type 5 to purge 5")
        await hand.desk.sees("5 purged", "all accounted for")
        between = await asyncio.to_thread(folder, tmp_path)
        await hand.press("u", "kept for 24 h")
        await hand.plan("T", "type 5 to take back 5")
        await hand.desk.sees("5 taken back", "all accounted for")

    assert between != before
    assert await asyncio.to_thread(folder, tmp_path) == before
