"""Read failed mails from the delivery records, with the transports' own error texts.

The file has the latest record last. It is replaced whenever it is cut to its size, so it is read as
a whole, and only when it has changed."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from engine.logs.delivery_records import FAILED, RETRIED, SPOOLED, Delivery, parse_record
from engine.monitor.mail_monitor import MAX_FAILURES, NO_RECORDS
from engine.monitor.transport_health import MAX_TRANSPORTS, Failure, Refusals
from engine.system import files
from engine.system.cleanup import closing_fd

TAIL_BYTES = 256 * 1024
"""Bytes read from the end of the file: its writer keeps 500 records."""

KEPT_RECORDS = 500
"""Default number of records that the writer keeps."""

_REASON = re.compile(r"([a-z][a-z0-9_.]{1,39}): (\S.*)")
"""A reason that begins with an error word, as our own program writes it: `word: text`."""


class DeliveryReader:
    """Reader of one delivery record file, of which the writer keeps `record_limit` records."""

    def __init__(self, path: str, record_limit: int = KEPT_RECORDS) -> None:
        self._path, self._record_limit = path, record_limit
        self.refusals = Refusals()
        self._file_key: tuple[int, int, int] | None = None
        self._failures: Mapping[str, Sequence[Failure]] = NO_RECORDS

    def read(self) -> Mapping[str, Sequence[Failure]]:
        """Return the failures by transport, the latest first; none if there is no file.

        Raises:
            OSError: the file exists and cannot be read, or is not a regular file."""
        try:
            fd = files.open_file(self._path)
        except (FileNotFoundError, NotADirectoryError):
            self._file_key, self._failures, self.refusals = None, NO_RECORDS, Refusals()
            return self._failures
        with closing_fd(fd):
            state = os.fstat(fd)
            file_key = (state.st_ino, state.st_mtime_ns, state.st_size)
            if not stat.S_ISREG(state.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", self._path)
            if file_key != self._file_key:
                at = max(0, state.st_size - TAIL_BYTES)
                data = os.pread(fd, TAIL_BYTES, at)
                self._failures = parse_failures(data, torn=at > 0)
                self.refusals = parse_refusals(data, torn=at > 0, record_limit=self._record_limit)
                self._file_key = file_key
        return self._failures


def parse_failures(data: bytes, *, torn: bool = False) -> dict[str, tuple[Failure, ...]]:
    """Parse the failures of delivery records, by transport, the latest first; `torn`: the first
    line is incomplete."""
    failures: dict[str, list[Failure]] = {}
    for record in _records(data, torn=torn):
        if record.result == FAILED and record.transport:
            failures.setdefault(record.transport, []).append(_failure(record))
    return {name: tuple(failures[name][:MAX_FAILURES]) for name in [*failures][:MAX_TRANSPORTS]}


def parse_refusals(
    data: bytes, *, torn: bool = False, record_limit: int = KEPT_RECORDS
) -> Refusals:
    """Parse the mails that were refused for good, or neither sent nor stored. `torn`: the first
    line is incomplete; `record_limit`: with so many records older ones may have been removed."""
    failures: list[Failure] = []
    retried: Counter[str] = Counter()
    number, oldest = 0, 0.0
    for record in _records(data, torn=torn):
        number, oldest = number + 1, record.when
        if (record.result, record.reason) == (SPOOLED, RETRIED):
            retried[record.recipient] += 1
        elif record.result == FAILED:
            failure = _failure(record)
            if failure.word.startswith(_REFUSAL_WORDS):
                if retried[record.recipient] > 0:
                    retried[record.recipient] -= 1
                else:
                    failures.append(failure)
    return Refusals(tuple(failures), oldest if torn or number >= record_limit else 0.0)


_REFUSAL_WORDS = ("rejected_", "lost")
"""How the word of a mail begins that no further attempt follows by itself."""


def _records(data: bytes, *, torn: bool) -> Iterator[Delivery]:
    """The records, the latest first."""
    records = map(parse_record, reversed(data.split(b"\n")[torn:-1]))
    return (record for record in records if record is not None)


def _failure(record: Delivery) -> Failure:
    match = _REASON.fullmatch(record.reason)
    return Failure(record.when, *(match.groups() if match else [record.reason]))
