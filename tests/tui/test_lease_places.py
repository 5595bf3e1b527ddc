"""Places without a lock, where each claim is a lease: nothing is said there that nobody knows."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import config
from engine.inspector import Inspector
from engine.model import Lease, State, Task
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.zgb import create
from tests.tui.desks import a_desk, words
from tests.tui.spools import PATIENCE, disk_place
from tests.tui.spools import make_spool as make_queue
from tui import keys
from tui.cli import main
from tui.cli.console import places_of
from tui.cli.sites import setup_for
from tui.place import LEASES, Place
from tui.views.task import Scene, show_command, summary
from tui.why import reasons

HOUR = 3600
NOW = int(time.time())
"""All these tests ask about moments that they name themselves; the stores have no other clock."""

NO_TOKEN = (("mailTokens", "0"), ("mailLastRefill", str(NOW + HOUR)), ("mailMaxPerHour", "40"))
"""An empty bucket that no clock refills while a test runs."""


@pytest.fixture
def database(tmp_path: Path) -> str:
    """A mail queue whose keys, ids and due times are each in an order of their own; it sends."""
    path = str(tmp_path / "a.db")
    create(path)
    with closing(sqlite3.connect(path)) as db:
        for number, due in ((10, 30), (9, 60), (11, 40), (16, 20)):
            db.execute("INSERT INTO registrations(number) VALUES (?)", (number,))
            db.execute(
                "INSERT INTO mail_queue(registration_number, mail_type, next_attempt_at)"
                " VALUES (?, 'user', ?)",
                (number, NOW - due),
            )
        db.execute("INSERT INTO config VALUES ('mailQueueEnabled', '1')")
        db.commit()
    return path


@pytest.fixture
def spool(tmp_path: Path) -> str:
    """A mail spool with one mail that a sender took and left."""
    path = tmp_path / "spool"
    make_spool(str(path))
    with closing(KannaderStore(str(path))) as store:
        store.enqueue("me@here.example", ["a@one.example"], [b"Hi\r\n"])
    (mail,) = (path / "queue").iterdir()
    os.rename(mail, path / "inflight" / mail.name)  # noqa: PTH104 - as its sender does
    return str(path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A queue of the contract without a task."""
    made = tmp_path / "mail.out"
    make_queue(made, [])
    return made


def settle(database: str, *values: tuple[str, str]) -> None:
    """What another program sets."""
    with closing(sqlite3.connect(database)) as db, db:
        db.executemany("INSERT OR REPLACE INTO config VALUES (?, ?)", values)


def place_of(path: str) -> Place:
    """All that the console is told of a place."""
    (place,) = places_of(setup_for(config.Config(), "", {}), [path])
    return place


async def opened(path: str) -> Place:
    """The same, by a worker that has a handler for everything, and what it needs to send."""
    return (await asyncio.to_thread(place_of, path))._replace(handled=None, shut=None)


@asynccontextmanager
async def following(place: Place) -> AsyncIterator[Inspector]:
    """Somebody who has seen all of a place."""
    inspector = Inspector(place.open)
    async with asyncio.timeout(PATIENCE):
        await inspector.start()
        try:
            await inspector.refresh()
            yield inspector
        finally:
            await inspector.close()


async def why(place: Place, id: str, now: float = NOW) -> tuple[str, ...]:
    """What is said of one of its tasks, as the console says it."""
    async with following(place) as inspector:
        task = await inspector.task(id)
        assert task is not None
        return await reasons(inspector, place, None, task, now)


async def test_what_waits_for_a_token_says_so(database: str, tmp_path: Path) -> None:
    """An empty bucket keeps what is due, and says when it holds a token; with one, it does not. A
    pause of the whole queue comes first, by its name; what an unreadable bucket holds is not
    guessed.
    """
    place = await opened(database)
    settle(database, *NO_TOKEN)
    (empty,) = await why(place, "9-user")
    settle(database, ("mailQueueEnabled", "0"))
    paused = await why(place, "9-user")
    settle(database, ("mailTokens", "3"), ("mailQueueEnabled", "1"))
    filled = await why(place, "9-user")
    async with following(place) as inspector:
        task = await inspector.task("9-user")
        assert task is not None
        os.rename(database, tmp_path / "elsewhere")  # noqa: PTH104 - as its owner does
        unknown = await reasons(inspector, place, None, task, NOW)

    assert re.fullmatch(r"no token until (\S+ )?[0-9:]{8}Z \(in .+\)", empty)
    assert paused[0] == "the queue is paused: mailQueueEnabled is 0"
    assert paused[1].startswith("no token until ")
    assert filled == ("due for 1 min, but not seen by any worker",)
    assert unknown[0].startswith("whether there is a token is not known: ")


async def test_those_before_it_are_those_that_came_due_earlier(database: str) -> None:
    """Where a store takes by due times, ids decide nothing; how many come before is omitted where
    the order is not known.
    """
    place = await opened(database)

    assert (await why(place, "16-user"))[0] == "3 other tasks first"
    assert (await why(place, "11-user"))[0] == "1 other task first"
    unordered = await why(place._replace(takes_by=""), "16-user")
    assert unordered == ("due for 20 s, but not seen by any worker",)


async def test_a_claim_that_nobody_answers_for_is_no_work(spool: str) -> None:
    """It is said when it was taken and when it lapses; after that, what becomes of it."""
    place = await opened(spool)
    (left,) = (Path(spool) / "inflight").iterdir()
    taken = left.lstat().st_ctime

    fresh = await why(place, left.name, taken + 90)
    late = await why(place, left.name, taken + HOUR + 120)

    assert fresh[0] == "claimed 1 min ago, by whom is not known"
    assert fresh[1].startswith("its lease lapses at ")
    assert fresh[1].endswith(" (in 58 min)")
    assert late == (
        "its lease has lapsed 2 min ago: the next worker gives it back, "
        "and it counts as an attempt",
        "claimed 1 h 2 min ago",
    )


LEASED = Task(
    "m1", "mail", State.ACTIVE, NOW - 900.0, lease=Lease("worker \x1b7", NOW - 90.0, NOW + 30.0)
)


def test_the_summary_describes_the_lease() -> None:
    """Whose claim it is, and until when; only one that ends with its owner is being worked on."""
    table: tuple[tuple[Lease | None, tuple[str, ...]], ...] = (
        (LEASED.lease, ("Claimed by worker \ufffd7 since ", " lapses at ", " (in ")),
        (Lease("", NOW - 90.0, NOW - 30.0), ("Claimed since ", "lapsed meanwhile", " lapsed at ")),
        (Lease("", 0.0, 0.0), ("Claimed, lapsed meanwhile.", "lease")),
        (Lease("7", NOW - 90.0), ("Being worked on since ",)),
    )
    for lease, said in table:
        assert lease is not None
        scene = Scene(replace(LEASED, lease=lease), {State.ACTIVE: "inflight"})
        text = words(summary(scene, NOW, 100))

        assert [part for part in said if part not in text] == []
        assert ("Being worked on" in text) is (lease.until is None)
        has_row = any(line.split()[:1] == ["lease"] for line in text.splitlines())
        assert has_row is (lease.until is not None)


def test_the_command_of_a_dead_task_is_one_that_works(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Dead tasks have a command of their own only in queues of the contract."""
    with closing(sqlite3.connect(database)) as db, db:
        db.execute(
            "UPDATE mail_queue SET status = 'failed', attempts = 9, next_attempt_at = 253402300799"
        )
    place = place_of(database)
    dead = Task("9-user", "user", State.DEAD, 0.0)

    command = show_command(place.command, dead, place.has_dlq)

    assert command[3:] == ("queue", "list", "--json", "--filter", "id=9-user")
    assert main(command[1:]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "parked"
    assert show_command(place.command, dead)[3:] == ("queue", "dlq", "show", "9-user")


TABS = {
    "spool": (
        ("inflight", ("H hold", "L release"), ("K kill", "X purge")),
        ("hold", ("X purge", "L release"), ("K kill", "H hold")),
    ),
    "database": (
        ("sending", ("H hold", "L release", "K kill"), ("X purge",)),
        ("held", ("X purge", "L release"), ("K kill", "H hold")),
        ("pending", ("X purge", "H hold", "O promote"), ("L release", "K kill")),
    ),
}
"""Tabs, the verbs that are offered there, and those that lead nowhere in this store."""


@pytest.mark.parametrize("which", TABS)
async def test_a_tab_hints_at_what_it_allows(spool: str, database: str, which: str) -> None:
    """However narrow the screen, the verbs of a tab come before what is the same in every tab; one
    that leads nowhere in this store is not among them.
    """
    place = await opened({"spool": spool, "database": database}[which])
    async with a_desk(place, clock=time.time, start_armed=False) as desk:
        names = list(desk.console.here.inspector.states.values())
        for width in (80, 120):
            await desk.pilot.resize_terminal(width, 24)
            for tab, offered, never in TABS[which]:
                await desk.press(str(names.index(tab) + 1))
                await desk.until(lambda: all(hint in desk.line("hints") for hint in offered))  # noqa: B023
                assert not [hint for hint in never if hint in desk.line("hints")]
                assert "? help  q back" in desk.line("hints")


SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
"""In the place of a worker: what the console knows of it is that it runs."""


@pytest.mark.parametrize("pane", [keys.LIST, keys.OVERVIEW, keys.LOCKS])
async def test_no_lock_is_offered_to_be_freed(database: str, pane: str) -> None:
    """No hint mentions it, and the key that is pressed all the same says why."""
    place = await opened(database)
    async with a_desk(place, size=(160, 40), clock=time.time, first=pane) as desk:
        await desk.sees("help")
        assert "unlock" not in desk.text

        await desk.press("U")
        await desk.sees(LEASES)


async def test_the_board_of_locks_says_that_none_is_needed(database: str, root: Path) -> None:
    """A place without a lock is a line as those with one, and is described in full below. A worker
    that the console started there is shown by its number, until it has ended, and what ends it.
    """
    place = (await opened(database))._replace(work=SLEEPER)
    contract = disk_place(root, clock=time.time)
    settings: dict[str, Any] = {"clock": time.time, "first": keys.LOCKS}
    async with a_desk(place, contract, size=(120, 40), **settings) as desk:
        await desk.sees("FREE", "unlock")
        rows = [line for line in desk.text.splitlines() if LEASES in line]
        assert len(rows) == 2
        assert rows[0].split()[:3] == [">", "a.db", "-"]
        assert rows[1].strip() == f"lock: {LEASES}"

        worker = desk.console.lives[0].worker
        await asyncio.to_thread(worker.start)
        pid = worker.pid
        await desk.sees(f"worker: PID {pid}, started by this console; W on its list stops it")
        (row,) = [line for line in desk.text.splitlines() if line.split()[1:2] == ["a.db"]]
        assert row.split()[2:5] == ["-", "PID", str(pid)]
        assert row.endswith("its worker was started here")
        await asyncio.to_thread(worker.finish)
        await desk.until(lambda: "PID" not in desk.text and LEASES in desk.text)


async def test_our_own_worker_is_shown_wherever_a_lock_would_be(database: str) -> None:
    """In the line of the list, beside the overview's queues, and in what it says of the place."""
    place = (await opened(database))._replace(work=SLEEPER)
    settings: dict[str, Any] = {"clock": time.time, "first": keys.OVERVIEW}
    async with a_desk(place, size=(120, 40), **settings) as desk:
        worker = desk.console.lives[0].worker
        await desk.sees("has none")
        await desk.press("2")
        await desk.sees("help", LEASES)
        await desk.press("W")
        await desk.sees("y to start a worker")
        await desk.press("y")
        await desk.until(lambda: f"{LEASES}; worker PID {worker.pid}, W stops it" in desk.text)
        pid = worker.pid
        await desk.press("q")
        await desk.sees(f"has none; PID {pid} is at work", f"; worker PID {pid}, started here")

        await desk.press("2")
        await desk.sees(LEASES)
        await desk.press("W")
        await desk.sees("y to stop worker PID")
        await desk.press("y")
        await desk.until(lambda: worker.pid is None)
        await desk.until(lambda: f"{LEASES};" not in desk.text)


def test_the_command_that_tells_of_locks_says_so(
    database: str, spool: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people a line that says why, for programs a row without a verdict; all is well."""
    assert main(["locks", database, spool]) == 0
    assert capsys.readouterr().out.count(f"lock: {LEASES}") == 2

    assert main(["locks", spool, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["locks"]
    assert (row["verdict"], row["pid"], row["reason"]) == (None, None, LEASES)
    assert (row["finding"], row["certainty"], row["in_work"]) == (LEASES, None, [])
