"""The stores, one format each; `open_store` finds out which one a place is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from engine.store import Store, Unavailable
from engine.system import files

QUEUE = ("pending", "work", "dlq")
LINKED = ("data", "queue", "inflight", "cleanup")
"""The folders of a Kannader spool, which no data folder of the contract has."""

KANNADER, ZGB = "kannader", "zgb"
"""The formats besides the contract's, by their names."""

DATABASE = b"SQLite format 3\0"
"""How a SQLite database begins, in every version of the format."""


def open_store(place: str, clock: Callable[[], float] = time.time) -> Store:
    """The store at a place, with the format's own defaults.

    A place is an nftban data folder (with `queue/{pending,work,dlq}`), a bare queue folder
    (with `pending`, `work` and `dlq`), a Kannader spool (with `data`, `queue`, `inflight` and
    `cleanup`), or a SQLite database with zgb's mail queue in it.

    Raises:
        Unavailable: nothing is there that any store knows, or it cannot be read.
    """
    found = format_of(place)
    if found == KANNADER:
        from engine.stores.kannader import KannaderStore

        return KannaderStore(place, clock)

    if found == ZGB:
        from engine.stores.zgb import ZgbDatabase, ZgbStore

        return ZgbStore(ZgbDatabase(place), clock)

    from engine.stores.nftban import NftbanStore, SpoolFolders

    queue = queue_folder(place)
    # Payloads are named by absolute paths.
    root = os.path.abspath(os.path.dirname(queue) if queue != place else place)
    pending, work, dlq = (f"{queue}/{word}" for word in QUEUE)
    return NftbanStore(
        SpoolFolders(pending, work, dlq, mail_spool=f"{root}/mailspool", root=root), clock
    )


def format_of(place: str) -> str:
    """The name of the format that a place is in; "" for the contract's, or none that is known."""
    if all(os.path.isdir(os.path.join(place, word)) for word in LINKED):
        return KANNADER
    return ZGB if is_database(place) else ""


def is_database(place: str) -> bool:
    """Whether a place is a SQLite database, by how the file begins; False where that is not known.

    Only a plain file is opened: whoever reads from a pipe may wait for ever.
    """
    if not os.path.isfile(place):
        return False
    try:
        fd = files.open_file(place)
    except OSError:
        return False  # what follows says what is wrong with it
    try:
        return os.read(fd, len(DATABASE)) == DATABASE
    finally:
        os.close(fd)


def queue_folder(place: str) -> str:
    """The folder of a place in which `pending`, `work` and `dlq` lie.

    Raises:
        Unavailable: there is none; the message says what was expected.
    """
    for folder in (os.path.join(place, "queue"), place):
        if all(os.path.isdir(os.path.join(folder, word)) for word in QUEUE):
            return folder
    if not os.path.exists(place):
        raise Unavailable(f"{place}: no such folder")
    if not os.path.isdir(place):
        raise Unavailable(f"{place}: a file, and no SQLite database; expected one, or a folder")
    if not os.access(place, os.R_OK | os.X_OK):
        raise Unavailable(f"{place}: may not be read by this user")
    raise Unavailable(f"{place}: no queue in it, expected pending, work and dlq here or in queue/")
