"""The mail queue's log: where it is written, what stands in it, and what is read from it again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import verbs
from engine.model import Move
from engine.stores.zgb import ZgbStore
from engine.stores.zgb import log as logs
from engine.stores.zgb.log import (
    EVENTS,
    NAME,
    WEB_ROOTS,
    Log,
    Spot,
    is_public,
    masked,
    parse,
    recent,
    spot,
    whole,
)
from engine.stores.zgb.place import Place

Opener = Callable[..., ZgbStore]
Sql = Callable[..., list[tuple[Any, ...]]]

NOW = 1_795_170_000.0
ID = "<7-user-1795169000@host>"


def a_log(path: Path, *, run: str = "r1", now: float = NOW, database: str = "/data/q.db") -> Log:
    """A log that must be writable."""

    def otherwise(line: str) -> None:
        raise AssertionError(f"not written: {line}")

    return Log(str(path), run, database, lambda: now, otherwise)


def lines(path: Path) -> list[dict[str, Any]]:
    """What the log holds."""
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_setting_goes_before_everything(tmp_path: Path) -> None:
    """What the configuration names is taken, whatever the environment says."""
    environ = {"MAIL_QUEUE_LOG": str(tmp_path / "other.log"), "HOME": str(tmp_path)}
    found = spot(str(tmp_path / "own.log"), "/nowhere/q.db", environ, "/")
    assert (found.path, found.warnings) == (str(tmp_path / "own.log"), ())


def test_the_variable_goes_before_the_home(tmp_path: Path) -> None:
    """A relative path starts from the working directory, and the absolute one is shown."""
    (tmp_path / "logs").mkdir()
    environ = {"MAIL_QUEUE_LOG": "sub/../mail.log", "HOME": str(tmp_path)}
    found = spot("", "/nowhere/q.db", environ, str(tmp_path))
    assert found == Spot(str(tmp_path / "mail.log"), "as MAIL_QUEUE_LOG says")


def test_an_empty_variable_says_nothing(tmp_path: Path) -> None:
    """The home's folder of logs comes next, where it is there."""
    (tmp_path / "logs").mkdir()
    found = spot("", "/nowhere/q.db", {"MAIL_QUEUE_LOG": "", "HOME": str(tmp_path)}, "/")
    assert (found.path, found.warnings) == (str(tmp_path / "logs" / NAME), ())


def test_without_a_home_it_lies_beside_the_database(tmp_path: Path) -> None:
    """Of which nothing is to be said: whoever can read the one can read the other."""
    for environ in ({}, {"HOME": ""}, {"HOME": "relative"}):
        found = spot("", str(tmp_path / "q.db"), environ, "/")
        assert (found.path, found.warnings) == (str(tmp_path / NAME), ())


def test_below_a_web_root_it_may_be_everybodys(tmp_path: Path) -> None:
    """Which is said, beside the database and where it was set, by a link as well."""
    for name in WEB_ROOTS:
        data = tmp_path / name / "data"
        data.mkdir(parents=True)
        link = tmp_path / f"link-{name}"
        link.symlink_to(data)
        for one in (
            spot("", str(data / "q.db"), {}, "/"),
            spot(str(link / "own.log"), "/nowhere/q.db", {}, "/"),
            spot("", "/nowhere/q.db", {"MAIL_QUEUE_LOG": str(data / "x.log")}, "/"),
        ):
            (warning,) = one.warnings
            assert ".htaccess" in warning
        assert not is_public(str(tmp_path / f"{name}-data"))


def test_the_homes_folder_of_logs_is_never_made(tmp_path: Path) -> None:
    """Without it the log lies beside the database, and the folder is still not there."""
    home, data = tmp_path / "home", tmp_path / "data"
    home.mkdir()
    data.mkdir()
    found = spot("", str(data / "q.db"), {"HOME": str(home)}, "/")
    assert found.path == str(data / NAME)
    assert not (home / "logs").exists()


def test_where_nothing_can_be_written_it_goes_elsewhere(tmp_path: Path) -> None:
    """No folder, no file: the lines are handed over, and sending goes on."""
    found = spot("", "/nowhere/q.db", {"MAIL_QUEUE_LOG": str(tmp_path / "no" / "x.log")}, "/")
    told: list[str] = []
    Log(found.path, "r1", "/nowhere/q.db", lambda: NOW, told.append).tell("run_start", rate=40)
    assert found.path == ""
    assert "standard error" in found.warnings[0]
    assert json.loads(told[0])["event"] == "run_start"


def test_a_log_that_breaks_hands_its_lines_over(tmp_path: Path) -> None:
    """What cannot be written is told with the reason, and nothing is raised."""
    path, told = tmp_path / "folder.log", list[str]()
    path.mkdir()
    Log(str(path), "r1", "q.db", lambda: NOW, told.append).sent(ID, job=1)
    (line,) = told
    assert line.startswith(f"{path}: ")
    assert ID in line


def test_a_line_says_when_who_and_what(tmp_path: Path) -> None:
    """Time in UTC to the millisecond, level, event, run and process come first."""
    path = tmp_path / NAME
    a_log(path, now=NOW + 0.25).tell("claimed", reg=7, type="user", attempt=1, error=None)
    (line,) = lines(path)
    assert list(line) == ["ts", "level", "event", "run", "pid", "db", "reg", "type", "attempt"]
    assert (line["ts"], line["level"]) == ("2026-11-20T10:20:00.250Z", "info")
    assert (line["event"], line["run"], line["pid"]) == ("claimed", "r1", os.getpid())


def test_a_value_stays_on_its_line_and_is_cut(tmp_path: Path) -> None:
    """What a server said cannot begin another line, move a terminal, or go on for ever."""
    path = tmp_path / NAME
    a_log(path).tell("failed", error="\x1b[2J\n" + "x" * 900)
    data = path.read_bytes()
    assert data.count(b"\n") == 1
    assert b"\x1b" not in data
    assert len(json.loads(data)["error"]) == 500


def test_addresses_are_masked() -> None:
    """Enough is left to tell two mails apart, and not who they were for."""
    for address, said in (
        ("hans@example.org", "h***@example.org"),
        ("x", "***"),
        ("", "***"),
        ("@b.org", "***@b.org"),
    ):
        assert masked(address) == said


def test_whoever_died_over_a_line_spoils_no_other(tmp_path: Path) -> None:
    """After a torn line ours begins on one of its own, and is read."""
    path = tmp_path / NAME
    path.write_bytes(b'{"ts":"2026-11-20T10:19:00.000Z","event":"cl')
    a_log(path).sent(ID, job=1, attempt=1)
    read = recent(str(path), 0)
    assert [line.event for line in read.lines] == ["sent"]
    assert read.broken == 1


def test_a_sent_line_is_on_the_disk_before_anything_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is synced, and for its first line its folder too; other lines are not."""
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    log = a_log(tmp_path / NAME)
    log.sent(ID, job=1, attempt=1)
    log.tell("claimed")
    log.sent(ID, job=1, attempt=1)
    file, folder = str(tmp_path / NAME), str(tmp_path)
    assert synced == [file, folder, file]


def test_the_log_is_written_through_no_symbolic_link(tmp_path: Path) -> None:
    """Who may write beside the database must not have us add to another file."""
    victim, path, told = tmp_path / "victim", tmp_path / NAME, list[str]()
    victim.write_text("mine\n")
    path.symlink_to(victim)
    Log(str(path), "r1", "q.db", lambda: NOW, told.append).tell("run_start")
    assert victim.read_text() == "mine\n"
    assert len(told) == 1


def test_broken_lines_are_counted_and_foreign_ones_are_not(tmp_path: Path) -> None:
    """No JSON, no object or no time is broken; another program's object is passed over; the last
    line may still be being written."""
    path = tmp_path / NAME
    good = b'{"ts":"2026-11-20T10:20:00.000Z","event":"x","later":{"a":[1]}}\n'
    bad = b'no json\n[1]\n{"ts":"when","event":"x"}\n' + b"[" * 100_000 + b"\n\xff\n"
    path.write_bytes(good + bad + b'{"message":"mine"}\n' + good + b'{"ts":"2026')
    read = recent(str(path), 0)
    assert [line.event for line in read.lines] == ["x", "x"]
    assert read.broken == 5


def test_only_what_is_recent_is_read(tmp_path: Path) -> None:
    """From the end back, over many blocks; a rotated log is read as far as it is needed."""
    path = tmp_path / NAME
    for number in range(3000):
        a_log(path, now=NOW + number).tell("claimed", reg=number, said="x" * 100)
    path.rename(f"{path}.1")
    for number in range(3000, 3010):
        a_log(path, now=NOW + number).tell("claimed", reg=number)
    read = recent(str(path), NOW + 1995)
    assert [line.fields["reg"] for line in read.lines] == list(range(1995, 3010))
    assert read.broken == 0


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
    path = tmp_path / NAME
    a_log(path).tell("claimed", reg=1)
    with path.open("ab") as file:
        file.write(garbage + b"\n")
    a_log(path, now=NOW + 1).tell("claimed", reg=2)
    monkeypatch.setattr(logs, "LOOK_BYTES", 200_000)

    read = recent(str(path), 0)

    assert [line.fields["reg"] for line in read.lines] == [2]
    assert read.unread
    with pytest.raises(OSError, match="too many lines"):
        a_log(path).tried(0)
    monkeypatch.setattr(logs, "LOOK_BYTES", 1 << 20)
    monkeypatch.setattr(logs, "LOOK_LINES", 1_000_000)
    assert [line.fields["reg"] for line in recent(str(path), 0).lines] == [1, 2]
    monkeypatch.setattr(logs, "LOOK_LINES", 100_000)
    assert recent(str(path), 0).unread is (garbage[:1] != b"\0")


def test_a_sent_line_is_found_behind_any_garbage(tmp_path: Path) -> None:
    """However long a line before it is, and wherever blocks end, the line is found."""
    path = tmp_path / NAME
    for size in (0, (1 << 20) - 100, 3 << 20):
        path.write_bytes(b"x" * size + b"\n")
        a_log(path).sent(ID, job=1, attempt=1)
        assert a_log(path).was_sent(ID, 1, 2)


def test_a_log_that_is_not_there_is_empty(tmp_path: Path) -> None:
    """Neither a missing file nor a missing folder is an error."""
    assert recent(str(tmp_path / NAME), 0).lines == ()
    assert recent(str(tmp_path / "no" / NAME), 0).lines == ()
    assert list(whole("")) == []


def test_a_log_that_is_rotated_meanwhile_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the two files being opened, the first becomes the second: nothing is read twice."""
    path = tmp_path / NAME
    a_log(path).tell("claimed", reg=1)
    real, opened = logs._open, list[str]()

    def rotating(name: str) -> int | None:
        fd = real(name)
        opened.append(name)
        if len(opened) == 1:
            path.rename(f"{path}.1")
            a_log(path).tell("claimed", reg=2)
        return fd

    monkeypatch.setattr(logs, "_open", rotating)
    read = recent(str(path), 0)
    assert [line.fields["reg"] for line in read.lines] == [1, 2]


def test_every_event_can_be_read(tmp_path: Path) -> None:
    """What is written down of each is what a reader finds."""
    path = tmp_path / NAME
    for event in EVENTS:
        a_log(path).tell(event)
    assert [line.event for line in recent(str(path), NOW).lines] == list(EVENTS)
    assert {parse(line).at for line in whole(str(path))} == {NOW}  # type: ignore[union-attr]


def test_a_job_that_comes_back_was_sent(tmp_path: Path) -> None:
    """Its attempts counted on, and a line says that an earlier one succeeded; in .1 as well."""
    path = tmp_path / NAME
    log = a_log(path)
    log.tell("claimed", job=1, attempt=2, message_id=ID)
    log.sent(ID, job=1, attempt=2)
    assert log.was_sent(ID, 1, 3)
    path.rename(f"{path}.1")
    assert log.was_sent(ID, 1, 3)


def test_what_only_looks_alike_is_sent(tmp_path: Path) -> None:
    """A mail must not be dropped because another one was sent."""
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/data/q.db", {"attempt": 2}),  # begun anew: its first attempt is to come
        ("/data/q.db", {"job": 2}),
        ("/data/q.db", {"message_id": "<8-user-1@host>"}),
        ("/data/test.db", {}),
    )
    for number, (database, asked) in enumerate(cases):
        path = tmp_path / f"{number}.log"
        a_log(path, database=database).sent(ID, job=1, attempt=2)
        about: dict[str, Any] = {"message_id": ID, "job": 1, "attempt": 3, **asked}
        assert not a_log(path).was_sent(**about), (database, asked)


def test_a_second_life_is_sent_though_its_attempts_catch_up(tmp_path: Path) -> None:
    """Retried by an operator, or enqueued again in the same second under the same key: the line of
    the first life counts no more, once the attempts have begun anew."""
    log = a_log(tmp_path / NAME)
    log.sent(ID, job=1, attempt=2)
    log.tell("claimed", job=1, attempt=1, message_id=ID)
    assert not log.was_sent(ID, 1, 3)


def test_what_was_tried_counts_once_and_what_was_not_does_not(tmp_path: Path) -> None:
    """A claim counts from its first moment, until it is said that nobody was asked."""
    path = tmp_path / NAME

    def tell(event: str, at: float, reg: int, run: str = "r1") -> None:
        a_log(path, now=NOW + at, run=run).tell(event, reg=reg, type="user", attempt=1)

    tell("sent", -3700, 0)
    for event, reg in (("claimed", 1), ("sent", 1), ("claimed", 2), ("failed", 2)):
        tell(event, reg, reg)
    for event in ("claimed", "postponed", "claimed"):
        tell(event, 5, 3)
    for ended in ("orphan_deleted", "already_sent", "lease_lost", "redirect_blocked"):
        tell("claimed", 6, 4)
        tell(ended, 6, 4)
    tell("claimed", 7, 1, run="r2")
    a_log(path, database="/data/test.db").tell("claimed", reg=9, type="user", attempt=1)
    assert a_log(path).tried(NOW - 3600) == [NOW + at for at in (1, 2, 5, 7)]


def test_the_store_tells_what_happens(
    open_queue: Opener, place: Place, sql: Sql, tmp_path: Path
) -> None:
    """Enqueued, twice, failed, parked, retried, set, given back and reset: each is an event."""
    told: list[tuple[str, dict[str, object]]] = []

    def tell(event: str, /, **fields: object) -> None:
        assert event in EVENTS
        told.append((event, fields))

    store = ZgbStore(place, lambda: NOW, tell=tell)
    try:
        store.enqueue(1001, ["user"])
        store.enqueue(1001, ["user"])
        (task,) = store.take(NOW, "me", 1)
        store.swap(task, verbs.nack(task, NOW + 60, "no"))
        (task,) = store.take(NOW + 60, "me", 1)
        store.swap(task, verbs.bury(task, "never", 1))
        store.control("retryFailed")
        store.control("mailMaxPerHour", value="40")
        list(store.take(NOW, "me", 1))
        sql("UPDATE config SET value = 'x' WHERE key = 'mailTokens'")
        list(store.take(NOW + place.lease + 1, "me", 1))
        sql("DELETE FROM registrations WHERE number = 1001")
        list(store.take(NOW, "me", 1))
    finally:
        store.close()

    its = {"reg": 1001, "type": "user"}
    assert told[:4] == [
        ("enqueue", its),
        ("enqueue_duplicate", its),
        ("failed", {**its, "attempt": 1, "error": "no", "next_attempt_at": NOW + 60}),
        ("parked", {**its, "attempt": 2, "error": "never", "next_attempt_at": None}),
    ]
    assert [event for event, _ in told[4:]] == [
        *("retry_requested", "config_changed", "recovered", "bucket_reset"),
        *("orphan_deleted", "clock_backwards"),
    ]


def test_a_lost_lease_is_told(open_queue: Opener, place: Place, sql: Sql) -> None:
    """Whoever comes back to a job that somebody else has taken up says so, and touches nothing."""
    told: list[str] = []
    store = ZgbStore(place, lambda: NOW, tell=lambda event, /, **fields: told.append(event))
    try:
        store.enqueue(1001, ["user"])
        (task,) = store.take(NOW, "me", 1)
        sql("UPDATE mail_queue SET locked_until = locked_until + 1")
        told.clear()
        outcomes = list(store.swap_all([Move(task, None)]))
    finally:
        store.close()
    assert told == ["lease_lost"]
    assert outcomes[0].error is not None
