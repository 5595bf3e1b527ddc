"""Detect the format of a place by its folders or file header, and open its store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from engine.store import Store, Unavailable
from engine.system import files

QUEUE_FOLDERS = ("pending", "work", "dlq")
KANNADER_FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool; an nftban data folder has none of them."""

KANNADER, ZGB = "kannader", "zgb"
"""Names of the formats other than nftban."""

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of every SQLite 3 database."""


def open_store(place: str, clock: Callable[[], float] = time.time) -> Store:
    """Open the store at a place with the format's defaults.

    A place is an nftban data folder (with `queue/{pending,work,dlq}`), a bare queue folder (with
    `pending`, `work` and `dlq`), a Kannader spool (with `data`, `queue`, `inflight` and `cleanup`),
    or a SQLite database with the table `mail_queue`.

    Raises:
        Unavailable: the place has no known format, or cannot be read.
    """
    found = detect_format(place)
    if found == KANNADER:
        from engine.stores.kannader import KannaderStore

        return KannaderStore(place, clock)

    if found == ZGB:
        from engine.stores.zgb import ZgbDatabase, ZgbStore

        return ZgbStore(ZgbDatabase(place), clock)

    from engine.stores.nftban import NftbanStore, SpoolFolders

    queue = find_queue_folder(place)
    # Payload paths are absolute.
    root = os.path.abspath(os.path.dirname(queue) if queue != place else place)
    pending, work, dlq = (f"{queue}/{word}" for word in QUEUE_FOLDERS)
    return NftbanStore(
        SpoolFolders(pending, work, dlq, mail_spool=f"{root}/mailspool", root=root), clock
    )


def detect_format(place: str) -> str:
    """Return the name of the format of a place; "" for nftban or if none is detected."""
    if all(os.path.isdir(os.path.join(place, word)) for word in KANNADER_FOLDERS):
        return KANNADER
    return ZGB if is_sqlite_file(place) else ""


def is_sqlite_file(place: str) -> bool:
    """True if a place is a plain file with the header of a SQLite database.

    Only a plain file is opened: reading from a FIFO could block forever.
    """
    if not os.path.isfile(place):
        return False
    try:
        fd = files.open_file(place)
    except OSError:
        return False  # opening the place later reports the error
    try:
        return os.read(fd, len(SQLITE_HEADER)) == SQLITE_HEADER
    finally:
        os.close(fd)


def find_queue_folder(place: str) -> str:
    """Return the folder of a place that has `pending`, `work` and `dlq`.

    Raises:
        Unavailable: there is none; the message names what was expected.
    """
    for folder in (os.path.join(place, "queue"), place):
        if all(os.path.isdir(os.path.join(folder, word)) for word in QUEUE_FOLDERS):
            return folder
    if not os.path.exists(place):
        raise Unavailable(f"{place}: no such folder")
    if not os.path.isdir(place):
        raise Unavailable(f"{place}: not a SQLite database, expected one or a folder")
    if not os.access(place, os.R_OK | os.X_OK):
        raise Unavailable(f"{place}: Permission denied")
    raise Unavailable(f"{place}: no queue, expected pending, work and dlq here or in queue/")
