"""What the delivery records say of mails that were not sent, with the transports' own words.

The latest stands last. Their file is put in place anew whenever it is cut to its size, so it is
read as a whole, and only when it has changed.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence

from engine.logs.delivery_records import FAILED, parse
from engine.monitor.mail_monitor import LAST, NO_RECORDS
from engine.monitor.transport_health import FOLLOWED, Failure
from engine.system import files

READ = 256 * 1024
"""Bytes before its end that are read: its writer keeps 500 records."""

_CALLED = re.compile(r"([a-z][a-z0-9_.]{1,39}): (\S.*)")
"""A reason that begins with one word for logs, as our own program writes them."""


class Deliveries:
    """Follows one file of delivery records; whatever it is that lies there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._failures: Mapping[str, Sequence[Failure]] = NO_RECORDS

    def look(self) -> Mapping[str, Sequence[Failure]]:
        """The failures it tells of, by transport, the latest first; none while it is not there.

        Raises:
            OSError: it is there and cannot be read.
        """
        try:
            fd = files.open_file(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self._seen, self._failures = None, NO_RECORDS
            return self._failures
        try:
            state = os.fstat(fd)
            seen = (state.st_ino, state.st_mtime_ns, state.st_size)
            if stat.S_ISREG(state.st_mode) and seen != self._seen:
                at = max(0, state.st_size - READ)
                self._failures = failures(os.pread(fd, READ, at), torn=at > 0)
                self._seen = seen
        finally:
            os.close(fd)
        return self._failures


def failures(data: bytes, *, torn: bool = False) -> dict[str, tuple[Failure, ...]]:
    """What records say failed, by transport, the latest first; `torn`: the first line is cut."""
    found: dict[str, list[Failure]] = {}
    for told in map(parse, reversed(data.split(b"\n")[torn:-1])):
        if told is not None and told.transport and told.result == FAILED:
            called = _CALLED.fullmatch(told.reason)
            failure = Failure(told.when, *(called.groups() if called else [told.reason]))
            found.setdefault(told.transport, []).append(failure)
    return {name: tuple(found[name][:LAST]) for name in [*found][:FOLLOWED]}
