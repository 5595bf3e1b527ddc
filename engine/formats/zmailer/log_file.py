"""The log of a scheduler: lines with a time, in a file that another program may rotate."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from engine.system import files
from engine.text.safe import safe_line

REOPEN_SECONDS = 25.0
"""How often the file is opened again without a signal, as ZMailer 3.0.1 does."""

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
    dir_fd = files.open_dir_path(folder or ".")
    try:
        return files.open_shared(name, dir_fd, os.O_WRONLY | os.O_APPEND, _MODE)
    finally:
        os.close(dir_fd)
