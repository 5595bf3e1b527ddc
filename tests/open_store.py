"""Open a place of any format with the format's defaults, as a library user would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from engine.config.place_address import Address
from engine.formats.kannader.format import FORMAT as KANNADER
from engine.formats.nftban import detect
from engine.formats.zgb.format import FORMAT as ZGB
from engine.store import Store


def open_store(place: str, clock: Callable[[], float] = time.time) -> Store:
    """Open the store at a path; raises `Unavailable`."""
    if KANNADER.detects(Address(place)):
        from engine.formats.kannader.store import KannaderStore

        return KannaderStore(place, clock)
    if ZGB.detects(Address(place)):
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
