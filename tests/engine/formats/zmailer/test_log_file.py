"""What a scheduler writes: its log file, syslog."""

import os
import socket
from pathlib import Path

import pytest

from engine.formats.zmailer import log_file
from engine.formats.zmailer.log_file import SchedulerLog, SchedulerOutputs


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
