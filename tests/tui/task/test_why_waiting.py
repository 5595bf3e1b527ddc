"""Why a task is not running: each answer from a spool, and the next as it changes."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pytest

from engine.config.queue_config import load_config
from engine.formats.kannader.store import KannaderStore
from engine.formats.kannader.store import make_spool as make_empty_spool
from engine.formats.known_formats import setup_for
from engine.formats.nftban.queue_folders import handles_kind
from engine.index.schema import Query
from engine.live.inspector import Inspector
from engine.locks import lock_file, queue_lock
from engine.locks.token_buckets import TokenBuckets
from engine.model import LockEvidence, State, Task
from engine.monitor import lock_diagnosis
from engine.monitor.alerts import AlertKind, find_alerts
from engine.monitor.lock_diagnosis import TaskLogSummary
from engine.places.place import Place
from engine.policy import DAY_SECONDS, Rate
from engine.store import Unavailable
from engine.waiting_reasons import join_reasons
from tests.console_places import NOW, a_console, a_task, disk_place, make_spool, put_file, until
from tests.open_store import open_store
from tests.recorder_samples import NOTHING_KNOWN
from tests.tui.workers_with_lock import Child, children
from tui.cli.setup.places import open_places
from tui.locks.examination import LockExaminer
from tui.task.why_waiting import list_outlook

HOLDER = """
import sys
from engine.locks import queue_lock as locks
lock = locks.acquire_lock(sys.argv[1], 1200.0)
print("held", flush=True)
sys.stdin.readline()
lock.release()
print("released", flush=True)
"""
"""A worker that has the lock, until it gets a line."""

off = asyncio.to_thread
Ask = Callable[..., Awaitable[str]]


@asynccontextmanager
async def following(place: Place) -> AsyncIterator[Inspector]:
    """An inspector of a place."""
    inspector = Inspector(place.open, clock=lambda: NOW, limit=place.max_attempts)
    await inspector.start()
    try:
        yield inspector
    finally:
        await inspector.close()


@asynccontextmanager
async def asking(place: Place) -> AsyncIterator[Ask]:
    """Answers why a task waits, in whichever state it is by now."""

    async def why(task: Task, now: float = NOW, lock: LockEvidence | None = None) -> str:
        await inspector.scan_now()
        stored_task = await inspector.queries.task(task.id)
        assert stored_task is not None
        outlook = await list_outlook(inspector, place, lock, stored_task, now)
        return join_reasons(outlook.reasons(stored_task, now))

    # On a busy machine a count is costly, and would be answered again from the cache.
    with patch("engine.live.queries.ANSWER_COST_FACTOR", 0):
        async with following(place) as inspector:
            yield why


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A spool without a task; a worker ran 20s ago."""
    make_spool(tmp_path, [])
    return tmp_path


@pytest.fixture
def hold(root: Path) -> Iterator[Callable[[], Child]]:
    """Starts a process that takes the lock; it is killed when the test is over."""
    with children() as start:
        yield lambda: start(HOLDER, str(root / "run" / "queue.lock"))


async def lock_of(root: Path, later: float = 0.0) -> LockEvidence:
    """The evidence of the spool's lock so many seconds from now."""
    path, clock = str(root / "run" / "queue.lock"), lambda: time.time() + later
    return await off(
        queue_lock.examine_lock, path, 1200.0, clock, lambda: lock_file.boot_seconds() + later
    )


def put(root: Path, number: int, state: State = State.PENDING, **fields: object) -> Task:
    """A task in the spool; older ones have lower numbers."""
    task = a_task(4 * number, state, **fields)
    put_file(root, task)
    return task


SENDMAIL = "mail: {method: sendmail, programs: {sendmail: /bin/true}}\n"
UNSEEN = "due, no worker running"
RAN = "last run 20s ago"


async def test_a_due_task_waits_for_a_worker(root: Path) -> None:
    """A due task without a worker: for how long, and when a worker was there last. Older tasks go
    first, also when it is due later, but when no worker ran for a quarter of an hour, that is said,
    too."""
    task, younger, later = put(root, 1, due=NOW - 2820), put(root, 2), put(root, 4, due=NOW + 240)
    put(root, 3, due=NOW + 120)
    async with asking(disk_place(root)) as why:
        free, text = await lock_of(root), "due for 47m, no worker running"
        assert await why(task, lock=free) == f"{text}: lock is free, {RAN}"
        assert await why(younger, lock=free) == "1 older geoban_apply task first"
        delayed = "delayed until 09:46:08Z (in 4m)"
        assert await why(later, lock=free) == f"{delayed}; then 3 older tasks first"
        assert await why(younger, NOW + 2820, lock=free) == (
            f"1 older geoban_apply task first; {UNSEEN}: lock is free, last run 47m ago"
        )
        (root / "metrics" / "queue.prom").unlink()
        assert await why(task, lock=free) == f"{text}: lock is free"


async def test_tasks_ahead_are_those_that_are_claimed_first(root: Path) -> None:
    """Of tasks of one second those with a smaller stamp or token, of any kind; of others the older
    ones, in any order of ids."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(NOW - 60))
    ends = ("-aaa-ffffaaaa", "-zzz-0001aaaa", "-mmm-00020000", "5-bbb-00000000")
    names = [f"{stamp}{end}" for end in ends]
    tasks = [put(root, 1, id=n, kind=n.split("-")[1], created=NOW - 60, due=0.0) for n in names]
    tasks.append(put(root, 1, id="20991231T235959Z-old-00000000", kind="old", created=NOW - 99))
    async with asking(disk_place(root)) as why:
        counts = {task.id: (await why(task)).partition(" ")[0] for task in tasks}

    def claim() -> list[str]:
        with closing(open_store(str(root), lambda: NOW)) as store:
            return [task.id for task in store.take(NOW, "w", 9)]

    claimed = await off(claim)
    assert [name.split("-")[1] for name in claimed] == ["old", "zzz", "mmm", "aaa", "bbb"]
    assert [counts[name] for name in claimed[1:]] == ["1", "2", "3", "4"]


async def test_the_configuration_says_what_a_kind_waits_for(root: Path) -> None:
    """A kind of the contract has no handler until the configuration names one; mail needs a way to
    be sent by, unless a program sends it."""
    for kind, text, expected in (
        ("feeds_sync", "queue: {syslog: ''}\n", "no handler configured for feeds_sync"),
        ("feeds_sync", "handlers: {feeds_sync: {command: [/bin/true]}}\n", f"{UNSEEN}, {RAN}"),
        ("mail_send", "mail: {method: none}\n", "no mail transport is set up:"),
        ("mail_send", SENDMAIL, f"{UNSEEN}, {RAN}"),
        ("mail_send", "handlers: {mail_send: {command: [/bin/true]}}\n", f"{UNSEEN}, {RAN}"),
    ):
        task, path = put(root, 1, kind=kind), root / "spooldeck.yaml"
        path.write_text(text)
        config = await off(load_config, str(path), {})
        setup = await off(setup_for, config, str(root), {})
        shut = await off(lambda: setup.mail.handler().why_closed)  # noqa: B023
        place = disk_place(root)._replace(has_handler=partial(handles_kind, setup))
        async with asking(place._replace(claim_obstacle=shut)) as why:
            reasons = await why(task)
        assert reasons == expected or (expected.endswith(":") and reasons.startswith(expected))


async def test_an_empty_bucket_keeps_its_kind(root: Path) -> None:
    """An empty bucket keeps its kind, and says when the next token comes; others go on."""
    mail, other = put(root, 1, kind="mail_send"), put(root, 2, kind="report")
    now, tokens = [NOW], root / "metrics" / "tokens"
    buckets = TokenBuckets(str(tokens), {"mail_send": Rate(60, 1)}, lambda: now[0], str(root))
    assert await off(buckets.spend, "mail_send")
    async with asking(disk_place(root)._replace(token_at=buckets.token_at)) as why:
        assert await why(mail) == "no token until 09:43:08Z (in 1m)"
        assert (await why(other)).startswith("1 older mail_send task first")
        async with asking(disk_place(root)._replace(tokens=buckets.read_states)) as why_of_limits:
            assert (await why_of_limits(other)).startswith(UNSEEN)  # the mail has no token
        now[0] += 60
        assert (await why(mail, now[0])).startswith(UNSEEN)
        tokens.unlink()
        tokens.mkdir()
        assert "rate limit unknown" in await why(mail)


async def test_the_holder_of_the_lock_is_named(root: Path, hold: Callable[[], Child]) -> None:
    """Held by a process, stuck when that gives no heartbeat, stale when it has ended; not named any
    more once it has released the lock. A task in work is being processed, stuck, or an orphan."""
    task, working = put(root, 1), put(root, 2)
    released = await off(hold)
    queue, lock_file = root / "queue", root / "run" / "queue.lock"
    name = f"{working.id}.task"
    (queue / "pending" / name).rename(queue / "work" / name)
    async with asking(disk_place(root)) as why:

        async def answers(waiting: str, at_work: str, later: float = 0.0) -> None:
            lock, now = await lock_of(root, later), time.time() + later
            assert re.fullmatch(waiting, await why(task, NOW, lock))
            assert re.fullmatch(at_work, await why(working, now, lock))

        sign, pid = r"last heartbeat [0-9]+s ago", released.pid
        held = f"next in line; lock held by PID {pid}, {sign}"
        await answers(held, f"being processed by PID {pid} for [0-9]+s")
        assert released.communicate("\n")[0] == "released\n"
        again = "; the next worker counts a failed attempt and requeues it"
        orphaned = r"claimed [0-9]+s ago" + again
        await answers(f"{UNSEEN}: lock is free, {RAN}", f"orphaned: lock is free, {orphaned}")

        holder = await off(hold)
        stuck = f"lock is stuck: no heartbeat from PID {holder.pid} for 47m"
        await answers(stuck, f"{stuck}, claimed 4.*", later=2820)
        holder.kill()
        holder.communicate()
        gone = f"PID {holder.pid} is gone"
        stale = f"lock is stale: {gone}; the next worker takes it over"
        await answers(stale, f"orphaned: {gone}, {orphaned}")

        lock_file.unlink()
        lock_file.mkdir()
        unknown = "lock state unknown: .*expected a regular file.*"
        await answers(unknown, unknown)


@pytest.fixture
def mails(tmp_path: Path) -> Path:
    """A Kannader spool with two mails that came due two days ago; no worker was ever there."""
    spool = tmp_path / "spool"
    make_empty_spool(str(spool))
    with closing(KannaderStore(str(spool), lambda: NOW - 2 * DAY_SECONDS)) as store:
        for name in ("ann", "bob"):
            store.enqueue("me@here.example", [f"{name}@one.example"], [b"Hi\r\n"])
    for path in spool.rglob("*"):
        os.utime(path, (NOW - 2 * DAY_SECONDS,) * 2, follow_symlinks=False)
    return spool


def place_of(spool: Path, settings: str) -> Place:
    """A place as the console gets it with these settings."""
    path = spool.with_suffix(".yaml")
    path.write_text(settings)
    config = load_config(str(path), {})
    (place,) = open_places(setup_for(config, "", {}), [str(spool)])
    return place


async def test_mail_without_a_worker_says_what_is_missing(mails: Path) -> None:
    """Where another program's mail is not ours to send, the reason names the setting that a worker
    of ours lacks, and that the other program may send it. With it, while there is an alarm because
    nothing runs, each due task says so, not the first alone; the alarm is that of the overview."""
    place = await off(place_of, mails, "")
    async with asking(place) as why, following(place) as inspector:
        await inspector.scan_now()
        window = await inspector.queries.window(Query(State.PENDING), 0, 10)
        assert await why(window.tasks[0]) == (
            "spooldeck's worker does nothing: no server to send to is configured: "
            "stores.kannader.host is not set; the format's own program may"
        )
    place = await off(place_of, mails, "stores: {kannader: {host: relay.example.org}}\n")
    async with following(place) as inspector:
        await inspector.scan_now()
        waiting = await inspector.tallies.summarize_backlog(NOW)
        inputs = NOTHING_KNOWN._replace(due=waiting.due, oldest_due=waiting.oldest_due)
        raised = find_alerts(inputs, NOW, place.alerts)
        assert [alert.kind for alert in raised] == [AlertKind.IDLE]
        assert len(window.tasks) == 2
        for task in window.tasks:
            outlook = await list_outlook(inspector, place, None, task, NOW, alerts=raised)
            assert list(outlook.reasons(task, NOW)) == ["due for 2d00h, no worker running"]


async def test_a_lock_is_examined_without_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long the tasks behind it would take is not said then, and all else is."""
    make_spool(tmp_path, [a_task(1)])
    console = a_console(disk_place(tmp_path))

    async def refuse(*asked: object) -> None:
        raise Unavailable("the index cannot be read")

    async with console.run_test() as pilot:
        session = console.sessions[0]
        await until(pilot, lambda: session.inspector.latest.is_complete)
        monkeypatch.setattr(session.inspector.tallies, "count_due", refuse)
        report = await LockExaminer(session).examine()
    assert (report.is_examined, report.drain) == (True, "")


async def test_missing_logs_are_named(tmp_path: Path) -> None:
    """Whether a task in work was done already is not known where logs are missing: they are named
    when a lock is examined."""
    make_spool(tmp_path, [a_task(1, State.ACTIVE)])
    logs = tmp_path / "away" / "queue.log", tmp_path / "away" / "mail.log"
    console = a_console(disk_place(tmp_path)._replace(logs=tuple(map(str, logs))))

    async def told() -> TaskLogSummary:
        exam = LockExaminer(console.sessions[0])
        await exam.examine()
        assert await exam.read_logs()
        (work,) = (await exam.examine()).active_tasks
        return work.log_summary

    async with console.run_test() as pilot:
        await until(pilot, lambda: console.sessions[0].inspector.latest.is_complete)
        neither = await told()
        logs[0].parent.mkdir()
        logs[0].write_text("[2026-11-20 09:42:08] [INFO] nothing of it\n")
        one = await told()
    assert lock_diagnosis.describe_task_log(neither, NOW) == (
        "? queue.log and mail.log do not exist: unknown whether a repeat would be a duplicate"
    )
    assert one.unknown == "mail.log does not exist"
