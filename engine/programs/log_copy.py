"""The end of a mail server's log behind a prefix, copied to a file of ours while a screen shows it:
screens read that file as any log."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime

from engine.logs.log_line import Zone, lacks_zone, parse_head
from engine.programs.mail_log import MailLog, ask_zone
from engine.programs.server_watch import SETTINGS_SECONDS, TAIL_BYTES, LogTail, read_tail
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text

NAME = "mail.log"
"""The file in the state folder of the place."""
FETCH_SECONDS = 10.0
"""Seconds for which a copy is current."""
NEXT_BYTES = 64 << 10
"""Bytes that are asked for first, if there is a copy already."""
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
        self._due = self._log_due = float("-inf")
        self._log: MailLog | None = None
        self._source = ""
        """The path that was copied last: for a moment of a rotation it may not be there."""
        self._problem = ""
        self._zone: Zone | None = None
        self._zone_due = float("-inf")

    def fetch(self) -> str:
        """Append the new lines of the log by tail(1), unless that was done `FETCH_SECONDS` ago; ""
        or why it cannot be done. After a rotation the former file is read too; where the lines
        since the last fetch are more than `TAIL_BYTES`, the copy begins again."""
        with self._lock:
            if self._steady() >= self._due:
                self._problem = self._try_fetch()
                self._due = self._steady() + FETCH_SECONDS
            return self._problem

    def _try_fetch(self) -> str:
        try:
            if self._log is None or self._steady() >= self._log_due:
                self._log, self._source = self._find_log(), ""
                self._log_due = self._steady() + SETTINGS_SECONDS
            with closing_fd(files.open_dir(self._folder, make=True)) as folder:
                fd = files.open_shared(NAME, folder, os.O_RDWR | os.O_APPEND, 0o600)
            with closing_fd(fd):
                # Without the lock, another console is copying it now.
                return self._copy_end(self._log, fd) if files.claim_flock(fd) else ""
        except Unavailable as error:
            return str(error)
        except OSError as error:
            return f"{self.path}: {error_text(error)}"

    def _copy_end(self, log: MailLog, fd: int) -> str:
        """Append what a log has behind the end of the copy; "" or why it cannot be read."""
        size = os.fstat(fd).st_size
        at = max(0, size - _COMPARED_BYTES)
        end = b"" if size > MAX_BYTES else os.pread(fd, _COMPARED_BYTES, at)
        if end and self._source in log.paths:
            log = log._replace(paths=(self._source,), journal=())
        tail, data = LogTail(), b""
        for most in (NEXT_BYTES, TAIL_BYTES) if end else (TAIL_BYTES,):
            tail = read_tail(log, most)
            if tail.problem or not tail.lines:  # none yet after a rotation
                return tail.problem
            data = self._join(log, tail)
            if end and (at := data.rfind(end)) >= 0:
                files.write_all(fd, data[at + len(end) :])
                return ""
        before = b""
        if end and not tail.is_cut:
            former = read_tail(log._replace(paths=(f"{tail.path}.1",), journal=()))
            before = self._join(log, former)
        if end and (at := before.rfind(end)) >= 0:
            data = before[at + len(end) :] + data
        else:
            os.truncate(fd, 0)
        files.write_all(fd, data)
        self._source = tail.path
        return ""

    def _join(self, log: MailLog, tail: LogTail) -> bytes:
        """The lines, with times that name their zone: here they would be of another one."""
        lines = tail.lines
        if log.prefix.words and any(map(lacks_zone, lines)):
            if self._steady() >= self._zone_due:
                self._zone = ask_zone(log.prefix, tail.path) or self._zone
                self._zone_due = self._steady() + SETTINGS_SECONDS
            lines = [*_name_zone(lines, self._zone)] if self._zone is not None else lines
        return b"".join(line + b"\n" for line in lines)


def _name_zone(lines: Iterable[bytes], zone: Zone) -> Iterator[bytes]:
    before: float | None = None
    for line in lines:
        text = line.decode("utf-8", "surrogateescape")
        head = parse_head(text, before, zone=zone) if lacks_zone(line) else None
        if head is not None:
            with suppress(ValueError):  # in UTC, it is in the year 0 or 10000
                stamp = datetime.fromtimestamp(head[0], UTC).isoformat()
                before, text = head[0], f"{stamp} {head[1]}"
        yield text.encode("utf-8", "surrogateescape")
