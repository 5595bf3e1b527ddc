"""The newest delivery records: one line of JSON for each mail that was sent, failed or spooled."""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from engine import files
from engine.text import ERROR_LIMIT, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

SUCCESS, FAILED, SPOOLED = "success", "failed", "spooled"

_SHORTEST, _LONGEST = 64, 1024
"""Bytes of a record: one without recipient and reason has more, one with the longest less."""

_LEAST = 5
"""Records above the most that are let be, at the least, before the oldest are removed."""


class Delivery(NamedTuple):
    """What became of a mail."""

    when: float
    """Epoch seconds UTC."""
    transport: str
    recipient: str
    result: str
    """One of SUCCESS, FAILED and SPOOLED."""
    reason: str = ""


def record(delivery: Delivery) -> bytes:
    """One line, with the keys and in the form of the real program; the recipient is cut."""
    local = shown(delivery.recipient.partition("@")[0])[:64]
    said = {
        "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(delivery.when)),
        "transport": shown(delivery.transport)[:64],
        "recipient": f"{local}@\u2026",
        "result": delivery.result,
        "reason": shown(delivery.reason)[:ERROR_LIMIT],
    }
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


class Deliveries:
    """The file of delivery records, shared by all who send."""

    def __init__(self, path: str, most: int, root: str = "") -> None:
        """`most` records are kept, and at times an eighth more, or ten; `root` is the data folder
        below which no symbolic link is followed.
        """
        self._path, self._most, self._root = path, most, root
        self._slack = max(_LEAST, most // 16)

    def add(self, delivery: Delivery) -> None:
        """Append a record.

        Raises:
            OSError: it could not be written, or the old ones could not be removed.
        """
        folder, name = os.path.split(self._path)
        data = record(delivery)
        here = files.enter(folder, self._root, make=True)
        try:
            with _locked(f"{name}.lock", here):
                before = self._append(name, here, data)
                # Counted once in so many bytes, and written anew once in so many records: what a
                # mail costs does not grow with the file.
                step = self._slack * _SHORTEST
                if before // step != (before + len(data)) // step:
                    self._trim(name, here)
        finally:
            os.close(here)

    def _append(self, name: str, here: int, data: bytes) -> int:
        """Write behind what is there, and answer how many bytes that is."""
        fd = files.open_shared(name, here, os.O_RDWR | os.O_APPEND)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # whoever wrote before did not come to its end
            try:
                files.write_all(fd, data)
            except OSError:
                if size < os.fstat(fd).st_size < size + len(data):
                    files.ftruncate(fd, size)  # half a record is none
                raise
        finally:
            os.close(fd)
        return size

    def _trim(self, name: str, here: int) -> None:
        """Keep the newest records, by a new file in place of the old one."""
        fd = files.open_plain(name, here)
        try:
            seen = os.fstat(fd)
            start = max(0, seen.st_size - self._most * _LONGEST)
            data = b""
            while more := os.pread(fd, seen.st_size - start - len(data), start + len(data)):
                data += more
        finally:
            os.close(fd)
        lines = data.splitlines(keepends=True)
        if start:
            lines = lines[1:]  # its beginning may have been cut off
        if start or len(lines) > self._most + self._slack:
            files.replace(name, here, b"".join(lines[-self._most :]), like=seen)


@contextmanager
def _locked(name: str, here: int) -> Iterator[None]:
    # Beside the file: what is under its name is another file after each trim.
    fd = files.open_shared(name, here, os.O_RDWR)
    try:
        with files.Flock(fd):
            yield
    finally:
        os.close(fd)
