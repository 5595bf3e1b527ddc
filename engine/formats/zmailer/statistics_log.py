"""The statistics log of scheduler(8zm), option -l: one line for each recipient that has ended.

Counts how the last ones ended: they have left the spool; and the reports to their senders, which
wait in router/.
"""

from __future__ import annotations

import os
import re
from collections import Counter, deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import inf

from engine.formats.zmailer.options import WrongOption, parse_options
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.folders import PostofficeFolders
from engine.formats.zmailer.submit import ROUTER
from engine.locks import lock_file
from engine.logs.recent_lines import RecentLines
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.values import NamedTuple

STATES = ("ok", "ok2", "ok3", "error", "error2", "expire")
"""What the program writes. Its man page has ok, error and expiry."""

_READ_STATES = frozenset({*STATES, "expiry"})


class StatisticsLine(NamedTuple):
    """The end of one recipient."""

    message: str
    """The spool id; in the old form the name of the control file."""
    queued: int
    """Seconds from the message file to its control file: the time of the router."""
    delivery: int
    """Seconds from the control file to the end."""
    state: str
    channel: str
    host: str
    time: float | None = None
    """Epoch seconds UTC; None in the new form, which has none."""


def format_line(line: StatisticsLine) -> str:
    """The new form with its LF: `SPOOLID DT1 DT2 STATE CHANNEL/HOST`."""
    where = f"{line.channel}/{line.host}".replace("\n", " ")
    return f"{line.message} {line.queued} {line.delivery} {line.state} {where}\n"


def parse_line(text: str) -> StatisticsLine | None:
    """Parse a line of either form; None if it is none of them.

    The old form is `TIMESTAMP FILEID DT1 DT2 STATE CHANNEL/HOST`."""
    words = text.rstrip("\n").split(" ", 4)
    moment = None
    if names.spool_id_number(words[0]) is None:
        if not _is_number(words[0]):
            return None
        moment, words = float(words[0]), text.rstrip("\n").split(" ", 5)[1:]
        if len(words) == 5 and names.message_number(words[0]) is None:
            return None
    if len(words) != 5 or not (_is_number(words[1]) and _is_number(words[2])):
        return None
    channel, slash, host = words[4].partition("/")
    if words[3] not in _READ_STATES or not slash:
        return None
    return StatisticsLine(
        words[0],
        int(words[1]),
        int(words[2]),
        state=words[3],
        channel=channel,
        host=host,
        time=moment,
    )


def _is_number(word: str) -> bool:
    digits = word.removeprefix("-")  # a clock that was set back
    return digits.isascii() and digits.isdecimal() and len(digits) <= 12


FAILURES = frozenset({"error", "error2", "expire", "expiry"})
"""States of the log that mean that the sender gets no delivery."""

LAST_ENDS = 1000
"""So many of the last ends are counted together."""
FIRST_BYTES = 1 << 18
"""Bytes of the log that are read first, those at its end."""
MAX_POLLS = 4
"""Most polls of the log in one reading; each reads about 1 MB."""

MIN_FAILURES, MIN_SHARE = 5, 0.2
"""From so many failures, and this share of the last ends, an operator is warned."""
OLD_SECONDS = 3600.0
"""An older log warns of nothing."""


MAX_ROUTER_MAILS = 200
"""So many mails in router/ are opened to tell the reports among them."""
_REPORT = re.compile(rb"\A(?:[a-z]+ .*\n){0,3}channel error\n")
"""The envelope of a mail without a sender."""


class RouterMails(NamedTuple):
    """Mails in router/: each waits for the router, which no scheduler starts."""

    mails: int
    reports: int
    """Those without a sender, as reports of failures are, among the first `MAX_ROUTER_MAILS`."""
    oldest: float
    """When the oldest of those was written, epoch seconds UTC; infinite without mails."""


def read_router(folders: PostofficeFolders) -> RouterMails:
    """Count the mails in router/. Raises OSError: it cannot be read."""
    reports, oldest = 0, inf
    with folders.open_below(folders.fd, ROUTER) as router_fd:
        mails = [name for name in os.listdir(router_fd) if names.message_number(name) is not None]
        for name in mails[:MAX_ROUTER_MAILS]:
            with (
                suppress(FileNotFoundError),  # the router has taken it
                closing_fd(files.open_plain(name, router_fd)) as fd,
            ):
                oldest = min(oldest, os.fstat(fd).st_mtime)
                reports += _REPORT.match(os.pread(fd, 512, 0)) is not None
    return RouterMails(len(mails), reports, oldest)


class RecentEnds(NamedTuple):
    """The last ends of a log."""

    ended: int
    failed: int
    by_thread: Mapping[str, int]
    """Failures by CHANNEL/HOST, the most first."""
    total_failed: int
    """Failures since the first reading, with those of its part; it only grows."""
    written: float
    """When the log was last written, epoch seconds UTC."""

    @property
    def is_alarming(self) -> bool:
        """True if so many failed that an operator is warned."""
        return self.failed >= max(MIN_FAILURES, MIN_SHARE * self.ended)


class EndsReader:
    """Follows one statistics log; it may be rotated."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lines = RecentLines(path, inf, FIRST_BYTES)
        self._total = 0
        self._last: deque[tuple[bool, str]] = deque(maxlen=LAST_ENDS)

    def read(self) -> RecentEnds:
        """Read what was added. Raises OSError: it cannot be read, or is no plain file."""
        modified = os.stat(self.path).st_mtime
        for _ in range(MAX_POLLS):
            for line in self._lines.poll(modified):
                self._count(line.text)
        if self._lines.problem:
            raise OSError(self._lines.problem)
        failures = Counter(thread for is_failure, thread in self._last if is_failure)
        by_thread = dict(failures.most_common())
        return RecentEnds(len(self._last), failures.total(), by_thread, self._total, modified)

    def close(self) -> None:
        """Close the log."""
        self._lines.close()

    def _count(self, line: str) -> None:
        end = parse_line(line)
        if end is not None:
            is_failure = end.state in FAILURES
            self._last.append((is_failure, f"{end.channel}/{end.host}"))
            self._total += is_failure


def find_statistics_log(
    scheduler: int, read: Callable[[str], bytes] = lock_file.read_proc_file
) -> str:
    """The path of the option -l of a running scheduler, from /proc; "" if it has none, or a
    relative one."""
    try:
        words = read(f"/proc/{scheduler}/cmdline").split(b"\0")[:-1]
    except OSError:
        return ""
    named = [os.fsdecode(word) for word in words]
    names = [os.path.basename(word) for word in named]
    try:
        path = parse_options(named[names.index("scheduler") + 1 :]).statistics
    except (ValueError, WrongOption):
        return ""
    return path if os.path.isabs(path) else ""
