"""What reaches a real terminal: the console in a process of its own, on a pseudo terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.tui.spools import make_spool, some_tasks

PROGRAM = """
import sys
from engine.stores import open_store
from tui.app import Console
from tui.place import Place
console = Console([Place(sys.argv[1], lambda: open_store(sys.argv[1]))])
console.run()
sys.exit(console.return_code)
"""

LEAVES = b"\x1b[?1049l"
"""Ends the alternate screen."""

SHOWS_CURSOR = b"\x1b[?25h"

PATIENCE = 30.0
"""Seconds after which it counts as hanging."""


@pytest.mark.parametrize(
    ("end", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (b"q", 0)],
    ids=["SIGTERM", "SIGHUP", "q"],
)
def test_the_terminal_is_left_as_it_was(
    tmp_path: Path, end: signal.Signals | bytes, code: int
) -> None:
    """However the console is ended, the alternate screen is left and the cursor is shown."""
    make_spool(tmp_path, some_tasks())
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
        start_new_session=True,
    )
    os.close(theirs)
    _read_until(ours, b"scope if you act now: ")
    _read_until(ours, b"row ")

    if isinstance(end, bytes):
        os.write(ours, end)
    else:
        process.send_signal(end)
    said = _read_to_end(ours)

    assert process.wait(PATIENCE) == code
    assert LEAVES in said
    assert SHOWS_CURSOR in said.rpartition(LEAVES)[0] + said.rpartition(LEAVES)[2]
    os.close(ours)


def _read_until(fd: int, wanted: bytes) -> None:
    said = b""
    deadline = time.monotonic() + PATIENCE
    while wanted not in said:
        assert time.monotonic() < deadline, said[-500:]
        if select.select([fd], [], [], 0.1)[0]:
            said += os.read(fd, 65536)


def _read_to_end(fd: int) -> bytes:
    said = b""
    while select.select([fd], [], [], PATIENCE)[0]:
        try:
            more = os.read(fd, 65536)
        except OSError:
            break
        if not more:
            break
        said += more
    return said
