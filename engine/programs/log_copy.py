"""The end of a mail server's log behind a prefix, copied to a file of ours while a screen shows it:
screens read that file as any log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from engine.programs.mail_log import MailLog
from engine.programs.server_watch import TAIL_BYTES, read_tail
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

NAME = "mail.log"
"""The file in the state folder of the place."""
FETCH_SECONDS = 10.0
"""Seconds for which a copy is current."""
MAX_BYTES = 16 * TAIL_BYTES
"""A longer copy begins again with the end of the log."""
_COMPARED_BYTES = 4096
"""Bytes at the end of the copy that show where the new lines begin."""


class LogCopy:
    """The copy of one log; from any thread."""

    def __init__(
        self,
        find_log: Callable[[], MailLog],
        folder: str,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`find_log` may raise Unavailable; `folder` gets the copy, and is made if missing."""
        self.path = os.path.join(folder, NAME)
        self._find_log, self._folder, self._steady = find_log, folder, steady
        self._lock = threading.Lock()
        self._due = float("-inf")
        self._problem = ""

    def fetch(self) -> str:
        """Append the new lines of the log by tail(1), unless that was done `FETCH_SECONDS` ago; ""
        or why it cannot be done. More than `TAIL_BYTES` of new lines, or a rotated log, begin the
        copy again."""
        with self._lock:
            if self._steady() >= self._due:
                self._problem = self._try_fetch()
                self._due = self._steady() + FETCH_SECONDS
            return self._problem

    def _try_fetch(self) -> str:
        try:
            tail = read_tail(self._find_log())
            if tail.lines:
                self._append(b"".join(line + b"\n" for line in tail.lines))
        except Unavailable as error:
            return str(error)
        except OSError as error:
            return f"{self.path}: {error_text(error)}"
        return tail.problem

    def _append(self, tail: bytes) -> None:
        with closing_fd(files.open_dir(self._folder, make=True)) as folder:
            fd = files.open_shared(NAME, folder, os.O_RDWR | os.O_APPEND, 0o600)
        with closing_fd(fd):
            if not files.claim_flock(fd):
                return  # another console is copying it now
            size = os.fstat(fd).st_size
            end = os.pread(fd, _COMPARED_BYTES, max(0, size - _COMPARED_BYTES))
            at = tail.rfind(end) if end else -1
            if at < 0 or size > MAX_BYTES:
                os.truncate(fd, 0)
                at, end = 0, b""
            files.write_all(fd, tail[at + len(end) :])
