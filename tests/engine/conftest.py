"""What the engine's tests have in common: no child and no open store outlives its test."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx

from engine.formats.base.memory import MemoryStore, MemoryTasks
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.index.reader import Reader
from engine.index.writer import Writer
from engine.model import attempts_allowed
from engine.operations.journal import Journal
from engine.store import Store
from tests.engine.task_builders import clock, new_spool

Child = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Start a Python program with pipes to it; it is killed when the test is over."""
    children: list[Child] = []

    def starter(code: str, *args: str, pass_fds: tuple[int, ...] = ()) -> Child:
        argv, pipe = [sys.executable, "-c", code, *args], subprocess.PIPE
        child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, pass_fds=pass_fds)
        children.append(child)
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture(autouse=True)
def closed_stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close each store that a test has opened and left so: a descriptor for each folder."""
    opened: list[NftbanStore] = []
    begin = NftbanStore.__init__

    def noted(store: NftbanStore, *args: object, **settings: object) -> None:
        begin(store, *args, **settings)  # type: ignore[arg-type]
        opened.append(store)

    monkeypatch.setattr(NftbanStore, "__init__", noted)
    yield
    for store in opened:
        store.close()


@pytest.fixture
def nothing_blocks() -> Iterator[None]:
    """A call of the engine that blocks on the event loop's thread raises an error."""
    with blockbuster_ctx("engine"):
        yield


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFolders:
    """A spool with nothing in it."""
    return new_spool(tmp_path)


@pytest.fixture
def journal(spool: SpoolFolders) -> Journal:
    """The journal of the spool."""
    return Journal(f"{spool.staging_dir}/journal", clock=clock)


@pytest.fixture(params=["memory", "nftban"])
def open_store(request: pytest.FixtureRequest, spool: SpoolFolders) -> Callable[[], Store]:
    """Open a further store on the same tasks: in memory, and on the spool."""
    memory = MemoryTasks()
    openers: dict[str, Callable[[], Store]] = {
        "memory": lambda: MemoryStore(memory, clock=clock),
        "nftban": lambda: NftbanStore(spool, clock),
    }
    return openers[request.param]


@pytest.fixture
def index_path(tmp_path: Path) -> str:
    """Where an index may be made."""
    return str(tmp_path / "index")


@pytest.fixture
def writer(index_path: str) -> Iterator[Writer]:
    """A new index's writer."""
    writer = Writer(index_path, attempts_allowed)
    yield writer
    writer.close()


@pytest.fixture
def reader(index_path: str, writer: Writer) -> Iterator[Reader]:
    """A reader of the same index."""
    reader = Reader(index_path)
    yield reader
    reader.close()
