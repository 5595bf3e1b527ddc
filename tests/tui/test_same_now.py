"""Same now? From a spool and its logs to the screen and the command line, while the log grows."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from engine.fingerprint import fold, mark
from engine.model import State
from tests.tui.desks import Desk, a_desk
from tests.tui.queues import Run
from tests.tui.spools import a_task, disk_place, make_spool
from tui.screens.clusters import ClustersScreen
from tui.screens.plan import PlanScreen

LATER, UNKNOWN = "421 4.7.0 try again later", "550 5.1.1 user unknown"
MARK = mark(fold(LATER))


class Spool:
    """A queue with two sorts of errors, both two hours old, and a log that others write."""

    def __init__(self, root: Path) -> None:
        self.root, now = root, time.time()
        self.number = 1000
        aged = {"created": now - 9000, "kind": "mail_send"}
        dead = [
            a_task(n, State.DEAD, **aged, error=error, extra={"dead_since": str(int(now - 7200))})
            for n, error in enumerate([LATER] * 5 + [UNKNOWN] * 3)
        ]
        make_spool(root, dead)
        self.log = root / "log" / "queue.log"
        self.log.write_text("")

    def write(self, ago: float, *lines: str) -> None:
        """Append to the log what happened so many seconds ago."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - ago))
        with self.log.open("a") as log:
            log.writelines(f"[{stamp}] [INFO] {line}\n" for line in lines)

    def run(self, error: str = "") -> Iterable[str]:
        """What a worker logs of one fresh task."""
        self.number += 1
        id = f"20261120T094115Z-mail_send-{self.number:08x}"
        ended = f"failed: {id} (mail_send): {error}" if error else f"completed: {id} (mail_send)"
        return f"Processing task: {id} (mail_send: to somebody)", f"Task {ended}"

    def fails(self) -> None:
        """A fresh task fails as others did."""
        self.write(90, *self.run(LATER))

    def succeeds(self, times: int) -> None:
        """Fresh tasks are done since."""
        for _ in range(times):
            self.write(20, *self.run())


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """The log says nothing yet."""
    return Spool(tmp_path / "spool")


@asynccontextmanager
async def clusters(spool: Spool, **fields: Any) -> AsyncIterator[Desk]:
    """The errors of its dead tasks on screen."""
    place = disk_place(spool.root, clock=time.time)
    async with a_desk(place, size=(100, 30), clock=time.time, **fields) as desk:
        await desk.opens(ClustersScreen, "4", "c")
        await desk.until(lambda: row(desk))
        yield desk


def row(desk: Desk) -> str:
    """The line of the errors that it is about, as it is painted."""
    lines = desk.text.splitlines()
    return next((line.strip("> ") for line in lines if line[3:].startswith(MARK)), "")


async def test_the_screen_follows_the_log(spool: Spool) -> None:
    """Unknown, then yes, then no: the answer and its evidence change with the log alone."""
    async with clusters(spool) as desk:
        await desk.until(lambda: row(desk).endswith("?"))
        assert row(desk).split()[1:3] == ["5", "421"]
        await desk.sees("no log says what became of such work")

        await asyncio.to_thread(spool.fails)
        await desk.until(lambda: row(desk).endswith("yes"))
        await desk.sees("1 task failed so in the last 10 min, 1 of them new")

        await asyncio.to_thread(spool.succeeds, 3)
        await desk.sees("3 fresh mail_send succeeded since", "too few for a no")
        assert row(desk).endswith("yes")

        await asyncio.to_thread(spool.succeeds, 9)
        await desk.until(lambda: row(desk).endswith("no (1m)"))
        await desk.sees("12 fresh mail_send succeeded since", "no more: " + MARK)


async def test_a_plan_to_replay_says_it_again(spool: Spool) -> None:
    """Beside the count of a replay is said which of its errors fresh work still gets, and only
    those.
    """
    await asyncio.to_thread(spool.fails)
    place = disk_place(spool.root, clock=time.time)
    async with a_desk(place, size=(100, 30), clock=time.time) as desk:
        await desk.opens(PlanScreen, "4", "*", "R")
        await desk.sees(f"5 of these have an error that still happens: {MARK}, last")


def test_the_command_line_follows_the_log(spool: Spool, spooldeck: Run) -> None:
    """`clusters --json` gives each sort of error its answer, from the same spool and log."""

    def told() -> dict[str, dict[str, object]]:
        ended = spooldeck("clusters", str(spool.root), "--json")
        assert (ended.returncode, ended.stderr) == (0, "")
        return {row["mark"]: row for row in map(json.loads, ended.stdout.splitlines())}

    first = told()
    assert {row["error"]: row["count"] for row in first.values()} == {
        fold(LATER): 5,
        fold(UNKNOWN): 3,
    }
    assert {row["same_now"] for row in first.values()} == {"?"}

    spool.fails()
    assert told()[MARK]["same_now"] == "yes"

    spool.succeeds(12)
    last = told()
    assert last[MARK]["same_now"] == "no"
    assert "12 fresh mail_send succeeded since" in str(last[MARK]["evidence"])
    assert last[mark(fold(UNKNOWN))]["same_now"] == "no"


async def test_the_screen_and_the_command_line_say_the_same(spool: Spool, spooldeck: Run) -> None:
    """Title, rows and summary are printed word for word as the screen has them."""
    await asyncio.to_thread(spool.succeeds, 12)
    words = ("clusters", str(spool.root), "--state", "dlq")
    ended = await asyncio.to_thread(spooldeck, *words, COLUMNS="100")
    printed = ended.stdout.splitlines()
    async with clusters(spool, glyphs={}) as desk:
        shown = [line.lstrip("▶ ") for line in desk.text.splitlines()]

    for line in (*printed[:3], printed[-1]):
        assert line.strip() in shown
