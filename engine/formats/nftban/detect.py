"""What a folder with an NFTBan queue has."""

from __future__ import annotations

import os

from engine.formats.base.detect import has_folders
from engine.store import Unavailable

QUEUE_FOLDERS = ("pending", "work", "dlq")


def has_queue_folders(path: str) -> bool:
    """True if a path is that of a queue: its data folder, or `queue` in it."""
    folders = (f"{path}/queue/pending", f"{path}/pending")
    return bool(path) and any(map(os.path.isdir, folders))


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
