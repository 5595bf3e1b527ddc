"""Places for the tests of the stores: fresh ones, opened as often as a test likes."""

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.config.place_address import parse_address
from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.formats.kannader.store import KannaderStore, make_spool
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.formats.zgb.place import RateLimit, ZgbDatabase
from engine.formats.zgb.schema import create
from engine.formats.zgb.store import ZgbStore
from engine.store import Store
from tests import command
from tests.bullmq_workers import CONFIG, StartWorker
from tests.nftban_spool import NOW, new_spool


@pytest.fixture
def now() -> float:
    """The time that the stores of a test are told, in epoch seconds."""
    return NOW


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFolders:
    """An empty spool with the contract's folders in a data folder, shared with another program."""
    return new_spool(tmp_path / "data")


@pytest.fixture
def open_spool(spool: SpoolFolders) -> Iterator[Callable[..., NftbanStore]]:
    """Open the test's spool once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(
            clock: Callable[[], float] = lambda: NOW,
            *,
            durable: bool = False,
            max_pending: int = 10_000,
        ) -> NftbanStore:
            place = spool._replace(durable=durable, max_pending=max_pending)
            return opened.enter_context(closing(NftbanStore(place, clock)))

        yield opener


@pytest.fixture
def place(tmp_path: Path) -> ZgbDatabase:
    """A mail queue that sends as fast as it is asked to, with 400 registrations from 1000 on."""
    path = str(tmp_path / "zgb.db")
    create(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(
            "INSERT INTO registrations VALUES (?, 0)", ((number,) for number in range(1000, 1400))
        )
        db.executemany(
            "INSERT INTO config VALUES (?, ?)",
            {
                "mailQueueEnabled": "1",
                "mailMaxPerHour": "1000000",
                "mailTokens": "1000000",
                "mailLastRefill": str(int(NOW)),
            }.items(),
        )
    return ZgbDatabase(path, rate_limit=RateLimit(1_000_000, 1_000_000), durable=False)


@pytest.fixture
def sql(place: ZgbDatabase) -> Callable[..., list[tuple[Any, ...]]]:
    """Carry out a statement on the test's mail queue as a program of somebody else's does."""

    def run(statement: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(place.path)) as db, db:
            return db.execute(statement, values).fetchall()

    return run


@pytest.fixture
def open_queue(place: ZgbDatabase) -> Iterator[Callable[..., ZgbStore]]:
    """Open the test's mail queue once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> ZgbStore:
            return opened.enter_context(closing(ZgbStore(place._replace(**settings), clock)))

        yield opener


@pytest.fixture
def user_job(open_queue: Callable[..., ZgbStore]) -> ZgbStore:
    """The test's mail queue with one job: the user's mail of registration 1001."""
    store = open_queue()
    store.enqueue(1001, ["user"])
    return store


@pytest.fixture
def both_jobs(open_queue: Callable[..., ZgbStore]) -> ZgbStore:
    """The test's mail queue with both jobs of registration 1001."""
    store = open_queue()
    store.enqueue(1001)
    return store


@pytest.fixture
def open_bullmq(redis_url: str) -> Iterator[Callable[..., BullmqStore]]:
    """Open the test's database once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> BullmqStore:
            place = parse_place(parse_address(redis_url))._replace(**settings)
            return opened.enter_context(closing(BullmqStore(place, clock)))

        yield opener


def _memory() -> Callable[[], Store]:
    memory = MemoryTasks()
    return lambda: MemoryStore(memory, lease_seconds=300.0, clock=lambda: NOW)


@pytest.fixture
def kannader(tmp_path: Path) -> Path:
    """An empty spool as Kannader makes it."""
    root = tmp_path / "kannader"
    make_spool(str(root))
    return root


@pytest.fixture
def open_kannader(kannader: Path) -> Iterator[Callable[..., KannaderStore]]:
    """Open the test's Kannader spool once more, or another one."""
    with ExitStack() as opened:

        def opener(
            clock: Callable[[], float] = lambda: NOW, root: Path = kannader, durable: bool = False
        ) -> KannaderStore:
            store = KannaderStore(str(root), clock, durable=durable)
            return opened.enter_context(closing(store))

        yield opener


@pytest.fixture
def kannader_in_use(kannader: Path) -> Iterator[None]:
    """Somebody looks through the spool all the time, and into every file that is there."""

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
    """Somebody writes into the database all the time, in a table of their own, and reads all."""
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
    """Do something again and again on another thread; whatever it met is raised at the end."""
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
also_in_use = pytest.mark.parametrize(
    "open_store",
    [*STORES, *(pytest.param(name, marks=pytest.mark.deep) for name in IN_USE)],
    indirect=True,
)
"""For rules about rivals, claims and lots: they hold for places in use as well."""


@pytest.fixture(params=STORES)
def open_store(
    request: pytest.FixtureRequest,
    open_spool: Callable[..., NftbanStore],
    open_kannader: Callable[..., KannaderStore],
    open_queue: Callable[..., ZgbStore],
) -> Callable[[], Store]:
    """Open a further instance of the store under test, on the same tasks."""
    users = {"kannader-in-use": "kannader_in_use", "zgb-in-use": "queue_in_use"}
    if request.param in users:
        request.getfixturevalue(users[request.param])
    if request.param == "bullmq":  # only then a server is needed
        opener: Callable[[], Store] = request.getfixturevalue("open_bullmq")
        return opener
    openers: dict[str, Callable[[], Store]] = {
        "memory": _memory(),
        "nftban": open_spool,
        "nftban-durable": lambda: open_spool(durable=True),
        "kannader": open_kannader,
        "zgb": open_queue,
        "kannader-in-use": lambda: open_kannader(durable=True),
        "zgb-in-use": open_queue,
    }
    return openers[request.param]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartWorker]:
    """Start `bullmq work` on a server with a shell command as handler; it is ended by its PID."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("engine.config.place_address.ROOT_STATE_FOLDER", str(tmp_path / "state"))
    started: list[command.Popen[str]] = []

    def start(url: str, shell: str, *options: str) -> "command.Popen[str]":
        number = len(started)
        config, log = tmp_path / f"{number}.yaml", tmp_path / f"{number}.log"
        config.write_text(CONFIG.format(command=shell))
        words = ["--config", str(config), "bullmq", "work", *options, url]
        with log.open("w") as output:
            process = command.Popen(words, stdout=output, stderr=output, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
