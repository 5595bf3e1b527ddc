"""What a scheduler writes and hears: its log, syslog, the statistics log, notices."""

import os
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer import log_file, notify, statistics_log
from engine.formats.zmailer.log_file import SchedulerLog, SchedulerOutputs
from engine.formats.zmailer.notify import NotifySocket
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.statistics_log import parse_line


def test_the_log_has_times_and_can_be_rotated(tmp_path: Path) -> None:
    """Each line has its time; after 25 s, or a signal, the file is opened by its name again."""
    now = [1_795_170_000.0]
    path = tmp_path / "scheduler"
    log = SchedulerLog(str(path), lambda: now[0])
    fd = log.fd
    log.write("a\x1bb")
    path.rename(tmp_path / "old")
    log.write("to the old file")
    now[0] += 25
    log.write("to the new file")
    log.reopen()
    assert log.fd == fd
    log.close()
    stamps = [line.partition(" ")[0] for line in (tmp_path / "old").read_text().splitlines()]
    assert len(stamps) == 2
    assert all(len(one) == 14 and one.isdigit() for one in stamps)
    assert "\x1b" not in (tmp_path / "old").read_text()
    assert path.read_text().endswith(" to the new file\n")


def test_syslog_gets_priority_and_tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facility mail, info, tag scheduler; none without SYSLOGFLG, no error without syslog."""
    path = str(tmp_path / "log")
    monkeypatch.setattr(log_file, "SYSLOG_SOCKET", path)
    log = SchedulerLog("", lambda: 0.0)
    wanted, unwanted = (
        SchedulerOutputs(log, "", lambda: 1_795_167_675.0, has_syslog=one) for one in (True, False)
    )
    wanted.syslog("no syslog listens")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        listener.setblocking(False)
        unwanted.syslog("S1: 12 killed")
        wanted.syslog("S1: 12 killed")
        text = listener.recv(4096).decode()
    assert text.startswith("<22>Nov 20 ")
    assert text.endswith(f" scheduler[{os.getpid()}]: S1: 12 killed")


# ---- statistics


NOW = 1_795_170_000

NEW = "S3309638AbmKTJ5Ym690J 0 20 error2 smtp/[127.0.0.1]\n"
OLD = "812876256 90401-2 0 5 ok smtp/((mx1)(mx2 mx3))\n"


def test_both_forms_are_read_and_the_new_one_is_written() -> None:
    """The old form has its time too, and a host may have blanks; a torn or foreign line is none."""
    new, old = parse_line(NEW), parse_line(OLD)
    where: dict[str, Any] = {"state": "error2", "channel": "smtp", "host": "[127.0.0.1]"}
    assert new == statistics_log.StatisticsLine("S3309638AbmKTJ5Ym690J", 0, 20, **where)
    assert statistics_log.format_line(new) == NEW
    assert old is not None
    assert (old.time, old.message, old.host) == (812876256.0, "90401-2", "((mx1)(mx2 mx3))")
    for text in ("", "S1 0 0 ok x/y", "9 x 0 1 ok a/b", "9 1 0 1 fine a/b", "9 1 0 1 ok ab"):
        assert parse_line(text) is None
    assert parse_line("9 1 a 1 ok a/b") is None


def test_the_ends_of_recipients_are_counted_as_they_are_logged(tmp_path: Path) -> None:
    """By thread; a rotated log is read from its start, a line only once it is complete."""
    path, spool_id = tmp_path / "statistics", names.spool_id(7, NOW * 10**9)
    reader = statistics_log.EndsReader(str(path))
    with pytest.raises(FileNotFoundError):
        reader.read()

    def line(state: str, thread: str) -> str:
        return f"{spool_id} 0 2 {state} {thread}\n"

    path.write_text(line("ok3", "smtp/a") + line("error", "smtp/a") + "no line\n")
    os.utime(path, (NOW, NOW))
    statistics = reader.read()
    assert (statistics, statistics.is_alarming) == ((2, 1, {"smtp/a": 1}, 1, NOW), False)
    with path.open("a") as log:
        log.write(line("error2", "smtp/b") * 3 + line("expire", "smtp/b")[:-3])
    assert reader.read()[:4] == (5, 4, {"smtp/b": 3, "smtp/a": 1}, 4)
    with path.open("a") as log:
        log.write("/b\n")
    assert reader.read().total_failed == 5
    path.rename(tmp_path / "statistics.1")
    path.write_text(line("expire", "smtp/b"))
    statistics = reader.read()
    assert (statistics.total_failed, statistics.failed, statistics.is_alarming) == (6, 6, True)


def test_the_log_of_a_running_scheduler_is_that_of_its_option() -> None:
    """From its command line, of either program; a relative path is not known."""
    for words, path in (
        ("/usr/lib/zmailer/scheduler -l /var/log/stat", "/var/log/stat"),
        ("python3 spooldeck zmailer scheduler -vl/log/stat", "/log/stat"),
        ("scheduler -l stat", ""),
        ("scheduler -?", ""),
        ("other", ""),
        ("scheduler", ""),
    ):
        line = f"{words} ".replace(" ", "\0").encode()
        assert statistics_log.find_statistics_log(7, lambda path, line=line: line) == path  # type: ignore[misc]
    assert statistics_log.find_statistics_log(2**30) == ""


# ---- notices


def test_a_notice_names_a_new_file(tmp_path: Path) -> None:
    """A datagram `NEW path`; the socket has mode 0200 and is removed at the end. One of an ended
    scheduler disturbs no sender and is replaced; another kind of file stays."""
    path = tmp_path / ".scheduler.notify"
    assert not notify.send(str(path), "I/F/3276785")
    notify_socket = NotifySocket(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o200
    names = ["I/F/3276785", "77", "A/9-x"]
    assert all(notify.send(str(path), name) for name in names)
    assert [list(notify_socket.receive()) for _ in range(2)] == [names, []]

    notify_socket._socket.close()
    assert not notify.send(str(path), "7")
    second = NotifySocket(str(path))
    assert notify.send(str(path), "7")
    notify_socket.close()
    assert path.exists()
    second.close()
    assert not path.exists()
    path.write_text("a file")
    with pytest.raises(FileExistsError, match="expected a socket"):
        NotifySocket(str(path))
    assert path.read_text() == "a file"
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_any_other_datagram_is_ignored(tmp_path: Path) -> None:
    """Only exactly `NEW` and the path of a control file counts; at most ten are read at a time."""
    wrong = (b"", b"NEW ", b"new 7", b"NEW 7\n", b"NEW 0", b"NEW ../7", b"NEW A/B/C/7", b"NEW 7\0")
    for number, data in enumerate((*wrong, b"OLD 7")):
        path = str(tmp_path / str(number))
        notify_socket = NotifySocket(path)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            with suppress(BlockingIOError):
                for one in (data, b"x" * 5000, *[b"NEW 8"] * 9):
                    sock.sendto(one, path)
        names = list(notify_socket.receive())
        assert (set(names), len(names) <= 8) == ({"8"}, True), data
        notify_socket.close()
