"""The jobs that the console is for, key by key, on a real spool with a real worker."""

import asyncio
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from textual.pilot import Pilot

from engine import config
from engine.journal import Journal
from engine.model import State, Task
from engine.operations import End
from tests.tui.spools import is_known, make_spool, until
from tui.app import Console
from tui.cli.console import _place
from tui.cli.wiring import Setup
from tui.place import Place
from tui.plain import text_of
from tui.screens.face import Face
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
    path = root / "config.yaml"
    path.write_text(CONFIG.format(handler=root / "handler.sh"))
    loaded = config.load(str(path), {})
    return _place(Setup(loaded, config.queue_for(loaded, str(root), {})), str(root))


@contextmanager
def a_worker(place: Place) -> Iterator[None]:
    """The place's own worker, in a process of its own."""
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(place.work, **quiet) as worker:  # type: ignore[call-overload]
        try:
            yield
        finally:
            worker.send_signal(signal.SIGTERM)


def _text(console: Console) -> str:
    return text_of(console.screen)


class Hand:
    """Presses keys one after the other, each once the screen answers to the one before."""

    def __init__(self, console: Console, pilot: Pilot[None]) -> None:
        self.console, self.pilot = console, pilot
        self.pressed: list[str] = []

    async def press(self, key: str, then: Callable[[], object] = lambda: True) -> None:
        """One key, and wait for what it leads to."""
        self.pressed.append(key)
        await self.pilot.press(key)
        await until(self.pilot, then, partial(_text, self.console))

    async def shows(self, words: str) -> None:
        """Wait until these are on screen."""
        told = partial(_text, self.console)
        await until(self.pilot, lambda: words in told(), told)

    async def count(self) -> int:
        """Type the count that the plan asks for; answers with it."""
        screen = self.console.screen
        assert isinstance(screen, PlanScreen)
        wanted = screen.wanted
        for digit in wanted:
            await self.pilot.press(digit)
        return int(wanted)


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Hand]:
    """The console as it opens, once everything was looked at."""
    console = Console([place], host="mx1")
    async with console.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: is_known(console.lives[0]))
        await until(pilot, lambda: isinstance(console.screen, Face))
        yield Hand(console, pilot)


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


async def test_a_cluster_is_replayed_in_at_most_eight_keys_and_its_count(
    place: Place, tmp_path: Path
) -> None:
    """From the overview to a replay whose tasks were all really delivered."""
    with a_worker(place):
        async with opened(place) as hand:
            await hand.press("4")
            await hand.shows("[4 dlq 19]")
            await hand.press("c")
            await hand.shows("try again later")
            await hand.press("R", lambda: isinstance(hand.console.screen, PlanScreen))
            await hand.press("!")
            await hand.shows("type 14 to retry 14")
            counted = await hand.count()
            await hand.shows("14 planned: all accounted for")
            assert "delivered             14" in text_of(hand.console.screen)

    assert counted == 14
    assert len(hand.pressed) <= 8
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
            await hand.press("4")
            await hand.shows("[4 dlq 19]")
            await hand.press("*")
            await hand.press("R", lambda: isinstance(hand.console.screen, PlanScreen))
            await hand.press("!")
            await hand.shows("type 19 to retry 19")
            await hand.count()
            await hand.shows("all accounted for")
            picture = text_of(hand.console.screen)

    never = next(line for line in picture.splitlines() if "never sent" in line)
    assert int(never.split()[2]) > 0
    assert len(await asyncio.to_thread(dead_in, tmp_path)) == 19


async def test_a_purge_is_undone_byte_for_byte(place: Place, tmp_path: Path) -> None:
    """By a filter into the trash, and back: names, bytes, modes and owners are as they were."""
    await asyncio.to_thread(change_modes, tmp_path)
    before = await asyncio.to_thread(folder, tmp_path)
    async with opened(place) as hand:
        await hand.press("4")
        await hand.shows("[4 dlq 19]")
        await hand.press("/")
        for letter in "unknown":
            await hand.press(letter)
        await hand.press("enter")
        await hand.shows("5 of 19")
        await hand.press("*")
        await hand.press("X", lambda: isinstance(hand.console.screen, PlanScreen))
        await hand.press("!")
        await hand.shows("type 5 to purge 5")
        await hand.count()
        await hand.shows("5 purged")
        between = await asyncio.to_thread(folder, tmp_path)
        await hand.press("u")
        await hand.shows("kept for 24 h")
        await hand.press("T", lambda: isinstance(hand.console.screen, PlanScreen))
        await hand.shows("type 5 to take back 5")
        await hand.count()
        await hand.shows("5 taken back")

    assert between != before
    assert await asyncio.to_thread(folder, tmp_path) == before
