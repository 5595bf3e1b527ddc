"""Delivery records: what became of each mail, a line of JSON for each, as two programs write it."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from typing import NamedTuple

from engine.system import files
from engine.text import decode
from engine.text.safe import ERROR_LIMIT, shown

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


KEYS = ("ts", *Delivery._fields[1:])
"""Those of a line, in the order of the real program."""


def written(told: Delivery) -> Delivery:
    """The same as a record holds it: cut, safe to show, and at a whole second."""
    local = shown(told.recipient.partition("@")[0])[:64]
    transport, result, reason = map(shown, (told.transport, told.result, told.reason))
    when = float(int(told.when))
    return Delivery(when, transport[:64], f"{local}@\u2026", result[:64], reason[:ERROR_LIMIT])


def line(told: Delivery) -> bytes:
    """A record, in the form of the real program."""
    when, *words = written(told)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    said = dict(zip(KEYS, (stamp, *words), strict=True))
    return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def parse(raw: bytes) -> Delivery | None:
    """What a line says, whoever wrote it; None of one that is no record."""
    try:
        said = decode.mapping(decode.load_json(raw))
        stamp, *words = (str(said[key]) for key in KEYS)
        return written(Delivery(datetime.fromisoformat(stamp).timestamp(), *words))
    except (LookupError, OverflowError, ValueError):
        return None


class Records:
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
        data = line(delivery)
        here = files.enter(folder, self._root, make=True)
        try:
            # Beside the file: what is under its name is another file after each trim.
            lock = files.open_shared(f"{name}.lock", here, os.O_RDWR)
            try:
                with files.Flock(lock):
                    before = self._append(name, here, data)
                    # Counted once in so many bytes, and written anew once in so many records:
                    # what a mail costs does not grow with the file.
                    step = self._slack * _SHORTEST
                    if before // step != (before + len(data)) // step:
                        self._trim(name, here)
            finally:
                os.close(lock)
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
