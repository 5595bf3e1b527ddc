"""Datagrams to syslog: their bytes, the setting, and that no call waits for it."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.config import queue_config
from engine.system import syslog_handler

NOW = 1795167675  # 2026-11-20 09:41:15 UTC


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[socket.socket]:
    """A syslog that listens at `log`."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "log"))
        listener.settimeout(10)
        yield listener


def test_a_line_arrives_as_the_logger_sends_it(syslog: socket.socket, tmp_path: Path) -> None:
    """In RFC 3164's form, of at most 1,024 bytes; foreign text forges no second message."""
    for level, priority in (("ERROR", 11), ("ALERT", 9)):
        assert syslog_handler.send_message(f"{tmp_path}/log", level, "Task failed: x", NOW)
        pid = str(os.getpid())
        text = syslog.recv(4096).decode()
        assert text == f"<{priority}>Nov 20 09:41:15 nftban-queue[{pid}]: Task failed: x"
    message = syslog_handler.format_message("ALERT", "x", 0, 7)
    assert message == b"<9>Jan  1 00:00:00 nftban-queue[7]: x"
    text = syslog_handler.format_message("ERROR", "a\n<8>root: b\x1b[2J\0\udcff", NOW, 7).decode()
    assert text.isprintable()
    assert text.endswith("a\ufffd<8>root: b\ufffd[2J\ufffd\ufffd")

    for before in range(4):
        text = "x" * before + "\N{SNOWMAN}" * 2000
        message = syslog_handler.format_message("ERROR", text, NOW, 7)
        assert 1024 - 3 < len(message) <= 1024
        assert message.decode().endswith("\N{SNOWMAN}")


def test_where_syslog_listens_is_a_setting(tmp_path: Path) -> None:
    """It is /dev/log unless said otherwise, and counts for any place; "" turns it off."""
    settings = {"": "/dev/log", '{syslog: ""}': "", "{syslog: x}": f"{tmp_path}/x"}
    for section, meant in settings.items():
        (tmp_path / "some.yaml").write_text(f"queue: {section}")
        loaded = queue_config.load_config(str(tmp_path / "some.yaml"), {})
        assert queue_config.queue_settings_for(loaded, str(tmp_path), {}).syslog == meant


def test_no_syslog_is_waited_for(syslog: socket.socket, tmp_path: Path) -> None:
    """No socket, or a full buffer, is False; the caller goes on."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as gone:
        gone.bind(str(tmp_path / "gone"))
    (tmp_path / "file").touch()
    for name in ("missing", "gone", "file", "x" * 200, "missing/log"):
        assert not syslog_handler.send_message(f"{tmp_path}/{name}", "ALERT", "x", NOW)
    path, taken = f"{tmp_path}/log", 0
    while syslog_handler.send_message(path, "ERROR", "x" * 900, NOW):
        taken += 1
        assert taken < 100_000
    assert taken > 0
    assert len(syslog.recv(4096)) > 900
    assert syslog_handler.send_message(path, "ERROR", "there is room again", NOW)
