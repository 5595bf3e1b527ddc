"""What is handed to syslog, byte for byte, and that nobody waits for it."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import config, syslogging
from tests.tui.spools import in_utc

NOW = 1795167675  # 2026-11-20 09:41:15 UTC


@pytest.fixture(autouse=True)
def utc() -> Iterator[None]:
    """Times of day do not depend on where the tests run."""
    with in_utc():
        yield


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[socket.socket]:
    """A syslog that listens at `log`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        listener.settimeout(10)
        yield listener


@pytest.mark.parametrize(("level", "priority"), [("ERROR", 11), ("ALERT", 9)])
def test_a_line_arrives_as_the_contract_s_logger_sends_it(
    syslog: socket.socket, tmp_path: Path, level: str, priority: int
) -> None:
    """Facility user, severity error or alert, the tag nftban-queue, the time in RFC 3164's form."""
    assert syslogging.send(f"{tmp_path}/log", level, "Task failed: x", NOW)

    pid = str(os.getpid())
    said = syslog.recv(4096).decode()
    assert said == f"<{priority}>Nov 20 09:41:15 nftban-queue[{pid}]: Task failed: x"


@pytest.mark.parametrize(
    ("said", "meant"),
    [("", "/dev/log"), ('{syslog: ""}', ""), ("{syslog: some/log}", "{folder}/some/log")],
    ids=["default", "off", "elsewhere"],
)
def test_where_syslog_listens_is_a_setting(tmp_path: Path, said: str, meant: str) -> None:
    """It is /dev/log unless said otherwise, and counts for any place; "" turns it off."""
    (tmp_path / "some.yaml").write_text(f"queue: {said}")
    loaded = config.load(str(tmp_path / "some.yaml"), {})

    queue = config.queue_for(loaded, str(tmp_path), {})

    assert queue.syslog == meant.format(folder=tmp_path)


def test_a_day_of_one_digit_is_padded_with_a_space() -> None:
    """RFC 3164, section 4.1.2: `Jan  1`, never `Jan 01`."""
    assert syslogging.datagram("ALERT", "x", 0, 7) == b"<9>Jan  1 00:00:00 nftban-queue[7]: x"


def test_foreign_text_forges_no_second_message() -> None:
    """A newline, an escape or what is no character at all comes out as one harmless line."""
    said = syslogging.datagram("ERROR", "a\n<8>root: b\x1b[2J\0\udcff", NOW, 7).decode()

    assert said.isprintable()
    assert said.endswith("a\ufffd<8>root: b\ufffd[2J\ufffd\ufffd")


@pytest.mark.parametrize("before", range(4))
def test_a_long_text_is_cut_between_characters(before: int) -> None:
    """No datagram is longer than 1,024 bytes, and none ends in half a character."""
    said = syslogging.datagram("ERROR", "x" * before + "\N{SNOWMAN}" * 2000, NOW, 7)

    assert 1024 - 3 < len(said) <= 1024
    assert said.decode().endswith("\N{SNOWMAN}")


def test_where_nobody_listens_work_goes_on(tmp_path: Path) -> None:
    """A missing socket, a dead one, a file, a path too long: False, and no error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "gone"))
    (tmp_path / "file").touch()

    for name in ("missing", "gone", "file", "x" * 200, "missing/log"):
        assert not syslogging.send(f"{tmp_path}/{name}", "ALERT", "x", NOW)


def test_a_syslog_that_reads_nothing_is_not_waited_for(
    syslog: socket.socket, tmp_path: Path
) -> None:
    """Once its buffer is full, a message is dropped, and the caller goes on."""
    path = f"{tmp_path}/log"

    taken = 0
    while syslogging.send(path, "ERROR", "x" * 900, NOW):
        taken += 1
        assert taken < 100_000

    assert taken > 0
    assert len(syslog.recv(4096)) > 900
    assert syslogging.send(path, "ERROR", "there is room again", NOW)
