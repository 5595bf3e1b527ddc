"""Places of all stores for the conformance suite, also in use by another program."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.kannader.store import KannaderStore
from engine.formats.nftban.store import SpoolFolders
from engine.formats.zgb.place import ZgbDatabase
from engine.formats.zgb.store import ZgbStore
from engine.store import Store
from tests.engine.formats.bullmq.conftest import client, open_bullmq
from tests.engine.formats.kannader.conftest import kannader, open_kannader
from tests.engine.formats.nftban.conftest import spool
from tests.engine.formats.zgb.conftest import open_queue, place
from tests.nftban_spool import NOW, opened

__all__ = ["client", "kannader", "open_bullmq", "open_kannader"]
__all__ += ["open_queue", "place", "spool"]


@pytest.fixture
def now() -> float:
    """The time at which the stores of a test open, in epoch seconds."""
    return NOW


def _memory() -> Callable[[], Store]:
    memory = MemoryTasks()
    return lambda: MemoryStore(memory, lease_seconds=300.0, clock=lambda: NOW)


@pytest.fixture
def kannader_in_use(kannader: Path) -> Iterator[None]:
    """Another program reads the folders of the spool all the time, and every file in them."""

    def look() -> None:
        for folder in ("queue", "inflight", "cleanup", "hold", "data"):
            for above, _, names in os.walk(kannader / folder):
                for name in names:
                    with suppress(OSError):  # moved or erased since it was listed
                        Path(above, name).read_bytes()

    with beside(look):
        yield


@pytest.fixture
def queue_in_use(place: ZgbDatabase) -> Iterator[None]:
    """Another program writes into a table of its own all the time, and reads all."""
    with closing(sqlite3.connect(place.path)) as db, db:
        db.execute("CREATE TABLE visits (number INTEGER)")

    def visit() -> None:
        with closing(sqlite3.connect(place.path, isolation_level=None, timeout=30)) as db:
            db.execute("PRAGMA synchronous = OFF")  # its lock is held for a moment, not for a disk
            db.execute("BEGIN IMMEDIATE")
            db.execute("INSERT INTO visits SELECT count(*) FROM mail_queue")
            db.execute("COMMIT")
            db.execute("SELECT * FROM mail_queue").fetchall()

    with beside(visit):
        yield


GENTLY = 0.01
"""Seconds between two visits: who waits for the other's lock comes by it."""


@contextmanager
def beside(act: Callable[[], None]) -> Iterator[None]:
    """Do something again and again on another thread; its first error is raised at the end."""
    over, met = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not over.wait(GENTLY):
                act()
        except Exception as error:
            met.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if met:
        raise met[0]


IN_USE = ("nftban-durable", "kannader-in-use", "zgb-in-use")
"""Places with each change synced, or used by another program at the same time."""


STORES = ("memory", "nftban", "kannader", "zgb", "bullmq")


@pytest.fixture(params=STORES)
def open_store(
    request: pytest.FixtureRequest,
    spool: SpoolFolders,
    open_kannader: Callable[..., KannaderStore],
    open_queue: Callable[..., ZgbStore],
) -> Iterator[Callable[[], Store]]:
    """Open a further instance of the store under test, on the same tasks; all are closed."""
    users = {"kannader-in-use": "kannader_in_use", "zgb-in-use": "queue_in_use"}
    if request.param in users:
        request.getfixturevalue(users[request.param])
    if request.param == "bullmq":  # only then a server is needed
        yield request.getfixturevalue("open_bullmq")  # which closes them
        return
    openers: dict[str, Callable[[], Store]] = {
        "memory": _memory(),
        "nftban": partial(opened, spool),
        "nftban-durable": partial(opened, spool, durable=True),
        "kannader": open_kannader,
        "zgb": open_queue,
        "kannader-in-use": lambda: open_kannader(durable=True),
        "zgb-in-use": open_queue,
    }
    with ExitStack() as stack:
        yield lambda: stack.enter_context(closing(openers[request.param]()))
