"""One fixed spool on disk with something for every screen to show: for goldens and screenshots."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from engine.destinations.destination import Destination
from engine.formats.base.memory import MemoryStore
from engine.formats.postfix.lines import STATES, WORDS
from engine.locks.process_stats import OpenFiles, ProcessStats
from engine.locks.token_buckets import BucketState
from engine.logs.log_line import format_log_line
from engine.model import Missing, Problem, State, Task
from engine.monitor.prometheus import QueueGauges, render_queue
from engine.places.place import Place, PlaceDestinations, PlaceMail, WholeQueueFigures
from engine.store import Store
from engine.system.host import HostFigures
from tests.console_places import NOW, a_memory, a_task, disk_place, free, put_file, recover_command
from tests.journaled_places import make_past
from tests.mail_transports import PlaceTransports
from tests.open_store import open_store
from tests.zgb_console_place import ZgbConsolePlace

NAME = "/var/lib/nftban"
"""What the spool is called, also where the path of its folder is drawn."""

SORTS = (
    ("feeds_sync", "Feed enabled: spamhaus {n}", ""),
    ("geoban_apply", "Apply country list {n}", ""),
    ("mail_send", "Spooled mail to admin {n}", ""),
    ("report", "Daily report {n}", ""),
    ("feeds_sync", "Feed enabled: dshield {n}", "nft: set feed_{n} busy"),
    ("mail_send", "Spooled mail to abuse desk {n}", "connect_timeout mx{n}.example.net 25"),
    ("mail_send", "Spooled mail to unknown {n}", "550 5.1.1 user unknown u{n}"),
    ("geoban_apply", "Apply outdated list {n}", "geoip database is {n} days old"),
)
"""Kinds of tasks: the kind, its description, and what it fails with; "" where it does not."""

LEFT = (BucketState("mail_send", 3, 5, NOW + 21), BucketState("feeds_sync", 12, 12, None))
"""What the buckets hold."""

DAYS = ("good", "bad", "stuck")
"""Days of the place; on the last one the worker hangs."""

CLAIMED = {"good": 40.0, "bad": 2850.0, "stuck": 2850.0}
"""Seconds since the task in work was claimed; on a stuck day before the lock's last heartbeat."""

SILENT = {"good": 20.0, "bad": 20.0, "stuck": 2820.0}
"""Seconds since the worker wrote to its logs and metrics for the last time."""

WAYS = ("postfix", "msmtp", "curl")
"""The transports; of the last one nothing comes through."""


@contextmanager
def a_folder() -> Iterator[Path]:
    """A new folder whose path is as long as `NAME`, which can be drawn in its place."""
    folder = mkdtemp(prefix="sd", dir="/tmp")
    assert len(folder) == len(NAME)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder)


@contextmanager
def made_days() -> Iterator[dict[str, Path]]:
    """The spool of each day."""
    with ExitStack() as folders:
        made = {day: folders.enter_context(a_folder()) for day in DAYS}
        for day, root in made.items():
            make_day(root, day)
        yield made


def tasks_of(day: str = "bad") -> list[Task]:
    """The tasks of a day; the same each time. No attempt is later than the worker's last line."""
    chance = random.Random(5)
    trouble, hung = day != "good", CLAIMED[day] if day == "stuck" else 0.0

    def some(state: State, amount: int, hours: float) -> Iterator[Task]:
        for _ in range(amount):
            age = 60 + 3600 * hours * chance.random() ** 3
            fails = state is State.DEAD or (state is State.PENDING and chance.random() < 0.25)
            kind, words, error = chance.choice(SORTS[4:] if fails else SORTS[:4])
            died = NOW - hung - age / 3
            age += CLAIMED[day] if trouble and state is State.ACTIVE else 0.0
            age += hung + 60 if hung and fails else 0.0
            number, created = chance.randrange(10, 99), int(NOW - age)
            stamp, due = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created)), 0.0
            id = f"{stamp}-{kind}-{chance.getrandbits(32):08x}"
            if fails and state is State.PENDING:
                # The end of a backoff: of the first attempt if the worker has hung since.
                wait = chance.randrange(30, 900)
                due = created + 180.0 if hung else NOW + wait
            yield Task(
                id,
                kind,
                state,
                float(created),
                due=due,
                attempts=(3 if state is State.DEAD else 1) if fails else 0,
                description=words.format(n=number),
                error=error.format(n=number),
                extra={"dead_since": str(int(died))} if state is State.DEAD else {},
            )

    return [
        *some(State.PENDING, 46, 9.0 if trouble else 0.8),
        *some(State.ACTIVE, 1, 0.05),
        *some(State.DEAD, 14 if trouble else 5, 11.0),
    ]


def make_day(root: Path, day: str = "bad") -> list[Task]:
    """Make the spool of a day; answers with its tasks."""
    trouble = day != "good"
    for name in ("queue/pending", "queue/work", "queue/dlq", "metrics", "log", "run", "mailspool"):
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name).chmod(0o750)
    tasks = tasks_of(day)
    abuse = (t for t in tasks if t.state is State.DEAD and "abuse" in t.description)
    mail = min(abuse, key=lambda task: task.id)
    tasks = [t._replace(payload=_mail(root, t)) if t is mail else t for t in tasks]
    for task in tasks:
        path = put_file(root, task)
        path.chmod(0o640)
        _dated(path, NOW - CLAIMED[day] if task.state is State.ACTIVE else task.created)
    if trouble:
        broken = root / "queue" / "dlq" / "20261120T013000Z-mail_send-0badf00d.task"
        broken.write_bytes(b'TASK_ID="20261120T013000Z-mail_send-0badf00d"\nTASK_TYPE="mail_')
        _dated(broken, NOW - 29520)
    make_past(root)
    ZgbConsolePlace(root).in_earnest()
    suspensions = PlaceTransports(root, lambda: NOW).suspensions
    suspensions.suspend("msmtp", NOW - 7080, "ben", "its relay is moved to mx9")
    _write_metrics(root, [task for task in tasks if task.created <= NOW - SILENT[day]], day)
    _write_logs(root, tasks, day)
    return tasks


def _dated(path: Path, when: float) -> None:
    os.utime(path, (when, when))


def _mail(root: Path, task: Task) -> str:
    """The mail that a task is to send: names in encoded words, and a page in base64."""
    folder = root / "mailspool" / f"mail-{task.id[:16]}-a96ebf3e"
    folder.mkdir()
    page = (
        "<html><body><h1>Attack from 203.0.113.7</h1><p>Since <b>08:14</b> we see 412 tries "
        "a minute on port 22. Please have a look.</p><ul><li>first seen 08:14</li>"
        "<li>last seen 09:31</li></ul><script>document.location='//evil.example'</script>"
        "<p>Your firewall</p></body></html>"
    )
    parts = {
        "meta.sh": f'MAIL_TO="abuse@example.net"\nMAIL_BODY_FILE="{folder}/body.eml"\n',
        "body.eml": "From: =?utf-8?q?J=C3=BCrgen_W=C3=A4chter?= <fw@mx1.example.org>\n"
        "To: abuse@example.net\nSubject: =?utf-8?b?QW5ncmlmZiBhdWYgbXgxOiBiaXR0ZSBwcsO8ZmVu?=\n"
        "Date: Fri, 20 Nov 2026 09:31:04 +0000\nMIME-Version: 1.0\n"
        "Content-Type: text/html; charset=utf-8\nContent-Transfer-Encoding: base64\n\n"
        + base64.encodebytes(page.encode()).decode(),
    }
    for name, text in parts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o600)
        _dated(folder / name, task.created)
    return str(folder / "meta.sh")


def _write_metrics(root: Path, tasks: list[Task], day: str) -> None:
    now = NOW - SILENT[day]
    states = [task.state for task in tasks]
    pending, active = states.count(State.PENDING), states.count(State.ACTIVE)
    oldest = now - min(task.created for task in tasks if task.state is State.PENDING)
    dead = len(tasks) - pending - active
    totals = {"processed_total": 318, "failed_total": 61, "retries_total": 49, "dlq_total": dead}
    queue = root / "metrics" / "queue.prom"
    queue.write_bytes(render_queue(QueueGauges(pending, active, dead, int(oldest)), totals, now))
    _dated(queue, now)


def _write_logs(root: Path, tasks: list[Task], day: str) -> None:
    trouble, now = day != "good", NOW - SILENT[day]
    log_lines: list[tuple[float, str, str]] = []
    for task in tasks:
        _tell(log_lines, task, NOW - CLAIMED[day])
    for minute in range(58, 0, -2):  # what went well is not there any more
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(NOW - 60 * minute - 9))
        id = f"{stamp}-report-{minute:08x}"
        log_lines.append((NOW - 60 * minute, "INFO", f"Processing task: {id} (report)"))
        log_lines.append((NOW - 60 * minute + 2, "SUCCESS", f"Task completed: {id} (report)"))
    if day != "stuck":
        log_lines.append((now, "INFO", "Queue processor completed: 3 processed, 1 failed"))
    _append(root / "log" / "queue.log", log_lines, now)

    mails: list[tuple[float, str, str]] = []
    counted = {transport: [0, 0, 0] for transport in WAYS}
    for number in range(57, 0, -1):
        transport, when = WAYS[number % 3 if trouble else number % 2], now + 20 - 62 * number
        fails = transport == "curl" or (transport == "msmtp" and number % 7 == 0)
        counted[transport][0] += 1
        counted[transport][2 if fails else 1] += 1
        head = f"task_id=inline attempt=1 transport={transport} to=admin@..."
        mails.append((when, "INFO", f"MAIL_SEND_ATTEMPT {head}"))
        curl = "connect_timeout mx7.example.net 25"
        error = curl if transport == "curl" else "421 4.7.0 try later"
        end = f"status=failed transport={transport} retries=3 last_error={error}"
        if not fails:
            end = f"status=success transport={transport} attempt=1"
        level = "ERROR" if fails else "INFO"
        mails.append((when + 3, level, f"MAIL_SEND_RESULT task_id=inline {end}"))
    _append(root / "log" / "mail.log", mails, now)
    _append_records(root / "log" / "delivery.jsonl", mails)
    text = ""
    for at, name in enumerate(("attempts", "success", "failures")):
        metric = f"nftban_mail_send_{name}_total"
        text += f"# TYPE {metric} counter\n"
        text += "".join(f'{metric}{{transport="{w}"}} {n[at]}\n' for w, n in counted.items())
    mail = root / "metrics" / "mail.prom"
    mail.write_text(f"{text}nftban_mail_last_success_timestamp {now - 39:.0f}\n")
    _dated(mail, now)


def _append_records(path: Path, mails: list[tuple[float, str, str]]) -> None:
    """What the delivery records say of the last mail that curl did not send, if there is one."""
    words = "mx7 does not answer: Failed to connect to port 25 after 10001 ms: Timeout was reached"
    failed = [when for when, _, text in mails if "status=failed transport=curl" in text]
    for when in failed[-1:]:
        fields = {"ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)), "transport": "curl"}
        fields |= {"recipient": "admin@\u2026", "result": "failed"}
        path.write_text(json.dumps({**fields, "reason": f"connect_timeout: {words}"}) + "\n")


def _tell(log_lines: list[tuple[float, str, str]], task: Task, claimed: float) -> None:
    """What the log has of a task that is there."""
    kind, id = task.kind, task.id
    if task.state is State.ACTIVE:
        log_lines.append((claimed, "INFO", f"Processing task: {id} ({kind})"))
    died = float(task.extra.get("dead_since", NOW)) - 4
    for attempt in range(1, (task.attempts or 0) + 1):
        when = task.created + 60 * attempt
        if task.state is State.DEAD:  # from its first attempt until it died
            when = task.created + (died - task.created) * attempt / 3
        log_lines.append((when, "INFO", f"Processing task: {id} ({kind})"))
        log_lines.append((when + 4, "ERROR", f"Task failed: {id} ({kind}): {task.error}"))
        end, level = f"failed (attempt {attempt}/3), retry in {60 * 2**attempt}s", "WARN"
        if attempt == 3:
            end, level = "exhausted retries (3/3), moving to DLQ", "ERROR"
        log_lines.append((when + 4, level, f"Task {id} {end}"))


def _append(path: Path, log_lines: list[tuple[float, str, str]], now: float) -> None:
    lines = sorted((line for line in log_lines if line[0] <= now), key=lambda line: line[0])
    path.write_bytes(b"".join(format_log_line(level, text, when) for when, level, text in lines))
    _dated(path, now)


def a_screenshot_place(root: Path, **fields: object) -> Place:
    """The spool as a place, with a configuration."""
    place = disk_place(root, NAME)._replace(
        open=lambda: _opened(root),
        logs=(str(root / "log" / "queue.log"), str(root / "log" / "mail.log")),
        recovery_command=recover_command(NAME),
        has_handler=lambda kind: kind != "report",
        max_attempts=lambda task: 3,
        retention_days=7.0,
        tokens=lambda: LEFT,
        command=("spooldeck", "--root", NAME),
        vitals=hanging(),
        time_limits={"feeds_sync": 3600.0},
        host=lambda: HostFigures(1, 15_200_000_000, 40_000_000_000, 0.8, 4),
    )
    return place._replace(**fields)  # type: ignore[arg-type]


def _opened(root: Path) -> Store:
    """The store of the place: a task in work was claimed when its file says so, which by itself
    takes its st_ctime, which no program can set."""
    store = open_store(str(root), lambda: NOW)
    scan = store.scan

    def dated(touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        for task in scan(touched):
            if isinstance(task, Task) and task.lease is not None:
                since = (root / "queue" / "work" / f"{task.id}.task").stat().st_mtime
                task = task._replace(lease=task.lease._replace(since=since))
            yield task

    setattr(store, "scan", dated)  # noqa: B010 - a method, of this one only
    return store


def a_zgb_place(root: Path) -> Place:
    """A mail queue in a database beside it, of which more is to be told than of its jobs."""
    rows = (
        ("sends at most", "60 mails an hour, 5 at once"),
        ("tokens", "3 now, the next at 09:43:08Z"),
        ("time to drain", "at once: 2 jobs are due, and there are tokens for both"),
        ("registrations", "1"),
    )
    facts = WholeQueueFigures(rows, ("nothing has asked for work for 3m: does cron run?",))
    name = "/srv/zgb.db"
    fields = {"name": name, "command": ("spooldeck", "--root", name)}
    return ZgbConsolePlace(root).place(**fields, queue_figures=lambda: facts)


def mail_of_screenshots(root: Path) -> PlaceMail:
    """The ways its mail goes by; ben has suspended msmtp."""
    room = PlaceTransports(root, lambda: NOW, WAYS)
    room.records = root / "log" / "delivery.jsonl"
    return room.place_mail()


def hanging() -> Callable[[int], ProcessStats]:
    """What is seen of a worker whose handler waits for a server; each look is 5 s later."""
    ticks, moments = os.sysconf("SC_CLK_TCK"), count(10_000.0, 5.0)
    files = OpenFiles(9, ("run/queue.lock", "queue/pending", "queue/work"))

    def look(pid: int) -> ProcessStats:
        now = next(moments)
        still = ProcessStats(pid, now, state="S", io_bytes=(0, 0), waits="do_wait")
        curl = still._replace(pid=pid + 1, started=int((now - 2850) * ticks))
        curl = curl._replace(command="curl -sS https://mx7.example", waits="poll_schedule_timeout")
        return still._replace(files=files, descendants=(curl,), command="queue work")

    return look


def a_lost_place() -> Place:
    """A place that cannot be read: there is no queue."""
    return Place("/srv/mx2", lambda: open_store("/srv/lost+found/queue"))


_REFUSED = Destination("https://social.example.org", "", None, healthy=False, reason="REFUSED")
_REFUSED = _REFUSED._replace(since=NOW - 720, probes=2, next_probe=NOW + 480, rev=1)
PEERS = (
    _REFUSED._replace(
        last_success=NOW - 900,
        last_failure=NOW - 60,
        extra={"publicKey": "A" * 43 + "=", "encryptionPublicKey": "B" * 43 + "="},
    ),
    Destination("https://forum.example.net", since=NOW - 300, last_success=NOW - 7, rev=1),
    Destination("https://spam.example.com", "abuse report 4711", NOW - 7200, rev=1),
    Destination("https://hub.example.org", last_success=NOW - 3, rev=1),
)
"""What deliveries go to."""


def a_delivery_place(root: Path) -> Place:
    """The place with deliveries to peers beside its mail, and a registry of them."""
    refused = "[REFUSED] social.example.org: Connection refused"
    sent = [("social", "org", refused)] * 9 + [("forum", "net", "[TIMEOUT] forum.example.net")] * 4
    tasks = [
        a_task(n, state, kind="deliver", destination=f"https://{name}.example.{end}", error=error)
        for n, (name, end, error) in enumerate(sent)
        for state in [State.DEAD if n % 3 or name == "forum" else State.PENDING]
    ]
    memory = a_memory(tasks)
    destinations = PlaceDestinations(lambda: PEERS, lambda *_: "", lambda: None)
    return a_screenshot_place(root, lock=free)._replace(
        open=lambda: MemoryStore(memory), destinations=destinations, mail=mail_of_screenshots(root)
    )


FLOODER = "newsletter@shop.example.test"
"""The sender of most mail at the flooded place."""
FLOOD = (
    (610, FLOODER, "grey.example.test", "host mx.grey.example.test said: 450 4.7.1 Greylisted"),
    (44, "ana@mx1.example.test", "far.example.test", "connect to far.example.test:25: timed out"),
    (21, "<>", "mail.example.test", "host mx.mail.example.test said: 452 4.2.2 Mailbox full"),
    (9, "ben@mx1.example.test", "gmx.example.test", ""),
)
"""Mails by sender: their number, the domain that they go to, and the reason why they wait."""


class MailQueue(MemoryStore):
    """Tasks with the words of a mail server."""

    states = STATES
    words = WORDS


def a_flooded_place() -> Place:
    """The queue of a mail server, most of it from one sender."""
    mails: list[Task] = []
    for amount, sender, domain, error in FLOOD:
        for n in range(len(mails), len(mails) + amount):
            to, account = f"u{n}@{domain}", "shop" if sender == FLOODER else ""
            fields: dict[str, Any] = {"recipients": (to,), "account": account, "error": error}
            fields |= {"group": domain, "destination": to, "description": "1 recipient"}
            fields |= {"bytes": 4_000 + n, "attempts": None, "sender": sender}
            fields |= {"created": NOW - 5400 + 7 * n, "due": NOW + 60 + n if error else 0.0}
            id = f"{0x4EBEB + 37 * n:X}2DA{n:03X}"
            mails.append(a_task(n, id=id, kind="mail", **fields))
    memory, claims = a_memory(mails), "the queue manager"
    return Place("/etc/postfix", lambda: MailQueue(memory), has_leases=True, claims=claims)
