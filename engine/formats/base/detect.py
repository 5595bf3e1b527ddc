"""What a folder, file or URL of each format has, to detect it."""

from __future__ import annotations

import os

from engine.store import Unavailable
from engine.system import files

QUEUE_FOLDERS = ("pending", "work", "dlq")
KANNADER_FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool; an nftban data folder has none of them."""

ZMAILER_FOLDERS = ("transport", "queue", "router")
"""Folders of a ZMailer spool (POSTOFFICE)."""

REDIS_SCHEMES = frozenset({"redis", "rediss", "redis+unix", "unix"})
"""Schemes of the URL of a Redis or Valkey server; rediss is TLS."""

MAILQ_SCHEMES = frozenset({"mailq", "mailq+unix"})
"""Schemes of the URL of a ZMailer scheduler that is reached by MAILQ."""

MAILQ_DUMP_HEADER = b"version zmailer 1."
"""The first bytes of a rendezvous file: a dump of MAILQ version 1."""

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of every SQLite 3 database."""


def has_folders(place: str, names: tuple[str, ...]) -> bool:
    """True if a place is a folder with all these folders."""
    return all(os.path.isdir(os.path.join(place, name)) for name in names)


def is_sqlite_file(place: str) -> bool:
    """True if a place is a SQLite database."""
    return begins_with(place, SQLITE_HEADER)


def begins_with(place: str, header: bytes) -> bool:
    """True if a place is a plain file that begins with some bytes.

    Only a plain file is opened: reading from a FIFO could block forever.
    """
    if not os.path.isfile(place):
        return False
    try:
        fd = files.open_file(place)
    except OSError:
        return False  # opening the place later reports the error
    try:
        return os.read(fd, len(header)) == header
    finally:
        os.close(fd)


def find_queue_folder(place: str) -> str:
    """Return the folder of a place that has `pending`, `work` and `dlq`.

    Raises:
        Unavailable: not found; the message names what was expected.
    """
    for folder in (os.path.join(place, "queue"), place):
        if has_folders(folder, QUEUE_FOLDERS):
            return folder
    if not os.path.exists(place):
        raise Unavailable(f"{place}: no such folder")
    if not os.path.isdir(place):
        raise Unavailable(f"{place}: not a SQLite database, expected one or a folder")
    if not os.access(place, os.R_OK | os.X_OK):
        raise Unavailable(f"{place}: Permission denied")
    raise Unavailable(f"{place}: no queue, expected pending, work and dlq here or in queue/")
