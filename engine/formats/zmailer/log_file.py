"""What a scheduler writes: its log, the statistics log, syslog.

The log has lines with a time, in a file that another program may rotate.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

from engine.system import files, syslog_handler
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.text.safe import safe_line

REOPEN_SECONDS = 25.0
"""How often the file is opened again without a signal, as ZMailer 3.0.1 does."""

SYSLOG_SOCKET = "/dev/log"

_MODE = 0o644


def format_line(text: str, now: float) -> bytes:
    """A line with its time as YYYYMMDDhhmmss, local; control characters are made visible."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.localtime(now))} {safe_line(text)}\n".encode()


class SchedulerLog:
    """An open log."""

    def __init__(self, path: str, clock: Callable[[], float]) -> None:
        """`path` is "" for standard error; `clock` gives epoch seconds UTC. Raises OSError: the
        file cannot be opened or made."""
        self._path, self._clock = path, clock
        self.fd = -1
        """The descriptor; it stays the same after `reopen`."""
        self._reopen_at = 0.0
        self.reopen()

    def reopen(self) -> None:
        """Open the file by its name again: what it was before may have been renamed. Raises
        OSError: it cannot be opened or made; the old one stays in use."""
        self._reopen_at = self._clock() + REOPEN_SECONDS
        fd = _open_log(self._path) if self._path else os.dup(2)
        if self.fd < 0:
            self.fd = fd
            return
        os.dup2(fd, self.fd, inheritable=False)
        os.close(fd)

    def write(self, text: str) -> None:
        """Write one line. Raises OSError: it cannot be written."""
        now = self._clock()
        if self._path and not self._reopen_at - REOPEN_SECONDS <= now < self._reopen_at:
            self.reopen()
        files.write_all(self.fd, format_line(text, now))

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)


def _open_log(path: str) -> int:
    folder, name = os.path.split(path)
    with closing_fd(files.open_dir_path(folder or ".")) as dir_fd:
        return files.open_shared(name, dir_fd, os.O_WRONLY | os.O_APPEND, _MODE)


class SchedulerOutputs:
    """What a scheduler writes: its log, the statistics log, syslog."""

    def __init__(
        self, log: SchedulerLog, statistics: str, clock: Callable[[], float], *, has_syslog: bool
    ) -> None:
        """`statistics` is the path of that log; "": none."""
        self._log, self._statistics, self._clock = log, statistics, clock
        self._has_syslog = has_syslog

    def log(self, text: str) -> None:
        """Write a line to the log."""
        with suppress(OSError):  # a full disk must not stop the mail
            self._log.write(text)

    def statistics(self, line: str) -> None:
        """Write a line, with its LF, to the statistics log."""
        if self._statistics:
            try:
                files.append(self._statistics, line.encode("utf-8", "replace"))
            except OSError as error:
                self.log(f"{self._statistics}: {error_text(error)}")

    def syslog(self, text: str) -> None:
        """Send a line to syslog (facility mail, severity info), if SYSLOGFLG of zmailer.conf has a
        C; never waits."""
        if self._has_syslog:
            syslog_handler.send_message(
                SYSLOG_SOCKET,
                "INFO",
                text,
                now=self._clock(),
                tag="scheduler",
                facility=syslog_handler.MAIL,
            )
