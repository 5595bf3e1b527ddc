"""Console, `overview`, `status` and the recorder raise the same alerts for one real place."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from pytest import CaptureFixture, MonkeyPatch

from engine.config import queue_config
from engine.config.place_address import parse_address
from engine.destinations.destination import Destination
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.base.format import Setup
from engine.formats.kannader.store import KannaderStore
from engine.formats.kannader.store import make_spool as make_kannader_spool
from engine.formats.known_formats import setup_for
from engine.locks import queue_lock
from engine.locks.lock_file import boot_seconds
from engine.locks.queue_lock import Clock
from engine.logs.log_line import format_log_line
from engine.mail.message.content import Content
from engine.mail.send import spool_entry
from engine.mail.send.mail_spool import MailSpool
from engine.mail.send.suspensions import Suspensions
from engine.model import LockEvidence, State, Verdict
from engine.monitor.alerts import Alert, AlertKind, LimitUse
from engine.operations.journal import Operation
from engine.places.place import Place
from engine.places.place_watcher import limit_open_files
from engine.store import Unavailable
from engine.system.host import count_free_tasks
from tests.console_places import make_spool
from tests.engine.monitor.test_alerts import (
    a_new_task,
    a_stale_lock,
    eleven_dead,
    metrics_are_none,
    much_is_wrong,
    write_metrics,
    write_task,
)
from tests.journaled_places import interrupt
from tests.tables import each
from tui.cli.formats.nftban.recorder import RecorderThread
from tui.cli.print.overview import overview
from tui.cli.queue.doctor import doctor
from tui.cli.queue.status import read_status, status
from tui.cli.setup.output import Answer, print_answer
from tui.cli.setup.places import make_place
from tui.session.place_session import PlaceSession, follow_places

DOWN, BACK = "https://down.example", "https://back.example"
SETTINGS = "queue: {syslog: '', max_pending: 3, stuck_threshold: 60}\ntrash: {quota: 1000}\n"


def a_setup(root: Path) -> Setup:
    """The setup of a small spool with room for three pending tasks."""
    make_spool(root, [])
    (root / "log" / "queue.log").unlink()
    (root / "spooldeck.yaml").write_text(SETTINGS)
    return setup_in(root)


def setup_in(root: Path) -> Setup:
    """The setup of the spool in this folder, by the settings there."""
    config = queue_config.load_config(str(root / "spooldeck.yaml"), {})
    return setup_for(config, str(root), os.environ)


def by_status(setup: Setup) -> tuple[Alert, ...]:
    """As `status` finds them."""
    return read_status(make_place(setup, setup.place), time.time()).alerts


def by_recorder(setup: Setup) -> tuple[Alert, ...]:
    """As the flight recorder of a worker finds them."""
    with closing(RecorderThread(setup)) as recorder:
        return recorder.take_sample().alerts


def by_console(setup: Setup) -> tuple[Alert, ...]:
    """As the console finds them, half a minute after it was started."""

    place = make_place(setup, setup.place)

    async def follow() -> tuple[Alert, ...]:
        late = [0.0]
        live = PlaceSession(place, lambda: time.time() + late[0])
        following = asyncio.create_task(follow_places([live], lambda: 0.05))
        for late[0] in (0.0, 20.0, 40.0):
            await live.inspector.scan_now()
            await live.query_backlog()
            await live.wait_for_readings()
            while live.readings.sending.is_reading:
                await live.wait_for_readings()
        await live.wait_for_readings()
        alerts = live.alerts
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await live.close(keep_worker=False)
        return alerts

    return asyncio.run(follow())


def texts_of_overview(setup: Setup) -> list[str]:
    """The texts of the alerts of `overview --json`."""
    answer = overview(setup, [setup.place], at="", over=0.0, filter="")
    (place,) = json.loads(json.dumps(answer.values()))["places"]
    return [alert["words"] for alert in place["alerts"]]


def a_full_queue(root: Path) -> None:
    """Three tasks, as many as may be there, which no worker runs, and a trash above its quota."""
    for number in range(3):
        kind = write_task(root, "pending", number, age=7_265)
        kind.write_text(kind.read_text().replace('TYPE="report"', 'TYPE="feeds_sync"'))
    trash = root / "queue" / ".spooldeck" / "trash"
    trash.mkdir(parents=True)
    for number in range(10, 19):
        purged = write_task(root, "dlq", number)
        purged.rename(trash / purged.name)
    write_metrics(root, 3, age=7_205)


def a_strange_lock(root: Path) -> None:
    """A lock that is no file, and metrics that are no text."""
    (root / "run" / "queue.lock").mkdir()
    metrics_are_none(root)
    eleven_dead(root)


def a_poor_worker(root: Path) -> None:
    """A worker that could not start a program of one kind, and can again of another."""
    log = root / "log" / "queue.log"
    poor = "Not tried: {0}: cannot start {1}: Resource temporarily unavailable"
    done = "Task completed: 20261120T094115Z-report-00000001 (report)"
    lines = [("ERROR", poor.format(*names)) for names in (("feeds_sync", "sync"), ("report",) * 2)]
    lines += [("SUCCESS", done)]
    log.write_bytes(b"".join(format_log_line(*line, time.time()) for line in lines))


def a_full_disk(root: Path) -> None:
    """A disk with room for no task: that of the tasks."""
    a_stale_lock(root)


def other_metrics(root: Path) -> None:
    """Metrics of a minute ago that count other tasks; no task has moved since."""
    write_task(root, "pending", 1, age=3000)
    write_metrics(root, 7, age=60)
    for state in ("pending", "work", "dlq"):
        os.utime(root / "queue" / state, (time.time() - 3000,) * 2)


def mail_waits(root: Path) -> None:
    """Two hours ago a mail was spooled and no task made of it; a transport is suspended."""
    long_ago = time.time() - 7200
    spool = MailSpool(str(root / "mailspool"), str(root), lambda: long_ago)
    content = Content("text", html=False)
    spool.store_mail(spool_entry.new_id(long_ago), "ana@example.com", "hello", content)
    suspended = Suspensions(str(root / "queue" / ".spooldeck" / "suspended"), str(root))
    (root / "queue" / ".spooldeck").mkdir()
    suspended.suspend("curl", long_ago, "ana", "the relay moves")


def a_killed_replay(root: Path) -> None:
    """A replay of four dead tasks whose console died after one, which a worker has done since."""
    for number in range(4):
        write_task(root, "dlq", number)
    setup = setup_in(root)
    interrupt(make_place(setup, str(root)), 4, 1, at=time.time() - 60)
    for path in (root / "queue" / "pending").iterdir():
        path.unlink()


def old_metrics(root: Path) -> None:
    """A task that waits until tomorrow, and metrics of half an hour ago."""
    write_task(root, "pending", 1, age=7_205, due_in=86_400)
    write_metrics(root, 1, age=1_865)


def earlier(read: Clock) -> float:
    """What a clock had 47 minutes and a half ago."""
    return read() - 2850


def a_stuck_lock(root: Path) -> None:
    """A process that runs has had the lock for 47 minutes, by its own record."""
    write_task(root, "pending", 1)
    clock, uptime = (partial(earlier, read) for read in (time.time, boot_seconds))
    queue_lock.acquire_lock(str(root / "run" / "queue.lock"), 1200, clock, uptime)


def a_refused_mail(root: Path) -> None:
    """The relay refused a mail for good an hour ago, by the delivery records."""
    (root / "mail").mkdir()
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    refused = {"result": "failed", "reason": "rejected_recipient: 550 no such user"}
    record = {"ts": when, "transport": "smtp", "recipient": "ana@", **refused}
    (root / "mail" / "delivery.jsonl").write_text(json.dumps(record) + "\n")


def two_peers(root: Path) -> None:
    """A destination that fails since an hour, and one that answers again after its failures."""
    with (root / "spooldeck.yaml").open("a") as config:
        config.write(f"destinations: sqlite://{root}/destinations.db\n")
        config.write("handlers: {push: {deliver: {}}}\n")
    address = parse_address(f"sqlite://{root}/destinations.db")
    hour_ago = time.time() - 3600
    write_metrics(root, 1)
    with closing(SqlRegistry(address, creates=True)) as registry:
        registry.swap(None, Destination(DOWN, healthy=False, reason="REFUSED", since=hour_ago))
        registry.swap(None, Destination(BACK, reason="TIMEOUT", since=hour_ago))
    for state, number, origin, error in (
        ("pending", 1, DOWN, ""),
        ("dlq", 2, BACK, "_TIMEOUT_ no answer"),
        ("dlq", 3, BACK, "_HTTP_404_ not there"),
    ):
        task = write_task(root, state, number, due_in=600)
        payload = root / "mailspool" / f"{number}.json"
        payload.parent.mkdir(exist_ok=True)
        payload.write_text(json.dumps({"url": f"{origin}/in"}))
        text = task.read_text().replace('TYPE="report"', 'TYPE="push"')
        text = text.replace('PAYLOAD_FILE=""', f'PAYLOAD_FILE="{payload}"')
        task.write_text(text.replace('LAST_ERROR=""', f'LAST_ERROR="{error}"'))


def full_only_at(folder: str) -> Callable[[str], dict[str, int]]:
    """Free units of a disk that is full at this folder; another folder does not show it."""
    return lambda asked: {"blocks": 0 if asked == folder else 1_000_000}


PLACES: list[tuple[Callable[[Path], None], set[AlertKind]]] = [
    (a_full_queue, {AlertKind.LIMIT, AlertKind.BLOCKED, AlertKind.IDLE, AlertKind.OLDEST}),
    (
        much_is_wrong,
        {
            AlertKind.ABANDONED,
            AlertKind.CONTRADICTION,
            AlertKind.DEAD,
            AlertKind.PROBLEMS,
            AlertKind.STALE,
            AlertKind.TRANSPORT,
        },
    ),
    (a_strange_lock, {AlertKind.UNKNOWN_LOCK, AlertKind.BAD_METRICS, AlertKind.DEAD}),
    (a_full_disk, {AlertKind.STALE, AlertKind.FULL}),
    (a_poor_worker, {AlertKind.LACKING}),
    (other_metrics, {AlertKind.CONTRADICTION}),
    (mail_waits, {AlertKind.LOST, AlertKind.SUSPENDED}),
    (a_killed_replay, {AlertKind.INTERRUPTED}),
    (old_metrics, {AlertKind.OLD_METRICS, AlertKind.OLDEST}),
    (a_stuck_lock, {AlertKind.STUCK}),
    (a_refused_mail, {AlertKind.REFUSED}),
    (two_peers, {AlertKind.UNHEALTHY, AlertKind.RECOVERED}),
    (a_new_task, set()),
]


@each(("spoil", "expected"), PLACES)
def test_all_readers_of_a_place_find_the_same_alerts(
    tmp_path: Path,
    monkeypatch: MonkeyPatch,
    spoil: Callable[[Path], None],
    expected: set[AlertKind],
) -> None:
    """What `status` knows of a place, the console, `overview` and the recorder know too."""
    setup = a_setup(tmp_path)
    if AlertKind.FULL in expected:
        monkeypatch.setattr("engine.system.host.free_units", full_only_at(setup.queue.pending))
    spoil(tmp_path)
    setup = setup_in(tmp_path)

    alerts = by_status(setup)

    assert {alert.kind for alert in alerts} == expected
    assert {alert.text for alert in by_console(setup)} == {alert.text for alert in alerts}
    assert set(texts_of_overview(setup)) == {alert.text for alert in alerts}
    assert {alert.text for alert in by_recorder(setup)} == {alert.text for alert in alerts}


def a_post_office(folder: Path) -> Setup:
    """The setup of an empty spool of ZMailer."""
    spool, config = folder / "PO", folder / "spooldeck.yaml"
    for name in ("transport", "queue", "router"):
        (spool / name).mkdir(parents=True)
    config.write_text("{}\n")
    return setup_for(queue_config.load_config(str(config), {}), str(spool), os.environ)


def test_all_readers_find_that_the_scheduler_of_a_mail_spool_is_stopped(tmp_path: Path) -> None:
    """No scheduler runs on it; only a queue of ours has a recorder."""
    setup = a_post_office(tmp_path)

    alerts = by_status(setup)

    assert {alert.kind for alert in alerts} == {AlertKind.IDLE}
    assert {alert.text for alert in by_console(setup)} == {alert.text for alert in alerts}
    assert set(texts_of_overview(setup)) == {alert.text for alert in alerts}


def test_all_readers_find_a_sender_with_most_of_the_mail(tmp_path: Path) -> None:
    """Only a queue of ours has a recorder: its tasks name no sender."""
    spool, config = tmp_path / "spool", tmp_path / "spooldeck.yaml"
    make_kannader_spool(str(spool))
    config.write_text("{}\n")
    setup = setup_for(queue_config.load_config(str(config), {}), str(spool), os.environ)
    with closing(KannaderStore(str(spool), durable=False)) as store:
        store.enqueue("news@shop.example", [f"u{n}@far.example" for n in range(501)], [b"text\n"])
        store.enqueue("ana@shop.example", [f"u{n}@far.example" for n in range(19)], [b"text\n"])

    alerts = by_status(setup)

    (flood,) = (alert for alert in alerts if alert.kind is AlertKind.FLOOD)
    assert flood.text == "news@shop.example: 501 of 520"
    assert flood.text in {alert.text for alert in by_console(setup)}
    assert flood.text in texts_of_overview(setup)


def test_a_full_disk_of_a_mail_spool_is_an_alert(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The folder that has the tasks is asked, and the parent of one that is not made yet."""
    setup, spool = a_post_office(tmp_path), tmp_path / "PO"
    monkeypatch.setattr("engine.system.host.free_units", full_only_at(f"{spool}/transport"))

    texts = [alert.text for alert in by_status(setup) if alert.kind is AlertKind.FULL]

    assert texts == ["disk full: room for no task: see `doctor`"]
    assert count_free_tasks([f"{tmp_path}/missing/run"]) == {str(tmp_path): 1_000_000}


def test_a_full_trash_is_an_alert_at_any_size(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """`status`, console and recorder measure the trash also if they read only a sample."""
    setup = a_setup(tmp_path)
    a_full_queue(tmp_path)
    monkeypatch.setattr("tui.cli.queue.status.MAX_READ_TASKS", 8)
    monkeypatch.setattr("tui.cli.formats.nftban.recorder.ORDERED_SAMPLE_TASKS", 8)

    alert_texts = [
        {alert.text for alert in read(setup) if alert.kind is AlertKind.LIMIT}
        for read in (by_status, by_recorder, by_console)
    ]

    assert alert_texts == [{"queue full: 3 of 3 pending", "trash full: 2 of 1 kB"}] * 3


def test_problems_of_a_sample_are_at_least_so_many(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    """The alert and the list of problems have a `+` if only some tasks were read."""
    setup = a_setup(tmp_path)
    for number in range(12):
        write_task(tmp_path, "dlq", number).write_text("TASK_ID=$(id)\n")
    monkeypatch.setattr("tui.cli.queue.status.MAX_READ_TASKS", 8)

    answer = status(setup, exact=False)
    assert isinstance(answer, Answer)
    print_answer(answer, as_json=False)

    lines = capsys.readouterr().out.splitlines()
    assert "          and 2+ more" in lines
    assert "attention 12+ problems" in lines


def test_the_recorder_samples_what_it_can_read(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The age is exact; a closed mail spool hides no task; the journal is read after a change."""
    setup = a_setup(tmp_path)
    for number in range(230):
        write_task(tmp_path, "pending", number, age=9_000 if number == 229 else 60)
    monkeypatch.setattr("tui.cli.formats.nftban.recorder.ORDERED_SAMPLE_TASKS", 0)
    monkeypatch.setattr("tui.cli.queue.status.ORDERED_SAMPLE_TASKS", 0)
    monkeypatch.setattr("engine.formats.nftban.store.SAMPLE_SIZE", 0)
    reads: list[float] = []

    def no_spool(*facts: object) -> int:
        raise Unavailable("mail spool: permission denied")

    def read_operations(place: Place, now: float) -> tuple[Operation, ...]:
        reads.append(now)
        return ()

    monkeypatch.setattr("tui.cli.formats.nftban.recorder.count_lost_mails", no_spool)
    monkeypatch.setattr("tui.cli.formats.nftban.recorder.read_operations", read_operations)
    recorder = RecorderThread(setup)

    for _ in range(5):
        sample = recorder.take_sample()

    assert (sample.unavailable, sample.counts[State.PENDING]) == ("", 230)
    assert sample.oldest is not None
    assert round(sample.when - sample.oldest, -2) == 9_000
    assert len(reads) == 2


def test_doctor_names_what_a_worker_lacks(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    """By the log of the last hour, until a task of the kind was tried again."""
    setup = a_setup(tmp_path)
    a_poor_worker(tmp_path)

    assert doctor(setup, json=True) == 1

    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    lack = "feeds_sync not tried: cannot start sync: Resource temporarily unavailable"
    assert [one["problem"] for one in answers if one["check"] == "worker"][-1:] == [lack]


def test_doctor_names_the_limits_reached(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    """A full queue and a full trash are findings with the command that makes room."""
    setup = a_setup(tmp_path)
    a_full_queue(tmp_path)

    assert doctor(setup, json=True) == 1

    rows = map(json.loads, capsys.readouterr().out.splitlines())
    fixes = {row["problem"]: row["fix"] for row in rows if row["check"] == "limits"}
    queue, trash = sorted(fixes)
    assert queue == "queue full: 3 of 3 pending"
    assert trash.startswith("trash full: 2 of 1 kB")
    assert fixes[queue].endswith(" queue work")
    assert " trash list" in fixes[trash]


def doctor_rows(setup: Setup, capsys: CaptureFixture[str]) -> list[dict[str, str]]:
    """The findings of `doctor --json` that need an action."""
    doctor(setup, json=True)
    rows = map(json.loads, capsys.readouterr().out.splitlines())
    return [row for row in rows if row["grade"] not in ("ok", "hidden")]


def test_doctor_reports_a_full_disk_once(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    """The check of the room for a full queue includes the disk of its tasks."""
    setup = a_setup(tmp_path)
    for module in ("engine.system.host", "engine.formats.nftban.doctor.folders"):
        monkeypatch.setattr(f"{module}.free_units", lambda folder: {"blocks": 0})

    rows = [row for row in doctor_rows(setup, capsys) if "on the disk of" in row["problem"]]

    assert [row["check"] for row in rows] == ["room"]


def test_doctor_reports_open_files_of_a_place_that_cannot_be_opened(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    """The fix is the limit of its service; a server is not asked a second time."""
    asked: list[str] = []

    def limits(lock: object, workers: object) -> list[LimitUse]:
        asked.append("")
        return [LimitUse("open files of PID 7", 95, 100)]

    monkeypatch.setattr("tui.cli.queue.doctor.limit_open_files", limits)
    setup = a_setup(tmp_path)
    (tmp_path / "queue" / "pending").rmdir()
    server = setup_for(setup.config, "redis://127.0.0.1:1", os.environ)

    (found,) = (row for row in doctor_rows(setup, capsys) if row["check"] == "limits")
    doctor_rows(server, capsys)

    assert found["problem"] == "open files of PID 7 95% full: 95 of 100"
    assert "LimitNOFILE=" in found["fix"]
    assert len(asked) == 1


def test_open_files_are_those_of_a_process_that_is_proven_to_hold_the_lock() -> None:
    """The number in a lock that is stale, or not proven here, may be of an unrelated process."""
    held, pid = LockEvidence(Verdict.HELD, os.getpid()), os.getpid()

    assert [one.name for one in limit_open_files(held, ())] == [f"open files of PID {pid}"]
    assert len([*limit_open_files(None, (pid,))]) == 1
    others = ({"is_proven": False}, {"verdict": Verdict.STALE}, {"verdict": Verdict.UNKNOWN})
    for other in (held._replace(**fields) for fields in others):
        assert [*limit_open_files(other, ())] == []
