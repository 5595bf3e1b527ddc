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

import pytest

from engine import config
from engine.inspector import Inspector
from engine.model import Lease, State, Task
from engine.stores.kannader import KannaderStore, make_spool
from engine.stores.zgb import create
from tests.tui.spools import PATIENCE, a_console, disk_place, until
from tests.tui.spools import make_spool as make_queue
from tui import keys
from tui.cli import main
from tui.cli.console import places_of
from tui.cli.sites import setup_for
from tui.place import LEASES, Place
from tui.plain import text_of
from tui.screens.locks import LocksScreen
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


async def test_what_waits_for_a_token_says_so(database: str) -> None:
    """An empty bucket keeps what is due, and says when it holds one; with one, it does not."""
    settle(database, *NO_TOKEN)
    empty = await why(await opened(database), "9-user")
    settle(database, ("mailTokens", "3"))
    filled = await why(await opened(database), "9-user")

    (said,) = empty
    assert re.fullmatch(r"no token until (\S+ )?[0-9:]{8}Z \(in .+\)", said)
    assert filled == ("due for 1 min, but not seen by any worker",)


async def test_a_bucket_that_cannot_be_read_is_said(database: str, tmp_path: Path) -> None:
    """What the bucket holds is not guessed."""
    place = await opened(database)
    async with following(place) as inspector:
        task = await inspector.task("9-user")
        assert task is not None
        os.rename(database, tmp_path / "elsewhere")  # noqa: PTH104 - as its owner does

        said = await reasons(inspector, place, None, task, NOW)

    assert said[0].startswith("whether there is a token is not known: ")


async def test_a_pause_is_said_before_anything_else(database: str) -> None:
    """What stops the whole queue comes first, by its name; then what would keep a job after it."""
    settle(database, *NO_TOKEN, ("mailQueueEnabled", "0"))

    said = await why(await opened(database), "9-user")

    assert said[0] == "the queue is paused: mailQueueEnabled is 0"
    assert said[1].startswith("no token until ")


@pytest.mark.parametrize(
    ("id", "first"), [("16-user", "3 other tasks first"), ("11-user", "1 other task first")]
)
async def test_those_before_it_are_those_that_came_due_earlier(
    database: str, id: str, first: str
) -> None:
    """Where a store takes by due times, ids decide nothing."""
    assert (await why(await opened(database), id))[0] == first


async def test_nothing_is_told_where_there_is_no_order(database: str) -> None:
    """How many come before is left out where nobody could say."""
    place = (await opened(database))._replace(takes_by="")

    assert await why(place, "16-user") == ("due for 20 s, but not seen by any worker",)


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


@pytest.mark.parametrize(
    ("lease", "said"),
    [
        (LEASED.lease, ("Claimed by worker \ufffd7 since ", " lapses at ", " (in ")),
        (Lease("", NOW - 90.0, NOW - 30.0), ("Claimed since ", "lapsed meanwhile", " lapsed at ")),
        (Lease("", 0.0, 0.0), ("Claimed, lapsed meanwhile.", "lease")),
        (Lease("7", NOW - 90.0), ("Being worked on since ",)),
    ],
)
def test_the_summary_tells_of_the_lease(lease: Lease, said: tuple[str, ...]) -> None:
    """Whose claim it is, and until when; only one that ends with its owner is being worked on."""
    scene = Scene(replace(LEASED, lease=lease), {State.ACTIVE: "inflight"})
    lines = ["".join(text for text, _ in line) for line in summary(scene, NOW, 100)]
    text = "\n".join(lines)

    assert [words for words in said if words not in text] == []
    assert ("Being worked on" in text) is (lease.until is None)
    assert any(line.split()[:1] == ["lease"] for line in lines) is (lease.until is not None)


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

    words = show_command(place.command, dead, place.has_dlq)

    assert words[3:] == ("queue", "list", "--json", "--filter", "id=9-user")
    assert main(words[1:]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "parked"
    assert show_command(place.command, dead)[3:] == ("queue", "dlq", "show", "9-user")


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("which", "tab", "offered", "never"),
    [
        ("spool", "inflight", ("H hold", "L release"), ("K kill", "X purge")),
        ("spool", "hold", ("X purge", "L release"), ("K kill", "H hold")),
        ("database", "sending", ("H hold", "L release", "K kill"), ("X purge",)),
        ("database", "held", ("X purge", "L release"), ("K kill", "H hold")),
        ("database", "pending", ("X purge", "H hold", "O promote"), ("L release", "K kill")),
    ],
)
async def test_a_tab_hints_at_what_it_allows(
    spool: str,
    database: str,
    *,
    which: str,
    tab: str,
    offered: tuple[str, ...],
    never: tuple[str, ...],
    width: int,
) -> None:
    """However narrow the screen, the verbs of a tab have their place before what is the same in
    every tab; and one that leads nowhere in this store is not among them.
    """
    place = await opened({"spool": spool, "database": database}[which])
    console = a_console(place, clock=time.time)
    async with console.run_test(size=(width, 24)) as pilot:

        def page() -> str:
            return text_of(console.screen)

        await until(pilot, lambda: console.lives[0].inspector.latest.complete, page)
        words = list(console.lives[0].inspector.states.values())
        await pilot.press(str(words.index(tab) + 1))

        def hints() -> str:
            return "\n".join(page().splitlines()[-2:])

        await until(pilot, lambda: all(hint in hints() for hint in offered), page)
        assert not [hint for hint in never if hint in hints()]
        assert "? help  q back" in hints()


@pytest.mark.parametrize("pane", [keys.LIST, keys.OVERVIEW, keys.LOCKS])
async def test_no_lock_is_offered_to_be_freed(database: str, pane: str) -> None:
    """No hint speaks of it, and the key that is pressed all the same says why."""
    console = a_console(await opened(database), clock=time.time, first=pane)
    async with console.run_test(size=(160, 40)) as pilot:

        def page() -> str:
            return text_of(console.screen)

        await until(pilot, lambda: all(live.looked for live in console.lives), page)
        await until(pilot, lambda: console.screen.query("#hints") and "help" in page(), page)
        assert "unlock" not in page()

        await pilot.press("U")
        await until(pilot, lambda: LEASES in page(), page)


async def test_the_board_of_locks_says_that_none_is_needed(database: str, root: Path) -> None:
    """A place without a lock is a line as those with one, and is told of in full below."""
    console = a_console(
        await opened(database), disk_place(root, clock=time.time), clock=time.time, first=keys.LOCKS
    )
    async with console.run_test(size=(120, 40)) as pilot:

        def page() -> str:
            screen = console.screen
            if isinstance(screen, LocksScreen):
                screen.paint()
            return text_of(screen)

        await until(pilot, lambda: "FREE" in page(), page, 0.05)
        rows = [line for line in page().splitlines() if LEASES in line]
        assert len(rows) == 2
        assert rows[0].split()[:3] == [">", "a.db", "-"]
        assert rows[1].strip() == f"lock: {LEASES}"
        assert "unlock" in page()


SLEEPER = (sys.executable, "-c", "import signal; signal.pause()")
"""In the place of a worker: what the console knows of it is that it runs."""


async def test_the_board_of_locks_knows_our_own_worker(database: str) -> None:
    """A worker that the console started is told of where there is no lock that would do so: by its
    number, and what ends it; once it has ended, it is told of no more.
    """
    place = (await opened(database))._replace(work=SLEEPER)
    console = a_console(place, clock=time.time, first=keys.LOCKS)
    async with console.run_test(size=(120, 40)) as pilot:

        def page() -> str:
            screen = console.screen
            if isinstance(screen, LocksScreen):
                screen.paint()
            return text_of(screen)

        worker = console.lives[0].worker
        await asyncio.to_thread(worker.start)
        pid = worker.pid
        await until(pilot, lambda: f"PID {pid}" in page(), page, 0.05)
        (row,) = [line for line in page().splitlines() if line.split()[1:2] == ["a.db"]]
        assert row.split()[2:5] == ["-", "PID", str(pid)]
        assert row.endswith("its worker was started here")
        assert f"worker: PID {pid}, started by this console; W on its list stops it" in page()

        await asyncio.to_thread(worker.finish)
        await until(pilot, lambda: "PID" not in page() and LEASES in page(), page, 0.05)


async def test_our_own_worker_is_shown_wherever_a_lock_would_tell_of_it(database: str) -> None:
    """In the line of the list, beside the overview's queues, and in what it says of the place."""
    place = (await opened(database))._replace(work=SLEEPER)
    console = a_console(place, clock=time.time, start_armed=True, first=keys.OVERVIEW)
    async with console.run_test(size=(120, 40)) as pilot:
        worker = console.lives[0].worker

        def page() -> str:
            return text_of(console.screen)

        await until(pilot, lambda: "has none" in page(), page)
        await pilot.press("2")
        await until(pilot, lambda: "help" in page() and LEASES in page(), page)
        await pilot.press("W")
        await until(pilot, lambda: "y to start a worker" in page(), page)
        await pilot.press("y")
        await until(pilot, lambda: f"{LEASES}; worker PID {worker.pid}, W stops it" in page(), page)
        pid = worker.pid
        await pilot.press("q")
        await until(pilot, lambda: f"has none; PID {pid} is at work" in page(), page)
        await until(pilot, lambda: f"; worker PID {pid}, started here" in page(), page)

        await pilot.press("2")
        await until(pilot, lambda: LEASES in page(), page)
        await pilot.press("W")
        await until(pilot, lambda: "y to stop worker PID" in page(), page)
        await pilot.press("y")
        await until(pilot, lambda: worker.pid is None, page)
        await until(pilot, lambda: f"{LEASES};" not in page(), page)


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
