"""Detect the format of a folder or file, and open its store."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from engine.store import Store, Unavailable
from engine.system import files

QUEUE_FOLDERS = ("pending", "work", "dlq")
KANNADER_FOLDERS = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool; an nftban data folder has none of them."""

SQLITE_HEADER = b"SQLite format 3\0"
"""The first bytes of every SQLite 3 database."""


def has_folders(place: str, names: tuple[str, ...]) -> bool:
    """True if a place is a folder with all these folders."""
    return all(os.path.isdir(os.path.join(place, name)) for name in names)


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
        if has_folders(folder, QUEUE_FOLDERS):
            return folder
    if not os.path.exists(place):
        raise Unavailable(f"{place}: no such folder")
    if not os.path.isdir(place):
        raise Unavailable(f"{place}: not a SQLite database, expected one or a folder")
    if not os.access(place, os.R_OK | os.X_OK):
        raise Unavailable(f"{place}: Permission denied")
    raise Unavailable(f"{place}: no queue, expected pending, work and dlq here or in queue/")


Clock = Callable[[], float]


def _open_kannader(place: str, clock: Clock) -> Store:
    from engine.stores.kannader import KannaderStore

    return KannaderStore(place, clock)


def _open_zgb(place: str, clock: Clock) -> Store:
    from engine.stores.zgb import ZgbDatabase, ZgbStore

    return ZgbStore(ZgbDatabase(place), clock)


def _open_nftban(place: str, clock: Clock) -> Store:
    from engine.stores.nftban import NftbanStore, SpoolFolders

    queue = find_queue_folder(place)
    # Payload paths are absolute.
    root = os.path.abspath(os.path.dirname(queue) if queue != place else place)
    pending, work, dlq = (f"{queue}/{word}" for word in QUEUE_FOLDERS)
    return NftbanStore(
        SpoolFolders(pending, work, dlq, mail_spool=f"{root}/mailspool", root=root), clock
    )


class StoreFormat(NamedTuple):
    """How places of one format are detected, and opened with the format's defaults."""

    is_here: Callable[[str], bool]
    open: Callable[[str, Clock], Store]


STORE_FORMATS: Mapping[str, StoreFormat] = {
    "kannader": StoreFormat(lambda at: has_folders(at, KANNADER_FOLDERS), _open_kannader),
    "zgb": StoreFormat(is_sqlite_file, _open_zgb),
    "nftban": StoreFormat(lambda at: True, _open_nftban),
}
"""The formats of folders and files, by name. The first that fits is used: the last takes what the
others leave, and its error says what was expected.
"""


def detect_format(place: str) -> str:
    """Return the name of the format of a path."""
    return next(name for name, form in STORE_FORMATS.items() if form.is_here(place))


def open_store(place: str, clock: Clock = time.time) -> Store:
    """Open the store at a path with the format's defaults.

    Raises:
        Unavailable: the place has no known format, or cannot be read.
    """
    return STORE_FORMATS[detect_format(place)].open(place, clock)
