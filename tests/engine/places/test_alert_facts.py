"""Console, `overview`, `status` and the recorder raise the same alerts for one real place."""

import asyncio
import json
import os
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pytest import CaptureFixture, MonkeyPatch

from engine.config import queue_config
from engine.config.place_address import parse_address
from engine.destinations.destination import Destination
from engine.destinations.sql_registry import SqlRegistry
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from engine.locks import queue_lock
from engine.locks.lock_file import boot_seconds
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
from tests.console_places import make_spool
from tests.engine.monitor import test_alerts
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
    return setup_of(root, root, SETTINGS)


def setup_of(place: Path, folder: Path, settings: str | None = None) -> Setup:
    """The setup of a place by the settings in a folder, or by these that are written there."""
    path = folder / "spooldeck.yaml"
    if settings is not None:
        path.write_text(settings)
    return setup_for(queue_config.load_config(str(path), {}), str(place), os.environ)


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


def alerts_of_all(setup: Setup, *others: Callable[[Setup], tuple[Alert, ...]]) -> list[Alert]:
    """The alerts of a place, whose texts are the same for `status`, `overview` and all others."""
    alerts = by_status(setup)
    texts = {alert.text for alert in alerts}
    assert set(texts_of_overview(setup)) == texts
    for read in (by_console, *others):
        assert {alert.text for alert in read(setup)} == texts
    return [*alerts]


def a_full_queue(root: Path) -> None:
    """Three tasks, as many as may be there, which no worker runs, and a trash above its quota."""
    for number in range(3):
        kind = test_alerts.write_task(root, "pending", number, age=7_265)
        kind.write_text(kind.read_text().replace('TYPE="report"', 'TYPE="feeds_sync"'))
    trash = root / "queue" / ".spooldeck" / "trash"
    trash.mkdir(parents=True)
    for number in range(10, 19):
        purged = test_alerts.write_task(root, "dlq", number)
        purged.rename(trash / purged.name)
    test_alerts.write_metrics(root, 3, age=7_205)


def a_strange_lock(root: Path) -> None:
    """A lock that is no file, and metrics that are no text."""
    (root / "run" / "queue.lock").mkdir()
    test_alerts.metrics_are_none(root)
    test_alerts.eleven_dead(root)


def a_poor_worker(root: Path) -> None:
    """A worker that could not start a program of one kind, and can again of another."""
    log = root / "log" / "queue.log"
    poor = "Not tried: {0}: cannot start {1}: Resource temporarily unavailable"
    done = "Task completed: 20261120T094115Z-report-00000001 (report)"
    lines = [("ERROR", poor.format(*names)) for names in (("feeds_sync", "sync"), ("report",) * 2)]
    lines += [("SUCCESS", done)]
    log.write_bytes(b"".join(format_log_line(*line, time.time()) for line in lines))


def a_stuck_lock(root: Path) -> None:
    """A process that runs has had the lock for 47 minutes and a half, by its own record."""
    test_alerts.write_task(root, "pending", 1)
    path = str(root / "run" / "queue.lock")
    clock, uptime = time.time, boot_seconds
    queue_lock.acquire_lock(path, 1200, lambda: clock() - 2850, lambda: uptime() - 2850)


def other_metrics(root: Path) -> None:
    """Metrics of a minute ago that count other tasks; no task has moved since."""
    test_alerts.write_task(root, "pending", 1, age=3000)
    test_alerts.write_metrics(root, 7, age=60)
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
        test_alerts.write_task(root, "dlq", number)
    interrupt(make_place(setup_of(root, root), str(root)), 4, 1, at=time.time() - 60)
    for path in (root / "queue" / "pending").iterdir():
        path.unlink()


def old_metrics(root: Path) -> None:
    """A task that waits until tomorrow, and metrics of half an hour ago."""
    test_alerts.write_task(root, "pending", 1, age=7_205, due_in=86_400)
    test_alerts.write_metrics(root, 1, age=1_865)


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
    test_alerts.write_metrics(root, 1)
    with closing(SqlRegistry(address, creates=True)) as registry:
        registry.swap(None, Destination(DOWN, healthy=False, reason="REFUSED", since=hour_ago))
        registry.swap(None, Destination(BACK, reason="TIMEOUT", since=hour_ago))
    for state, number, origin, error in (
        ("pending", 1, DOWN, ""),
        ("dlq", 2, BACK, "_TIMEOUT_ no answer"),
        ("dlq", 3, BACK, "_HTTP_404_ not there"),
    ):
        task = test_alerts.write_task(root, state, number, due_in=600)
        payload = root / "mailspool" / f"{number}.json"
        payload.parent.mkdir(exist_ok=True)
        payload.write_text(json.dumps({"url": f"{origin}/in"}))
        text = task.read_text().replace('TYPE="report"', 'TYPE="push"')
        text = text.replace('PAYLOAD_FILE=""', f'PAYLOAD_FILE="{payload}"')
        task.write_text(text.replace('LAST_ERROR=""', f'LAST_ERROR="{error}"'))


def full_only_at(folder: str) -> Callable[[str], dict[str, int]]:
    """Free units of a disk that is full at this folder; another folder does not show it."""
    return lambda asked: {"blocks": 0 if asked == folder else 1_000_000}


K = AlertKind
WRONG = {K.ABANDONED, K.DEAD, K.PROBLEMS, K.STALE, K.TRANSPORT}
PLACES: list[tuple[Callable[[Path], None], set[AlertKind]]] = [
    (a_full_queue, {K.LIMIT, K.BLOCKED, K.IDLE, K.OLDEST}),
    (test_alerts.much_is_wrong, WRONG),
    (a_strange_lock, {K.UNKNOWN_LOCK, K.BAD_METRICS, K.DEAD}),
    (test_alerts.a_stale_lock, {K.STALE, K.FULL}),  # and a full disk
    (a_poor_worker, {K.LACKING}),
    (other_metrics, {K.CONTRADICTION}),
    (mail_waits, {K.LOST, K.SUSPENDED}),
    (a_killed_replay, {K.INTERRUPTED}),
    (old_metrics, {K.OLD_METRICS, K.OLDEST}),
    (a_stuck_lock, {K.STUCK}),
    (a_refused_mail, {K.REFUSED}),
    (two_peers, {K.UNHEALTHY, K.RECOVERED}),
    (test_alerts.a_new_task, set()),
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
    if K.FULL in expected:
        monkeypatch.setattr("engine.system.host.free_units", full_only_at(setup.queue.pending))
        # Other programs write there, too.
        monkeypatch.setattr("engine.system.host._used_and_total", lambda path: (9 << 30, 10 << 30))
    spoil(tmp_path)
    alerts = alerts_of_all(setup_of(tmp_path, tmp_path), by_recorder)
    assert {alert.kind for alert in alerts} == expected


def a_post_office(folder: Path) -> Setup:
    """The setup of an empty spool of ZMailer."""
    for name in ("transport", "queue", "router"):
        (folder / "PO" / name).mkdir(parents=True)
    return setup_of(folder / "PO", folder, "{}\n")


def test_a_mail_spool_has_alerts(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """All readers find its scheduler stopped, and the disk full of the folder with its tasks."""
    setup, full = a_post_office(tmp_path), full_only_at(f"{tmp_path}/PO/transport")
    assert {alert.kind for alert in alerts_of_all(setup)} == {K.IDLE}
    monkeypatch.setattr("engine.system.host.free_units", full)
    texts = [alert.text for alert in by_status(setup) if alert.kind is K.FULL]
    assert len(texts) == 1 and texts[0].startswith("disk full: /")


def test_a_full_trash_is_an_alert_at_any_size(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """`status`, console and recorder measure the trash also if they read only a sample."""
    setup = a_setup(tmp_path)
    a_full_queue(tmp_path)
    monkeypatch.setattr("tui.cli.queue.status.MAX_READ_TASKS", 8)
    monkeypatch.setattr("tui.cli.formats.nftban.recorder.ORDERED_SAMPLE_TASKS", 8)
    for read in (by_status, by_recorder, by_console):
        texts = {alert.text for alert in read(setup) if alert.kind is K.LIMIT}
        assert texts == {"queue full: 3 of 3 pending", "trash full: 2 of 1 kB"}


def test_problems_of_a_sample_are_at_least_so_many(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    """The alert and the list of problems have a `+` if only some tasks were read."""
    setup = a_setup(tmp_path)
    for number in range(12):
        test_alerts.write_task(tmp_path, "dlq", number).write_text("TASK_ID=$(id)\n")
    monkeypatch.setattr("tui.cli.queue.status.MAX_READ_TASKS", 8)
    answer = status(setup, exact=False)
    assert isinstance(answer, Answer)
    print_answer(answer, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert "          and 2+ more" in lines
    assert "attention 12+ problems" in lines


def test_the_recorder_samples_what_it_can_read(tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    """The age is exact; a closed mail spool hides no task; the journal is read after a change."""
    setup, recorder = a_setup(tmp_path), "tui.cli.formats.nftban.recorder"
    for number in range(230):
        test_alerts.write_task(tmp_path, "pending", number, age=9_000 if number == 229 else 60)
    monkeypatch.setattr(f"{recorder}.ORDERED_SAMPLE_TASKS", 0)
    monkeypatch.setattr("tui.cli.queue.status.ORDERED_SAMPLE_TASKS", 0)
    monkeypatch.setattr("engine.formats.nftban.store.SAMPLE_SIZE", 0)
    reads: list[float] = []

    def no_spool(*facts: object) -> int:
        raise Unavailable("mail spool: permission denied")

    def read_operations(place: Place, now: float) -> tuple[Operation, ...]:
        reads.append(now)
        return ()

    monkeypatch.setattr(f"{recorder}.count_lost_mails", no_spool)
    monkeypatch.setattr(f"{recorder}.read_operations", read_operations)
    thread = RecorderThread(setup)
    *_, sample = (thread.take_sample() for _ in range(5))

    assert (sample.unavailable, sample.counts[State.PENDING]) == ("", 230)
    assert sample.oldest is not None
    assert (round(sample.when - sample.oldest, -2), len(reads)) == (9_000, 2)


def doctor_rows(setup: Setup, capsys: CaptureFixture[str], check: str) -> dict[str, str]:
    """The problems of a check that `doctor --json` finds, with what mends them."""
    assert doctor(setup, json=True) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [row for row in rows if row["check"] == check and row["grade"] not in ("ok", "hidden")]
    return {row["problem"]: row["fix"] for row in found}


def test_doctor_names_lacks_and_limits(tmp_path: Path, capsys: CaptureFixture[str]) -> None:
    """What a worker lacks by its log, and a full queue and trash with what makes room."""
    setup = a_setup(tmp_path)
    a_poor_worker(tmp_path)
    a_full_queue(tmp_path)
    lack = "feeds_sync not tried: cannot start sync: Resource temporarily unavailable"
    assert [*doctor_rows(setup, capsys, "worker")][-1:] == [lack]
    fixes = doctor_rows(setup, capsys, "limits")
    queue, trash = sorted(fixes)
    assert queue == "queue full: 3 of 3 pending"
    assert trash.startswith("trash full: 2 of 1 kB")
    assert fixes[queue].endswith(" queue work") and " trash list" in fixes[trash]


def test_doctor_reports_a_full_disk_once(
    tmp_path: Path, capsys: CaptureFixture[str], monkeypatch: MonkeyPatch
) -> None:
    """The check of the room for a full queue includes the disk of its tasks."""
    setup = a_setup(tmp_path)
    for module in ("engine.system.host", "engine.formats.nftban.doctor.folders"):
        monkeypatch.setattr(f"{module}.free_units", lambda folder: {"blocks": 0})
    doctor(setup, json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["check"] for row in rows if "on the disk of" in row["problem"]] == ["room"]


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
    ((problem, fix),) = doctor_rows(setup, capsys, "limits").items()
    doctor(setup_for(setup.config, "redis://127.0.0.1:1", os.environ), json=True)
    assert problem == "open files of PID 7 95% full: 95 of 100"
    assert "LimitNOFILE=" in fix and len(asked) == 1


def test_open_files_are_those_of_a_process_that_is_proven_to_hold_the_lock() -> None:
    """The number in a lock that is stale, or not proven here, may be of an unrelated process."""
    held, pid = LockEvidence(Verdict.HELD, os.getpid()), os.getpid()
    assert [one.name for one in limit_open_files(held, ())] == [f"open files of PID {pid}"]
    assert len([*limit_open_files(None, (pid,))]) == 1
    others = ({"is_proven": False}, {"verdict": Verdict.STALE}, {"verdict": Verdict.UNKNOWN})
    for other in (held._replace(**fields) for fields in others):
        assert [*limit_open_files(other, ())] == []
