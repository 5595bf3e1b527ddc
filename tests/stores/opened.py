"""Open a place of any format with the format's defaults, as a library user would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine.formats.base import detect
from engine.store import Store


def open_store(place: str, clock: Callable[[], float] = time.time) -> Store:
    """Open the store at a path; raises `Unavailable`."""
    if detect.has_folders(place, detect.KANNADER_FOLDERS):
        from engine.formats.kannader.store import KannaderStore

        return KannaderStore(place, clock)
    if detect.is_sqlite_file(place):
        from engine.formats.zgb.place import ZgbDatabase
        from engine.formats.zgb.store import ZgbStore

        return ZgbStore(ZgbDatabase(place), clock)
    from engine.formats.nftban.store import NftbanStore, SpoolFolders

    queue = detect.find_queue_folder(place)
    # Payload paths are absolute.
    root = str((Path(queue).parent if queue != place else Path(place)).absolute())
    pending, work, dlq = (f"{queue}/{word}" for word in detect.QUEUE_FOLDERS)
    return NftbanStore(
        SpoolFolders(pending, work, dlq, mail_spool=f"{root}/mailspool", root=root), clock
    )
