"""The mail queue's log: where it is written, its lines, and what is read from it again."""

import json
import os
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from engine.formats.zgb import log as logs
from engine.formats.zgb.log import LOG_NAME, Log
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.store import ZgbStore
from engine.model import Move
from engine.store import Gone
from tests.store_contents import naming
from tests.zgb import NOW, Sql, fail

ID = "<7-user-1795169000@host>"


def a_log(path: Path, *, run: str = "r1", now: float = NOW, database: str = "/data/q.db") -> Log:
    """A log that must be writable."""

    def otherwise(line: str) -> None:
        raise AssertionError(f"not written: {line}")

    return Log(str(path), run, database, lambda: now, otherwise)


def test_where_the_log_is_written(tmp_path: Path) -> None:
    """By a setting, the variable, the home's folder of logs, else beside the database."""
    home, data = tmp_path / "home", tmp_path / "data"
    (home / "logs").mkdir(parents=True)
    data.mkdir()
    named = {"MAIL_QUEUE_LOG": "sub/../mail.log", "HOME": str(home)}
    find = partial(logs.find_log, database=str(data / "q.db"), cwd=str(data))
    for setting, environ, path in (
        (str(tmp_path / "own.log"), named, tmp_path / "own.log"),
        ("", named, data / "mail.log"),
        ("", {"MAIL_QUEUE_LOG": "", "HOME": str(home)}, home / "logs" / LOG_NAME),
        *(("", {"HOME": where}, data / LOG_NAME) for where in ("", "relative", str(data))),
        ("", {}, data / LOG_NAME),
    ):
        with naming(setting, environ):
            location = find(setting, environ=environ)
            assert (location.path, location.warnings) == (str(path), ())
    assert find("", environ=named).rule == "set by MAIL_QUEUE_LOG"
    assert not (data / "logs").exists()


def test_below_a_web_root_it_may_be_everybodys(tmp_path: Path) -> None:
    """Which is said, beside the database and where it was set, by a link as well."""
    for name in logs.WEB_ROOTS:
        data = tmp_path / name / "data"
        data.mkdir(parents=True)
        link = tmp_path / f"link-{name}"
        link.symlink_to(data)
        for one in (
            logs.find_log("", str(data / "q.db"), {}, "/"),
            logs.find_log(str(link / "own.log"), "/nowhere/q.db", {}, "/"),
            logs.find_log("", "/nowhere/q.db", {"MAIL_QUEUE_LOG": str(data / "x.log")}, "/"),
        ):
            (warning,) = one.warnings
            assert ".htaccess" in warning
        assert not logs.is_public(str(tmp_path / f"{name}-data"))


def test_a_log_that_cannot_be_written_passes_its_lines_on(tmp_path: Path) -> None:
    """Where nothing can be written the line is passed on, with the reason."""
    missing = logs.find_log(
        "", "/nowhere/q.db", {"MAIL_QUEUE_LOG": str(tmp_path / "no" / "x.log")}, "/"
    )
    assert missing.path == "" and "standard error" in missing.warnings[0]
    folder, victim, link = tmp_path / "folder.log", tmp_path / "victim", tmp_path / LOG_NAME
    folder.mkdir()
    victim.write_text("mine\n")
    link.symlink_to(victim)
    lines: list[str] = []
    for path in ("", str(folder), str(link)):
        Log(path, "r1", "q.db", lambda: NOW, lines.append).write_sent(ID, job=1)
    assert [ID in line for line in lines] == [True] * 3
    assert json.loads(lines[0])["event"] == "sent" and lines[1].startswith(f"{folder}: ")
    assert victim.read_text() == "mine\n"


def test_a_line_of_the_log(tmp_path: Path) -> None:
    """Time in UTC to the millisecond, level, event, run and process come first; a value stays on
    its line, is printable and is cut; of addresses enough is left to tell two mails apart, and not
    who they were for."""
    path = tmp_path / LOG_NAME
    a_log(path, now=NOW + 0.25).write("claimed", reg=7, type="user", attempt=1, error=None)
    line = json.loads(path.read_bytes())
    assert list(line) == ["ts", "level", "event", "run", "pid", "db", "reg", "type", "attempt"]
    values = ["2026-11-20T10:20:00.250Z", "info", "claimed", "r1", os.getpid()]
    assert list(line.values())[:5] == values
    path.unlink()
    a_log(path).write("failed", error="\x1b[2J\n" + "x" * 900)
    data = path.read_bytes()
    assert data.count(b"\n") == 1 and b"\x1b" not in data
    assert len(json.loads(data)["error"]) == 500
    masked = {"hans@example.org": "h***@example.org", "x": "***", "": "***", "@b.org": "***@b.org"}
    assert {address: logs.mask_address(address) for address in masked} == masked


def test_a_sent_line_is_on_the_disk_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synced, and for its first line its folder too; other lines are not."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    file = tmp_path / LOG_NAME
    a_log(file).write_sent(ID, job=1, attempt=1)
    a_log(file).write("claimed")
    a_log(file).write_sent(ID, job=1, attempt=1)
    assert synced == [str(file), str(tmp_path), str(file)]


def test_broken_lines_are_counted_and_foreign_ones_are_not(tmp_path: Path) -> None:
    """No JSON, no object or no time is broken; another program's object is passed over; the last
    line may be incomplete, and ours begins on a line of its own after it. Every event can be read;
    a missing file or folder is an empty log."""
    path = tmp_path / LOG_NAME
    for missing in (path, tmp_path / "no" / LOG_NAME):
        assert logs.read_recent(str(missing), 0).lines == ()
    assert list(logs.find_lines("")) == []
    good = b'{"ts":"2026-11-20T10:20:00.000Z","event":"x","later":{"a":[1]}}\n'
    broken_lines = b'no json\n[1]\n{"ts":"when","event":"x"}\n' + b"[" * 100_000 + b"\n\xff\n"
    path.write_bytes(good + broken_lines + b'{"message":"mine"}\n' + good + b'{"ts":"2026')
    read = logs.read_recent(str(path), 0)
    assert ([line.event for line in read.lines], read.broken) == (["x", "x"], 5)
    a_log(path).write_sent(ID, job=1, attempt=1)
    read = logs.read_recent(str(path), 0)
    assert ([line.event for line in read.lines], read.broken) == (["x", "x", "sent"], 6)
    path.unlink()
    for event in logs.EVENTS:
        a_log(path).write(event)
    assert [line.event for line in logs.read_recent(str(path), NOW).lines] == list(logs.EVENTS)
    assert {logs.parse_line(line).at for line in logs.find_lines(str(path))} == {NOW}  # type: ignore[union-attr]


def regs(path: Path, since: float = 0) -> list[object]:
    """The registrations of the lines that are read."""
    return [line.fields["reg"] for line in logs.read_recent(str(path), since).lines]


def test_only_what_is_recent_is_read(tmp_path: Path) -> None:
    """From the end back, over many blocks; a rotated log is read as far as it is needed."""
    path = tmp_path / LOG_NAME
    for number in range(1010):
        if number == 1000:
            path.rename(f"{path}.1")
        a_log(path, now=NOW + number).write("claimed", reg=number, said="x" * 400)
    assert regs(path, NOW + 495) == list(range(495, 1010))
    assert logs.read_recent(str(path), NOW + 495).broken == 0


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"\0" * 300_000, id="one line"),
        pytest.param(b"x\n" * 150_000, marks=pytest.mark.deep, id="many lines"),
        pytest.param(b"{\n" * 150_000, marks=pytest.mark.deep, id="torn lines"),
    ],
)
def test_a_log_of_garbage_is_read_only_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    """From the end, in blocks, up to a limit; where it ends there, that is said."""
    path = tmp_path / LOG_NAME
    a_log(path).write("claimed", reg=1)
    path.write_bytes(path.read_bytes() + garbage + b"\n")
    a_log(path, now=NOW + 1).write("claimed", reg=2)
    monkeypatch.setattr(logs, "RECENT_LIMIT_BYTES", 200_000)
    assert (regs(path), logs.read_recent(str(path), 0).unread) == ([2], True)
    with pytest.raises(OSError, match="too many lines"):
        a_log(path).attempt_times(0)
    monkeypatch.setattr(logs, "RECENT_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(logs, "RECENT_LIMIT_LINES", 1_000_000)
    assert regs(path) == [1, 2]
    monkeypatch.setattr(logs, "RECENT_LIMIT_LINES", 100_000)
    assert logs.read_recent(str(path), 0).unread is (garbage[:1] != b"\0")


def test_a_job_that_was_sent_is_known(tmp_path: Path) -> None:
    """A job whose attempts count on after a sent line was sent, in a rotated log as well, and
    behind any garbage; another job, message or database was not, nor was one whose attempts have
    begun again."""
    path = tmp_path / LOG_NAME
    for size in (0, (1 << 20) - 100, 3 << 20):
        path.write_bytes(b"x" * size + b"\n")
        a_log(path).write_sent(ID, job=1, attempt=1)
        assert a_log(path).was_sent(ID, 1, 2)
    path.unlink()
    log = a_log(path)
    log.write("claimed", job=1, attempt=2, message_id=ID)
    log.write_sent(ID, job=1, attempt=2)
    assert log.was_sent(ID, 1, 3)
    path.rename(f"{path}.1")
    assert log.was_sent(ID, 1, 3)
    for database, message, job, attempt in (
        ("/data/q.db", ID, 1, 2),  # its first attempt is to come
        ("/data/q.db", ID, 2, 3),
        ("/data/q.db", "<8-user-1@host>", 1, 3),
        ("/data/test.db", ID, 1, 3),
    ):
        assert not a_log(path, database=database).was_sent(message, job, attempt)
    log.write("claimed", job=1, attempt=1, message_id=ID)
    assert not log.was_sent(ID, 1, 3)


def test_what_was_tried_counts_once_and_what_was_not_does_not(tmp_path: Path) -> None:
    """A claim counts from its first moment, until it is said that no server was asked."""
    path = tmp_path / LOG_NAME

    def tell(event: str, at: float, reg: int, run: str = "r1") -> None:
        a_log(path, now=NOW + at, run=run).write(event, reg=reg, type="user", attempt=1)

    tell("sent", -3700, 0)
    for event, reg in (("claimed", 1), ("sent", 1), ("claimed", 2), ("failed", 2)):
        tell(event, reg, reg)
    for event in ("claimed", "postponed", "claimed"):
        tell(event, 5, 3)
    for ended in ("orphan_deleted", "already_sent", "lease_lost", "redirect_blocked"):
        for event in ("claimed", ended):
            tell(event, 6, 4)
    tell("claimed", 7, 1, run="r2")
    a_log(path, database="/data/test.db").write("claimed", reg=9, type="user", attempt=1)
    assert a_log(path).attempt_times(NOW - 3600) == [NOW + at for at in (1, 2, 5, 7)]


def test_the_store_logs_what_happens(place: ZgbDatabase, sql: Sql) -> None:
    """Each step in the life of a job, each setting and each repair of the store is an event."""
    events: list[tuple[str, dict[str, object]]] = []

    def tell(event: str, /, **fields: object) -> None:
        assert event in logs.EVENTS
        events.append((event, fields))

    with closing(ZgbStore(place, lambda: NOW, write_event=tell)) as store:
        for _ in range(2):
            store.enqueue(1001, ["user"])
        fail(store, due=NOW + 60)
        fail(store, NOW + 60, error="never")
        store.control("retryFailed")
        store.control("mailMaxPerHour", value="40")
        (task,) = store.take(NOW, "me", 1)
        (renewed,) = store.renew([task], NOW + place.lease)
        assert renewed.error is None
        sql("UPDATE mail_queue SET locked_until = locked_until + 1")
        for outcomes in (store.renew([task], NOW), store.swap_all([Move(task, None)])):
            assert [type(outcome.error) for outcome in outcomes] == [Gone]
        sql("UPDATE config SET value = 'x' WHERE key = 'mailTokens'")
        list(store.take(NOW + place.lease + 2, "me", 1))
        sql("DELETE FROM registrations WHERE number = 1001")
        list(store.take(NOW, "me", 1))

    its = {"reg": 1001, "type": "user"}
    assert events[:4] == [
        ("enqueue", its),
        ("enqueue_duplicate", its),
        ("failed", {**its, "attempt": 1, "error": "no", "next_attempt_at": NOW + 60}),
        ("parked", {**its, "attempt": 2, "error": "never", "next_attempt_at": None}),
    ]
    others = "retry_requested config_changed lease_lost lease_lost recovered bucket_reset"
    others += " orphan_deleted clock_backwards"
    assert [event for event, _ in events[4:]] == others.split()
