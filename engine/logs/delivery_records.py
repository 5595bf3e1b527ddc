"""Delivery records: one JSON line for the result of each mail, in the format of two programs."""

from __future__ import annotations

import json
import os
import time
from datetime import datetime

from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text import decode
from engine.text.safe import ERROR_LIMIT, safe_line
from engine.values import NamedTuple

SUCCESS, FAILED, SPOOLED = "success", "failed", "spooled"

RETRIED = "retried by an operator"
"""The reason of a SPOOLED record: the latest refusal for this recipient before it was mended."""

_SHORTEST, _LONGEST = 64, 1024
"""Bytes of a record: the shortest one has more, the longest one has fewer."""

_LEAST = 5
"""Records above the maximum that are tolerated, at the least, before the oldest are removed."""


class Delivery(NamedTuple):
    """The result of a mail."""

    when: float
    """Epoch seconds UTC."""
    transport: str
    recipient: str
    result: str
    """One of SUCCESS, FAILED and SPOOLED."""
    reason: str = ""


RECORD_KEYS = ("ts", *Delivery._fields[1:])
"""The keys of a line, in the order of the original program."""


def normalize_delivery(delivery: Delivery) -> Delivery:
    """Normalize a delivery as a record holds it: shortened, safe to show, whole seconds."""
    local = safe_line(delivery.recipient.partition("@")[0])[:64]
    transport, result, reason = map(
        safe_line, (delivery.transport, delivery.result, delivery.reason)
    )
    when = float(int(delivery.when))
    return Delivery(when, transport[:64], f"{local}@\u2026", result[:64], reason[:ERROR_LIMIT])


def format_record(delivery: Delivery) -> bytes:
    """Format a record, as the original program does."""
    when, *words = normalize_delivery(delivery)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when))
    fields = dict(zip(RECORD_KEYS, (stamp, *words), strict=True))
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def parse_record(raw: bytes) -> Delivery | None:
    """Parse a line of any origin; None if it is not a record."""
    try:
        fields = decode.check_object(decode.load_json(raw))
        stamp, *words = (str(fields[key]) for key in RECORD_KEYS)
        return normalize_delivery(Delivery(datetime.fromisoformat(stamp).timestamp(), *words))
    except (LookupError, OverflowError, ValueError):
        return None


class DeliveryRecords:
    """The file of delivery records, shared by all senders."""

    def __init__(self, path: str, most: int, root: str = "") -> None:
        """`most` records are kept, at times an eighth more, or ten; `root` is the data folder below
        which no symbolic link is followed."""
        self._path, self._most, self._root = path, most, root
        self._slack = max(_LEAST, most // 16)

    def add(self, delivery: Delivery) -> None:
        """Append a record. Raises `OSError`, also if old records cannot be removed."""
        folder, name = os.path.split(self._path)
        data, flags = format_record(delivery), os.O_RDWR
        with (
            closing_fd(files.open_dir(folder, self._root, make=True)) as folder_fd,
            # The flock is on a separate file, because each trim replaces the file itself.
            closing_fd(files.open_shared(f"{name}.lock", folder_fd, flags)) as lock,
            files.Flock(lock),
        ):
            before = self._append(name, folder_fd, data)
            # Lines are counted only after so many bytes, and rewritten only after so many
            # records: the cost of a mail does not grow with the file.
            step = self._slack * _SHORTEST
            if before // step != (before + len(data)) // step:
                self._trim(name, folder_fd)

    def _append(self, name: str, folder_fd: int, data: bytes) -> int:
        """Append to the file; return its former size in bytes."""
        with closing_fd(files.open_shared(name, folder_fd, os.O_RDWR | os.O_APPEND)) as fd:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data  # an earlier writer was interrupted in its line
            try:
                files.write_all(fd, data)
            except OSError:
                if size < os.fstat(fd).st_size < size + len(data):
                    files.ftruncate(fd, size)  # remove the half-written record
                raise
        return size

    def _trim(self, name: str, folder_fd: int) -> None:
        with closing_fd(files.open_plain(name, folder_fd)) as fd:
            file_stat = os.fstat(fd)
            start = max(0, file_stat.st_size - self._most * _LONGEST)
            data = b""
            while more := os.pread(fd, file_stat.st_size - start - len(data), start + len(data)):
                data += more
        lines = data.splitlines(keepends=True)
        if start:
            lines = lines[1:]  # the first line may be incomplete
        if start or len(lines) > self._most + self._slack:
            files.replace_durably(name, folder_fd, b"".join(lines[-self._most :]), like=file_stat)
