"""What deserves a look: each rule by a table of values, and in a place that is followed."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from engine.config.queue_config import Thresholds
from engine.destinations.destination import Destination
from engine.destinations.watch import CountedTasks, DestinationsReading, DestinationTasks, join
from engine.largest_share import LargestShare
from engine.logs.log_line import format_log_line
from engine.logs.task_events import NO_TRANSPORT
from engine.model import LockEvidence, State, Verdict
from engine.monitor import alerts, transport_health
from engine.monitor.alerts import Alert, AlertInputs, AlertKind, Goal, Level, LimitUse, Where
from engine.monitor.metrics_check import GAUGES, LAST_RUN
from engine.monitor.prometheus import QueueGauges, Samples, render_queue
from engine.monitor.throughput import Growth, RunTimes
from engine.monitor.transport_health import CountWindow, Failure, Refusals, TransportHealth
from engine.system import files
from engine.text.figure import Figure
from tests.console_places import Clock, a_full_disk, a_task, disk_place, make_spool, put_file
from tests.engine.monitor.test_transport_health import attempt, given_up
from tests.mail_transports import PlaceTransports
from tests.recorder_samples import NOTHING_KNOWN
from tests.tables import each
from tui.session.place_session import PlaceSession, follow_places

NOW = 1_795_167_600.0
STATES = {State.PENDING: "pending", State.ACTIVE: "work", State.DEAD: "dlq"}
STUCK = LockEvidence(Verdict.STUCK, 4711, NOW - 2820, 2820)
HELD = LockEvidence(Verdict.HELD, 4711, NOW - 5, 5)
STALE = LockEvidence(Verdict.STALE, 4711, NOW - 60, 60)
HOSTILE = "\x1b]0;x\x07" + "A" * 500


def a_sight(**fields: object) -> AlertInputs:
    """A place without any fault but the named ones."""
    seen = NOTHING_KNOWN._replace(name="/srv/spool", states=STATES, complete=True, is_scanned=True)
    return seen._replace(lock=LockEvidence(Verdict.FREE))._replace(**fields)  # type: ignore[arg-type]


def tasks(**counts: int) -> dict[State, int]:
    """Counts by state."""
    return {State(name): number for name, number in counts.items()}


def prom(age: float = 20, ran: float = 20, **gauges: int) -> Samples:
    """The queue's metrics, so many seconds old, with these gauges by state."""
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {
        (GAUGES[State(name)], ()): float(n) for name, n in gauges.items()
    }
    values[(LAST_RUN, ())] = NOW - ran
    return Samples(values, NOW - age)


def a_way(success: int, failures: int, name: str = "curl", refused: int = 0) -> TransportHealth:
    """A transport with so many results in ten minutes."""
    tally = transport_health.DeliveryCounts(success + failures, success, failures, refused)
    return TransportHealth(
        name, None, (CountWindow("1m", 60), CountWindow("10m", 600, tally), CountWindow("1h", 3600))
    )


def due(minutes: float, **fields: object) -> AlertInputs:
    """Twelve tasks are due, the oldest for so many minutes."""
    return a_sight(**{"due": 12, "oldest_due": NOW - 60 * minutes, **fields})


def unserved(**fields: object) -> AlertInputs:
    """Twelve tasks are due, the lock has been free for a minute, and no run is known."""
    return due(1, **{"free_since": NOW - 60, "runs": RunTimes(), **fields})


def after(ago: float, distance: float | None) -> AlertInputs:
    """The last run began so long ago, and runs are so many seconds apart."""
    return unserved(runs=RunTimes(NOW - ago, distance))


def mail(*methods: str, **fields: object) -> AlertInputs:
    """A place with these mail transports, of which curl is suspended."""
    halt = transport_health.TransportSuspension("curl", NOW - 7200, "ana", "the relay is moved")
    halted = {"curl": halt}
    return a_sight(routes=transport_health.MailRoutes(methods, **{"stopped": halted, **fields}))  # type: ignore[arg-type]


def blocked(seconds: float) -> AlertInputs:
    """Three tasks without a handler that are due for so many seconds."""
    return a_sight(blocked=[alerts.Blocked("feeds_sync", 3, NOW - seconds, "no handler")])


def deliveries(known: Destination, **tasks: Any) -> AlertInputs:
    """A place with one destination, and its tasks."""
    reading = DestinationsReading((known._replace(rev=1),), is_configured=True)
    counted = CountedTasks({known.origin: DestinationTasks(**tasks)})
    return a_sight(destinations=join(reading, counted))


PEER, SHORT = "https://peer-with-a-long-name.example", "peer-with-a-long-..."
DENIED = "Permission denied"
UNKNOWN = LockEvidence(Verdict.UNKNOWN, reason=DENIED)
NONE_RUNS, NO_RUN = "CRIT nothing runs: ", "no worker running, 12 tasks are due"
SUSPENDED = "WARN a suspended transport: curl suspended by ana for 2h00m"
LONG = "/var/lib/containers/volumes/mail-queue"
BEFORE = tasks(pending=40)
CUT = alerts.Unfinished("op-1", "replay", NOW - 1800, who="ana", open=87, planned=179)
INLINE = a_way(0, 4, NO_TRANSPORT)

TABLE = [
    # a place, and its only alert: how urgent, its rule, its words, and what it leads to
    (a_sight(unavailable=f"/srv/spool: {DENIED}", counts=tasks(dead=99)),
     f"CRIT unreadable: cannot be read: {DENIED} -> queue"),
    (a_sight(lock=STUCK), "CRIT stuck lock: lock STUCK 47m, PID 4711 -> lock"),
    (a_sight(lock=STALE), "WARN stale lock: stale lock: PID 4711 is gone -> lock"),
    (due(1, lock=STALE, runs=RunTimes(NOW - 60, 3)),
     "CRIT stale lock: stale lock: PID 4711 is gone, 12 tasks are due -> lock"),
    (due(1, lock=STALE, runs=RunTimes(NOW - 60, 300)),  # its timer will take it over
     "WARN stale lock: stale lock: PID 4711 is gone, 12 tasks are due -> lock"),
    (a_sight(lock=UNKNOWN), f"WARN unknown lock: lock holder unknown: {DENIED} -> lock"),
    (a_sight(lock=HELD, counts=tasks(active=3)), ""),
    (a_sight(counts=tasks(active=3)),
     "WARN in work without a worker: 3 tasks in work, but no worker running -> state active"),
    (a_sight(counts=tasks(active=3), active=0), ""),
    (a_sight(counts=tasks(dead=10)), ""),
    (a_sight(counts=tasks(dead=11)), "WARN dead tasks: 11 dead (limit 10) -> state dead"),
    (a_sight(dead_growth=Growth(9, 600)), ""),
    (a_sight(counts=tasks(dead=114), dead_growth=Growth(34, 600), dead_clusters=5),
     "WARN dead tasks: 114 dead in 5 clusters, +34 in 10m -> state dead"),
    (a_sight(counts=tasks(dead=11), dead_clusters=1), "11 dead in 1 cluster (limit 10)"),
    (a_sight(counts=tasks(dead=10), dead_growth=Growth(10, 600)),
     "WARN more dead tasks: 10 dead, +10 in 10m -> state dead"),
    (a_sight(dead_growth=Growth(-212, 600)), ""),
    (a_sight(counts=tasks(dead=20), dead_growth=Growth(2, 25)), "20 dead, +2 in 25s"),
    (a_sight(counts=tasks(dead=20), dead_growth=Growth(2, 170)), "20 dead, +2 in 2m"),
    (a_sight(problems=1), "WARN problems: 1 problem -> problems"),
    (a_sight(problems=1204), "WARN problems: 1,204 problems -> problems"),
    (a_sight(problems=1, is_scanned=False), "WARN problems: 1+ problems -> problems"),
    (a_sight(largest_share=LargestShare("sender", "newsletter@shop", 14_095, 20_030)),
     "WARN most mail of one sender: newsletter@shop: 14,095 of 20,030"
     " -> groups pending sender=newsletter@shop"),
    (a_sight(largest_share=LargestShare("account", "ann", 501, 501)),
     "account ann: 501 of 501 -> groups pending account=ann"),
    (a_sight(largest_share=LargestShare("account", "ann", 400, 601, is_partial=True)),
     "account ann: 400+ of 601"),
    (a_sight(largest_share=LargestShare("sender", "a@b", 500, 500)), ""),
    (a_sight(largest_share=LargestShare("sender", "a@b", 300, 600)), ""),
    (a_sight(largest_share=LargestShare("sender", "a@b", 600, 600), is_scanned=False), ""),
    (a_sight(largest_share=LargestShare("sender", "a" * 40, 501, 501)), f"{'a' * 29}...: 501 of"),
    (a_sight(oldest=NOW - 3600), ""),
    (a_sight(oldest=NOW - 7980),
     "WARN an old task: oldest in pending for 2h13m (over 1h00m) -> state pending"),
    (due(14), ""),
    (due(16), f"{NONE_RUNS}nothing has run for 16m, 12 tasks are due -> state pending"),
    (due(16, last_run=NOW - 600), ""),
    (due(16, queue=prom(ran=600)), ""),
    (due(99, queue=prom(ran=1200), last_run=NOW - 1260), "nothing has run for 20m"),
    (due(99, lock=HELD), ""),
    (due(99, lock=HELD._replace(since=None)), ""),
    (due(99, lock=STUCK), "CRIT stuck lock: lock STUCK 47m, PID 4711; 12 due tasks wait -> lock"),
    (due(120, last_run=NOW + 86400), NONE_RUNS),  # a run that is dated in the future proves nothing
    (a_sight(last_run=NOW - 9999), ""),
    (unserved(), f"{NONE_RUNS}{NO_RUN} -> workers"),
    (unserved(due=0), ""),
    (unserved(free_since=NOW - 4), ""),
    (unserved(free_since=None), ""),
    (unserved(runs=None), ""),
    (unserved(lock=HELD), ""),
    (unserved(lock=None), NO_RUN),
    (unserved(lock=None, stopped=""), ""),
    # A timer each minute: one missed run is not two.
    (after(119, 60.0), ""),
    (after(121, 60.0), NO_RUN),
    # A worker that stayed, started a task each second, and is gone.
    (after(4, 1.0), ""),
    (after(6, 1.0), NO_RUN),
    # Too few runs are known, or they are far apart: as long as the setting `idle`.
    (after(899, None), ""),
    (after(901, None), NO_RUN),
    (after(901, 3600.0), NO_RUN),
    (unserved(oldest_due=NOW - 9999), "nothing has run for 2h46m, 12 tasks are due"),
    (a_sight(transports=[a_way(10, 9)]), ""),
    (a_sight(transports=[a_way(8, 13)]),
     "WARN a failing transport: curl failed 62% of 21 attempts in 10m -> transports curl"),
    (a_sight(transports=[a_way(0, 0)]), ""),
    (a_sight(transports=[a_way(0, 4)]), ""),
    (a_sight(transports=[a_way(0, 5)]), "curl failed 100% of 5 attempts in 10m"),
    (a_sight(transports=[a_way(1, 6, refused=4)]), ""),
    (mail("curl", selected="curl", stopped={}), ""),
    (mail("curl", why_not={"curl": "no relay"}, stopped={}), ""),
    (mail("curl", unknown=DENIED), ""),
    (mail(unknown="suspended: not JSON", blocked=True, stopped={}),
     "no mail is sent: suspensions unreadable: see `doctor` -> transports"),
    (mail("curl", "mailx", selected="mailx"),
     f"{SUSPENDED}: the relay is moved -> transports curl"),
    (mail("curl"), f"{SUSPENDED}, mail waits: the relay "),
    (deliveries(Destination(PEER, healthy=False, reason="REFUSED", since=NOW - 720), waiting=9),
     "WARN an unhealthy destination: "
     f"{SHORT} unhealthy 12m: REFUSED, 9 wait -> transports {PEER}"),
    (deliveries(Destination(PEER, since=NOW - 60), failed={"TIMEOUT": 200, "HTTP_404": 3}),
     "WARN failed tasks that can be sent again: "
     f"{SHORT} is back: 200 failed can be sent -> transports {PEER}"),
    (deliveries(Destination(PEER, since=NOW - 60), failed={"HTTP_404": 3, "BAD_DATA": 1}), ""),
    (deliveries(Destination(PEER), failed={"REFUSED": 3}), ""),
    (deliveries(Destination(PEER, "spam", NOW, healthy=False, reason="DNS")), ""),
    (a_sight(transports=[INLINE]), "no transport available for 4 attempts in 10m"),
    (a_sight(transports=[INLINE._replace(settled=True)]), ""),
    (a_sight(orphaned_mails=1),
     "WARN mail without a task: 1 spooled mail has no task: see `mail spool list` -> transports"),
    (a_sight(orphaned_mails=3000), "3,000 spooled mails have no task"),
    (a_sight(refusals=Refusals([Failure(NOW - 60, "rejected_bad_mail", "'root@...' has a domain"),
     Failure(NOW - 86_399, "lost"), Failure(NOW - 86_401, "lost")], since=NOW - 86_401)),
     "WARN refused mail: 2 mails refused or lost in a day: 'root@...'"),
    (a_sight(refusals=Refusals([Failure(NOW - 86_401, "lost")])), ""),
    (a_sight(refusals=Refusals([Failure(NOW - 60, "lost")], since=NOW - 3600)),
     "WARN refused mail: 1+ mails refused or lost in a day: lost"),
    (a_sight(warnings=("nothing has run here for 3m",)),
     "WARN a warning of the queue: nothing has run here for 3m -> controls nothing has run"),
    (a_sight(lock=None, stopped="the mailer is stopped",
     counts=tasks(pending=340, active=5, held=9)),
     "CRIT nothing runs: the mailer is stopped: 345 wait -> workers"),
    (a_sight(lock=None, stopped="the mailer is stopped", counts=tasks(pending=3), complete=False),
     "CRIT nothing runs: the mailer is stopped: 3+ wait -> workers"),
    (a_sight(lock=None, stopped="the mailer is stopped"),
     "CRIT nothing runs: the mailer is stopped"),
    (a_sight(lock=None, stopped="the mailer is stopped", unavailable="gone"),
     "CRIT unreadable: cannot be"),
    (due(600, lock=None, stopped=""), ""),
    (a_sight(warnings=("twice", "twice")), "WARN a warning of the queue: twice -> controls twice"),
    (a_sight(warnings=("5 frozen",), warned_states={"5 frozen": State.HELD}),
     "WARN a warning of the queue: 5 frozen -> state held"),
    (a_sight(queue=prom(pending=5), counts=tasks(pending=7)), ""),
    (a_sight(queue=prom(pending=12), counts_when_written=BEFORE),
     "WARN metrics that contradict: queue.prom differs: pending 12, counted 40 -> queue"),
    (a_sight(queue=prom(pending=40), counts_when_written=BEFORE), ""),
    (a_sight(queue=prom(age=9999)), ""),
    (a_sight(queue=prom(age=1200), counts=tasks(pending=1)),
     "WARN old metrics: queue.prom not written for 20m -> queue"),
    (due(99, queue=prom(age=1200, ran=1200), counts=tasks(pending=12)), "CRIT nothing runs"),
    (a_sight(queue=DENIED), f"WARN unreadable metrics: queue.prom: {DENIED} -> queue"),
    (a_sight(queue="No such file or directory"), ""),
    (a_sight(unfinished=[CUT]), "WARN an interrupted operation: replay of"),
    (blocked(900), ""),
    (blocked(2580),
     "WARN tasks that no worker can run: 3 feeds_sync due for 43m: no handler: see `doctor` "
     "-> state pending"),
    (a_sight(disks=[a_full_disk(free_tasks=100)]), ""),
    (a_sight(disks=[a_full_disk(free_tasks=99, used_bytes=1_690_000)]),
     "CRIT a full disk: disk full: /srv, 1.7 of 2.1 MB, room for 99 tasks -> queue /srv"),
    (a_sight(disks=[a_full_disk(own_bytes=Figure(124_000))]),
     "CRIT a full disk: disk full: /srv, 2.1 of 2.1 MB, queue 124.0 kB -> queue /srv"),
    (a_sight(disks=[a_full_disk(own_bytes=Figure(900, is_exact=False), grown_bytes=1_900_000)]),
     "CRIT a full disk: disk full: /srv, 2.1 of 2.1 MB, queue 900 B+, +1.9 MB in 4m"
     " -> queue /srv"),
    (a_sight(disks=[a_full_disk(mount=LONG, lacks_inodes=True, grown_bytes=1_900_000)]),
     f"disk full: ...{LONG[-21:]}, no free inodes -> queue {LONG}"),
    (a_sight(disks=[a_full_disk(lacks_inodes=True, free_tasks=40)]),
     "disk full: /srv, few inodes, room for 40 tasks -> queue /srv"),
    (a_sight(disks=[a_full_disk(free_tasks=500), a_full_disk(mount="/var/log")]),
     "disk full: /var/log, "),
    # where room can be made: what only others can free, the trash, the dead if a journal fits
    (a_sight(disks=[a_full_disk(own_bytes=Figure(1_100_000))], counts=tasks(trash=1, dead=1)),
     "queue 1.1 MB -> state trash /srv"),
    (a_sight(disks=[a_full_disk(own_bytes=Figure(900_000))], counts=tasks(trash=1, dead=1)),
     "queue 900.0 kB -> queue /srv"),
    (a_sight(disks=[a_full_disk(own_bytes=Figure(9), lacks_inodes=True)], counts=tasks(trash=1)),
     "no free inodes -> state trash /srv"),
    (a_sight(disks=[a_full_disk(free_tasks=9)], counts=tasks(dead=1)),
     "9 tasks -> state dead /srv"),
    (a_sight(disks=[a_full_disk()], counts=tasks(dead=1)), "2.1 of 2.1 MB -> queue /srv"),
    (a_sight(limits=[LimitUse("queue", 8_999, 10_000, "pending")]), ""),
    (a_sight(limits=[LimitUse("queue", 9_999, 10_000, "pending", State.PENDING)]),
     "WARN a full limit: queue 99% full: 9,999 of 10,000 pending -> state pending"),
    (a_sight(limits=[LimitUse("queue", 10_000, 10_000, "pending", State.PENDING)]),
     "CRIT a full limit: queue full: 10,000 of 10,000 pending -> state pending"),
    (a_sight(limits=[LimitUse("open files of PID 77", 1000, 1024)]),
     "WARN a full limit: open files of PID 77 97% full: 1,000 of 1,024 -> queue"),
    (a_sight(clock_step="clock set back by 3h00m before 2026-11-20 09:42:08Z"),
     "WARN a clock that was set: clock set back by 3h00m before 2026-11-20 09:42:08Z -> queue"),
    (a_sight(lacks=[("report", "cannot start x: Too many open files", NOW - 60)]),
     "WARN workers that lack something: report not tried: cannot start x: Too many open files"
     " -> workers"),
    (unserved(is_sample=True), "no worker running, 12+ tasks are due"),
    (NOTHING_KNOWN._replace(name="/srv/spool"), ""),
]  # fmt: skip


def told(alert: Alert) -> str:
    """An alert in one line."""
    goal = " ".join(filter(None, (alert.target.where, alert.target.state, alert.target.name)))
    return f"{alert.level} {alert.kind}: {alert.text} -> {goal}"


def found(inputs: AlertInputs, *limits: float) -> list[Alert]:
    """The alerts of a place, with these limits."""
    return [*alerts.find_alerts(inputs, NOW, Thresholds(*limits))]  # type: ignore[arg-type]


@each(("alert_inputs", "expected"), TABLE)
def test_each_rule(alert_inputs: AlertInputs, expected: str) -> None:
    """One fault is one alert, and without a fault there is none."""
    got = found(alert_inputs)
    assert len(got) == bool(expected)
    assert all(expected in told(alert) for alert in got)
    assert all(alert.target.place == "/srv/spool" for alert in got)


def test_every_sort_of_alert_is_in_the_table() -> None:
    """No rule goes untested."""
    text = " ".join(expected for _, expected in TABLE)
    assert [what for what in AlertKind if f" {what}:" not in text] == []


def test_the_most_urgent_comes_first() -> None:
    """A fault that stops everything is above one that may wait, in any order of the rules."""
    dead = {"counts": tasks(dead=99, active=1), "dead_growth": Growth(50, 600)}
    got = found(due(99, problems=3, lock=STALE, transports=[a_way(0, 5)], **dead))
    assert [alert.level for alert in got] == [Level.CRIT, *[Level.WARN] * 5]
    assert [alert.kind for alert in got[:2]] == [AlertKind.IDLE, AlertKind.STALE]


def test_limits_are_the_operator_s() -> None:
    """Each number that is set decides its own rule."""
    counted = {"counts": tasks(dead=3), "dead_growth": Growth(2, 600), "transports": [a_way(9, 1)]}
    inputs = due(10, oldest=NOW - 600, **counted)
    assert found(inputs) == []
    kinds = [AlertKind.IDLE, AlertKind.DEAD, AlertKind.OLDEST, AlertKind.TRANSPORT]
    assert [alert.kind for alert in found(inputs, 2, 2, 300, 5, 0.1)] == kinds
    assert found(inputs, 3, 2, 300, 5, 0.1)[1].kind is AlertKind.GROWING


def test_any_alert_stays_one_safe_line() -> None:
    """Foreign text cannot act on a terminal, nor push a line out of its place."""
    lock = LockEvidence(Verdict.UNKNOWN, reason=HOSTILE)
    gone = a_sight(unavailable=HOSTILE, lock=lock, queue=HOSTILE)
    got = found(gone) + found(a_sight(lock=lock, transports=[a_way(0, 5, HOSTILE)], queue=HOSTILE))
    kinds = [alert.kind for alert in got]
    assert {*kinds} >= {AlertKind.UNREADABLE, AlertKind.TRANSPORT}
    assert kinds.count(AlertKind.UNKNOWN_LOCK) == 1  # not of what is not there
    texts = [alert.text for alert in got]
    assert all(text.isprintable() and len(text) <= alerts.MAX_TEXT_LENGTH for text in texts)
    assert Goal("/srv/spool", Where.TRANSPORTS, None, HOSTILE) in [alert.target for alert in got]


def write_task(root: Path, state: str, number: int, age: float = 0, due_in: float = -1) -> Path:
    """A task file in the form of the contract."""
    now = int(time.time())
    name = f"20261120T0941{number:02d}Z-report-{number:08x}"
    fields = {
        **{"ID": name, "TYPE": "report", "DESCRIPTION": "r", "CREATED_EPOCH": int(now - age)},
        **{"RETRIES": 0, "NEXT_ATTEMPT_EPOCH": int(now + due_in) if due_in > 0 else 0},
        **{"LAST_ERROR": "", "PAYLOAD_FILE": ""},
    }
    if state == "dlq":
        fields |= {"DLQ_EPOCH": now, "DLQ_REASON": "max_retries_exceeded"}
    path = root / "queue" / state / f"{name}.task"
    path.write_text("".join(f'TASK_{key}="{value}"\n' for key, value in fields.items()))
    return path


def write_metrics(root: Path, pending: int, age: float = 0) -> None:
    """queue.prom as a run so many seconds ago left it."""
    now = time.time()
    path = root / "metrics" / "queue.prom"
    path.parent.mkdir(exist_ok=True)
    files.replace_file(str(path), render_queue(QueueGauges(pending, 0, 0), {}, now - age))
    os.utime(path, (now - age, now - age))


def eleven_dead(root: Path) -> None:
    """One dead task more than is accepted."""
    for number in range(11):
        write_task(root, "dlq", number)


def a_stale_lock(root: Path) -> None:
    """A lock of a process that is gone."""
    with subprocess.Popen(["true"]) as gone:
        pass
    (root / "run" / "queue.lock").write_text(f"{gone.pid}\n{int(time.time())}\n")


def much_is_wrong(root: Path) -> None:
    """Six things at once: each has its own alert."""
    write_task(root, "work", 59)
    eleven_dead(root)
    a_stale_lock(root)
    (root / "queue" / "pending" / "broken.task").write_text("TASK_ID=$(id)\n")
    shift = NOW - time.time()
    lines = [attempt(shift + 60, "curl") + given_up(shift + 59, "421 later", "curl")] * 5
    text = "No mail system available, spooling for later"
    log = root / "log" / "mail.log"
    log.parent.mkdir(exist_ok=True)
    log.write_bytes("".join(lines).encode() + format_log_line("ERROR", text, time.time() - 30))
    write_metrics(root, 0, age=30)  # tasks came since


def nothing_ran(root: Path) -> None:
    """A task that is due, and metrics from long before."""
    write_task(root, "pending", 1, age=1900)
    write_metrics(root, 0, age=1860)


def nothing_was_written(root: Path) -> None:
    """A task that waits for two hours, until tomorrow, and metrics from long before."""
    write_task(root, "pending", 1, age=7300, due_in=86_400)
    write_metrics(root, 1, age=1900)


def metrics_are_none(root: Path) -> None:
    """A metrics file that is no text."""
    (root / "metrics").mkdir(exist_ok=True)
    (root / "metrics" / "queue.prom").write_bytes(b"\xff\xfe\x1b[2J")


def a_new_task(root: Path) -> None:
    """A task that came after a run wrote its figures."""
    write_metrics(root, 0, age=30)
    write_task(root, "pending", 1)


class Follower:
    """A place that is followed, by a clock that goes a second with each look."""

    def __init__(self, root: Path) -> None:
        make_spool(root, [])
        self.clock = Clock(time.time())
        self.room = PlaceTransports(root, self.clock)
        place = disk_place(root, clock=self.clock)._replace(mail=self.room.place_mail())
        self.live = PlaceSession(place, self.clock)
        self.step = 1
        """Seconds from one reading to the next, by its clock."""

    def _second(self) -> float:
        self.clock.now += self.step
        return 0.01

    async def __aenter__(self) -> Follower:
        self._following = asyncio.create_task(follow_places([self.live], self._second))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        await self.live.close(keep_worker=False)

    async def scan(self) -> None:
        """Read the tasks and the mail spool again."""
        await self.live.inspector.scan_now()
        await self.live.query_backlog()

    async def until(self, what: AlertKind, is_expected: bool = True) -> Alert | None:
        """Look until there is such an alert, or is none any more."""
        for _ in range(1000):
            await self.live.wait_for_readings()
            found = next((alert for alert in self.live.alerts if alert.kind is what), None)
            if (found is not None) == is_expected and self.live.has_readings:
                return found
        raise AssertionError(f"it never came to be; there is {self.live.alerts}")


async def test_dead_tasks_that_come_are_noticed(tmp_path: Path) -> None:
    """Ten that die while the console runs are growth; those dead before are not counted in."""
    async with Follower(tmp_path) as place:
        await place.until(AlertKind.GROWING, is_expected=False)
        while place.live.flow.growth(State.DEAD, place.clock.now) is None:
            await place.live.wait_for_readings()
        for number in range(10):
            write_task(tmp_path, "dlq", number)
        alert = await place.until(AlertKind.GROWING)
        assert alert is not None and re.fullmatch(r"10 dead, \+10 in \S+", alert.text)
        assert alert.target == Goal(str(tmp_path), Where.STATE, State.DEAD)
        assert AlertKind.DEAD not in [alert.kind for alert in place.live.alerts]


async def test_mail_that_no_task_sends_is_noticed(tmp_path: Path) -> None:
    """Mails older than a sender needs to queue a task, until there are tasks, in any state."""
    async with Follower(tmp_path) as place:
        place.room.heap = transport_health.MailBacklog(2, 3600)
        while place.live.readings.sending.backlog != place.room.heap:
            await place.live.wait_for_readings()
        place.clock.now += 40
        await place.scan()
        alert = await place.until(AlertKind.LOST)
        assert alert is not None and alert.text.startswith("2 spooled mails have no task")
        for number, state in enumerate((State.PENDING, State.DEAD)):
            put_file(tmp_path, a_task(number, state, kind="mail_send"))
        await place.scan()
        await place.until(AlertKind.LOST, is_expected=False)
