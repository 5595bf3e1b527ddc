"""Why is it not running? Each answer from a spool that deserves it, and the next as it changes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from engine import lockfile, locks, triage, verbs
from engine.alerts import Sight, What, alerts
from engine.config import load, queue_for
from engine.index import Query
from engine.inspector import Inspector
from engine.limits import Buckets
from engine.model import LockEvidence, State, Task
from engine.policy import DAY, Rate
from engine.stores import kannader, open_store
from engine.stores.kannader import KannaderStore
from engine.triage import Told
from tests.tui.holders import Child, children
from tests.tui.spools import (
    FOLDERS,
    NOW,
    a_console,
    a_task,
    disk_place,
    make_spool,
    put_file,
    until,
)
from tui.cli.console import places_of
from tui.cli.sites import setup_for
from tui.cli.wiring import Setup
from tui.exam import Exam
from tui.live import Live
from tui.place import Place
from tui.why import reasons, why_waiting

HOLDER = """
import sys
from engine import locks
lock = locks.acquire(sys.argv[1], 1200.0)
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
"""
"""A worker that has the lock, until it is told to let go."""


class Asked:
    """Asks of a spool why a task waits, after looking at it anew."""

    def __init__(self, inspector: Inspector, place: Place) -> None:
        self.inspector, self.place = inspector, place

    async def why(self, task: Task, now: float = NOW, lock: LockEvidence | None = None) -> str:
        """What is to be said of this task, wherever it stands by now."""
        await self.inspector.refresh()
        seen = await self.inspector.task(task.id)
        assert seen is not None
        return await why_waiting(self.inspector, self.place, lock, seen, now)


@asynccontextmanager
async def asking(place: Place) -> AsyncIterator[Asked]:
    """Somebody who follows a place."""
    inspector = Inspector(place.open, clock=lambda: NOW)
    await inspector.start()
    try:
        yield Asked(inspector, place)
    finally:
        await inspector.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A spool without a task; a worker ran 20 s ago."""
    make_spool(tmp_path, [])
    return tmp_path


@pytest.fixture
def hold(root: Path) -> Iterator[Callable[[], Child]]:
    """Starts a process that takes the lock; it is killed when the test is over."""
    with children() as start:
        yield lambda: start(HOLDER, str(root / "run" / "queue.lock"))


async def lock_of(root: Path, later: float = 0.0) -> LockEvidence:
    """What is to be said of the spool's lock so many seconds from now."""
    return await asyncio.to_thread(
        locks.examine,
        str(root / "run" / "queue.lock"),
        1200.0,
        lambda: time.time() + later,
        lambda: lockfile.uptime() + later,
    )


def put(root: Path, number: int, state: State = State.PENDING, **fields: object) -> Task:
    """A task in the spool; older ones have lower numbers."""
    task = a_task(4 * number, state, **fields)
    put_file(root, task)
    return task


def move(root: Path, task: Task, state: State) -> None:
    """Some program moves a task's file."""
    name = f"{task.id}.task"
    os.rename(  # noqa: PTH104 - as the contract's program does
        root / "queue" / FOLDERS[task.state] / name, root / "queue" / FOLDERS[state] / name
    )


def set_up(root: Path) -> Setup:
    """The spool as its configuration has it."""
    config = load(str(root / "spooldeck.yaml"), {})
    return Setup(config, queue_for(config, str(root), {}))


def swapped(root: Path, task: Task, change: Callable[[Task, float], Task | None]) -> None:
    """An operator does something to a task, as the store has it."""
    with closing(open_store(str(root), lambda: NOW)) as store:
        seen = next(t for t in store.look() if isinstance(t, Task) and t.id == task.id)
        store.swap(seen, change(seen, NOW))


async def test_one_that_is_due_waits_for_a_worker(root: Path) -> None:
    """Due, and nobody there: it is said for how long, and when somebody was there last."""
    task = put(root, 1, due=NOW - 2820)
    place = disk_place(root)

    async with asking(place) as ask:
        free = await lock_of(root)
        assert await ask.why(task, lock=free) == (
            "due for 47 min, but not seen by any worker: the lock is free, last run 20 s ago"
        )
        (root / "metrics" / "queue.prom").unlink()
        assert await ask.why(task, lock=free) == (
            "due for 47 min, but not seen by any worker: the lock is free"
        )


async def test_backoff_is_told_and_what_comes_after_it(root: Path) -> None:
    """A task that waits to be tried again, of a kind that nobody handles, is told both."""
    task = put(root, 1, due=NOW + 240)
    place = disk_place(root)._replace(handled=lambda kind: False)

    async with asking(place) as ask:
        assert await ask.why(task) == (
            f"backoff until 09:46:08Z (in 4 min); no handler configured for {task.kind}"
        )
        assert await ask.why(task, NOW + 240) == f"no handler configured for {task.kind}"

        put_file(root, a_task(4, due=NOW + 7980))
        assert await ask.why(task) == (
            f"backoff until 11:55:08Z (in 2 h 13 min); no handler configured for {task.kind}"
        )


async def test_the_configuration_says_what_a_kind_waits_for(root: Path) -> None:
    """A kind of the contract has no handler until the configuration names one; mail needs a way to
    be sent by, unless a program sends it.
    """
    run = "due, but not seen by any worker, last run 20 s ago"
    for kind, text, wanted in (
        ("feeds_sync", "queue: {syslog: ''}\n", "no handler configured for feeds_sync"),
        ("feeds_sync", "handlers: {feeds_sync: {command: [/bin/true]}}\n", run),
        ("mail_send", "mail: {method: none}\n", "no mail transport is set up:"),
        ("mail_send", "mail: {method: sendmail, programs: {sendmail: /bin/true}}\n", run),
        ("mail_send", "handlers: {mail_send: {command: [/bin/true]}}\n", run),
    ):
        task = put(root, 1, kind=kind)
        (root / "spooldeck.yaml").write_text(text)
        setup = await asyncio.to_thread(set_up, root)
        place = disk_place(root)._replace(handled=setup.handled, shut=setup.mailing().shut)
        async with asking(place) as ask:
            said = await ask.why(task)
        assert said.startswith(wanted) if wanted.endswith(":") else said == wanted


async def test_no_token_is_told_until_there_is_one(root: Path) -> None:
    """An empty bucket keeps its kind, and says when the next token comes; others go on."""
    mail, other = put(root, 1, kind="mail_send"), put(root, 2, kind="report")
    now = [NOW]
    buckets = Buckets(
        str(root / "metrics" / "tokens"), {"mail_send": Rate(60, 1)}, lambda: now[0], str(root)
    )
    assert await asyncio.to_thread(buckets.spend, "mail_send")
    place = disk_place(root)._replace(token_at=buckets.token_at)

    async with asking(place) as ask:
        assert await ask.why(mail) == "no token until 09:43:08Z (in 1 min)"
        assert (await ask.why(other)).startswith("1 older task first")

        now[0] += 60
        assert (await ask.why(mail, now[0])).startswith("due, but not seen by any worker")

        (root / "metrics" / "tokens").unlink()
        (root / "metrics" / "tokens").mkdir()
        assert "whether there is a token is not known" in await ask.why(mail)


async def test_the_holder_of_the_lock_is_named(root: Path, hold: Callable[[], Child]) -> None:
    """Held by a process, stuck when that gives no heartbeat, stale when it has ended; not named any
    more once it has released the lock.
    """
    task = put(root, 1)
    released = await asyncio.to_thread(hold)

    async with asking(disk_place(root)) as ask:
        said = await ask.why(task, lock=await lock_of(root))
        sign = r"who gave a sign of life [0-9]+ s ago"
        assert re.fullmatch(f"next in line; the lock is held by PID {released.pid}, {sign}", said)
        assert released.communicate("\n")[0] == "released\n"
        assert await ask.why(task, lock=await lock_of(root)) == (
            "due, but not seen by any worker: the lock is free, last run 20 s ago"
        )

        holder = await asyncio.to_thread(hold)
        said = await ask.why(task, lock=await lock_of(root, later=2820))
        assert said == f"the lock is stuck: PID {holder.pid} gave no sign of life for 47 min"
        holder.kill()
        holder.communicate()
        said = await ask.why(task, lock=await lock_of(root))
        assert said == f"the lock is stale: PID {holder.pid} is gone; the next worker takes it over"

        (root / "run" / "queue.lock").unlink()
        (root / "run" / "queue.lock").mkdir()
        said = await ask.why(task, lock=await lock_of(root))
        assert said.startswith("the lock cannot be judged: ")
        assert "expected a regular file" in said


async def test_those_before_it_are_counted(root: Path, hold: Callable[[], Child]) -> None:
    """Every due task of a lower id comes first; those that wait or are of a higher id do not."""
    older = [put(root, number) for number in range(700)]
    task = put(root, 800)
    put(root, 801)
    put(root, 750, due=NOW + 60)
    holder = await asyncio.to_thread(hold)

    async with asking(disk_place(root)) as ask:
        said = await ask.why(task, lock=await lock_of(root))
        assert said.startswith(f"700 older tasks first; the lock is held by PID {holder.pid}, who")

        for gone in older[1:]:
            move(root, gone, State.DEAD)
        assert (await ask.why(task, lock=await lock_of(root))).startswith(
            "1 older task first; the lock"
        )

        move(root, older[0], State.DEAD)
        assert (await ask.why(task, lock=await lock_of(root))).startswith("next in line; the lock")
        assert (await ask.why(task, NOW + 60, await lock_of(root))).startswith(
            "1 older task first; the"
        )


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """A Kannader spool with two mails that came due two days ago; nobody was ever at work there."""
    spool = tmp_path / "spool"
    kannader.make_spool(str(spool))
    with closing(KannaderStore(str(spool), lambda: NOW - 2 * DAY)) as store:
        for name in ("ann", "bob"):
            store.enqueue("me@here.example", [f"{name}@one.example"], [b"Hi\r\n"])
    for path in spool.rglob("*"):
        os.utime(path, (NOW - 2 * DAY,) * 2, follow_symlinks=False)
    return spool


def place_of(spool: Path, settings: str) -> Place:
    """What the console is told of a place, as it is configured."""
    path = spool.with_suffix(".yaml")
    path.write_text(settings)
    (place,) = places_of(setup_for(load(str(path), {}), "", {}), [str(spool)])
    return place


SENDS = "stores: {kannader: {host: relay.example.org}}\n"


async def test_where_nothing_runs_no_task_waits_for_another(mails: Path) -> None:
    """While there is an alarm because nothing runs, each task that is due says so, not the first
    alone; the alarm is that of the overview, in any format.
    """
    place = await asyncio.to_thread(place_of, mails, SENDS)
    async with asking(place) as ask:
        await ask.inspector.refresh()
        waiting = await ask.inspector.standing(NOW)
        sight = Sight(place.name, due=waiting.due, oldest_due=waiting.oldest_due)
        found = alerts(sight, NOW, place.alerts)
        assert [alert.what for alert in found] == [What.IDLE]
        window = await ask.inspector.window(Query(State.PENDING), 0, 10)

        assert len(window.tasks) == 2
        for task in window.tasks:
            said = await reasons(ask.inspector, place, None, task, NOW, found)
            assert list(said) == ["due for 2 d, but not seen by any worker"]


async def test_a_mail_that_no_worker_of_ours_can_send_says_what_is_missing(mails: Path) -> None:
    """No handler is missing where another program's mail is not ours to send: it is told which
    setting a worker of ours lacks, and that the other program may send it; with it, none lacks.
    """
    said = []
    for settings in ("", SENDS):
        place = await asyncio.to_thread(place_of, mails, settings)
        async with asking(place) as ask:
            await ask.inspector.refresh()
            window = await ask.inspector.window(Query(State.PENDING), 0, 1)
            said.append(await ask.why(window.tasks[0]))

    assert said == [
        "our worker does nothing: no server to send to is configured: stores.kannader.host is not "
        "set; its own program may, where that is at work",
        "due for 2 d, but not seen by any worker",
    ]


async def test_one_in_work_is_somebodys_or_nobodys(root: Path, hold: Callable[[], Child]) -> None:
    """While its worker lives, it is being worked on; once that is gone, it is an orphan."""
    task = put(root, 1)
    holder = await asyncio.to_thread(hold)
    move(root, task, State.ACTIVE)
    now = time.time()

    async with asking(disk_place(root)) as ask:
        said = await ask.why(task, now, await lock_of(root))
        assert re.fullmatch(f"being worked on by PID {holder.pid} for [0-9]+ s", said)

        said = await ask.why(task, now + 2820, await lock_of(root, later=2820))
        stuck = f"the lock is stuck: PID {holder.pid} gave no sign of life for 47 min"
        assert said.startswith(f"{stuck}, taken 4")

        holder.kill()
        holder.communicate()
        said = await ask.why(task, now + 60, await lock_of(root))
        assert re.fullmatch(
            f"nobody works on it any more: PID {holder.pid} is gone, taken (59 s|1 min) ago; "
            "the next worker counts a failed attempt and gives it back",
            said,
        )

        (root / "run" / "queue.lock").unlink()
        assert "nobody has the lock" in await ask.why(task, now, await lock_of(root))


async def test_one_that_died_says_how_and_what_brings_it_back(root: Path) -> None:
    """Given up on: after how many attempts, how long ago, and that only a retry runs it again."""
    task = put(root, 1, State.DEAD, attempts=3, extra={"dead_since": str(int(NOW - 7980))})
    place = disk_place(root)

    async with asking(place) as ask:
        assert await ask.why(task) == (
            "given up on after 3 attempts, 2 h 13 min ago (max_retries_exceeded); "
            "it runs again only if retried, then as if new"
        )
        assert (await ask.why(task, NOW + 86400)).startswith(
            "given up on after 3 attempts, 1 d 2 h"
        )

        await asyncio.to_thread(swapped, root, task, verbs.retry)
        assert await ask.why(task) == "due, but not seen by any worker, last run 20 s ago"


async def test_one_put_away_says_so(root: Path) -> None:
    """Held until released, with what would keep it then; purged, to be had back."""
    task = put(root, 1, due=NOW + 60)
    place = disk_place(root)

    async with asking(place) as ask:
        await asyncio.to_thread(swapped, root, task, verbs.hold)
        assert await ask.why(task) == (
            "held by an operator until released; backoff until 09:43:08Z (in 1 min)"
        )

        await asyncio.to_thread(swapped, root, task, verbs.purge)
        assert await ask.why(task) == (
            "purged by an operator: no worker sees it, and it can still be had back"
        )


async def test_a_worker_that_stays_away_is_missed(root: Path) -> None:
    """Older tasks go first, but when nothing has run for a quarter of an hour, that is told too."""
    put(root, 1)
    task = put(root, 2)
    place = disk_place(root)

    async with asking(place) as ask:
        assert await ask.why(task, lock=await lock_of(root)) == "1 older task first"
        assert await ask.why(task, NOW + 2820, lock=await lock_of(root)) == (
            "1 older task first; "
            "due, but not seen by any worker: the lock is free, last run 47 min ago"
        )


# What is in work when a lock is examined


async def told_of(live: Live) -> Told:
    """What the logs say of the one task in work."""
    exam = Exam(live)
    await exam.look()
    assert await exam.read_logs()
    (work,) = (await exam.look()).works
    return work.told


async def test_logs_that_are_not_there_are_named(tmp_path: Path) -> None:
    """Whether a task in work was done already is not known where logs are missing: those are told
    by their names.
    """
    make_spool(tmp_path, [a_task(1, State.ACTIVE)])
    logs = tmp_path / "away" / "queue.log", tmp_path / "away" / "mail.log"
    console = a_console(disk_place(tmp_path)._replace(logs=tuple(map(str, logs))))
    async with console.run_test() as pilot:
        live = console.lives[0]
        await until(pilot, lambda: live.inspector.latest.complete)
        neither = await told_of(live)
        logs[0].parent.mkdir()
        logs[0].write_text("[2026-11-20 09:42:08] [INFO] nothing of it\n")
        one = await told_of(live)

    assert triage.on_record(neither, NOW) == (
        "? neither queue.log nor mail.log is there: whether a repeat would be a duplicate is not "
        "known"
    )
    assert one.unknown == "mail.log is not there"
