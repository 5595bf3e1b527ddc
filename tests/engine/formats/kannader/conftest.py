"""Spools of Kannader for tests, opened as often as a test likes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.formats.kannader.store import KannaderStore, make_spool
from tests.nftban_spool import NOW

Opener: TypeAlias = Callable[..., KannaderStore]
DAEMON = """
import os, sys
flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW
words = ("data", "queue", "inflight", "cleanup")
data, queue, inflight, cleanup = [os.open(f"{sys.argv[1]}/{word}", flags) for word in words]
print("ready", flush=True)
for line in sys.stdin:
    try:
        os.rename(line.strip(), line.strip(), src_dir_fd=queue, dst_dir_fd=inflight)
    except FileNotFoundError:
        print("vanished", flush=True)
    else:
        print(os.listdir(f"{sys.argv[1]}/inflight/{line.strip()}/.."), flush=True)
"""
"""Opens a spool's folders as Kannader does, and sends the mail of each id that it reads."""


@pytest.fixture
def kannader(tmp_path: Path) -> Path:
    """An empty spool as Kannader makes it."""
    root = tmp_path / "kannader"
    make_spool(str(root))
    return root


@pytest.fixture
def open_kannader(kannader: Path) -> Iterator[Opener]:
    """Open the test's Kannader spool once more, or another one."""
    with ExitStack() as opened:

        def opener(
            clock: Callable[[], float] = lambda: NOW, root: Path = kannader, durable: bool = False
        ) -> KannaderStore:
            store = KannaderStore(str(root), clock, durable=durable)
            return opened.enter_context(closing(store))

        yield opener


@pytest.fixture
def store(open_kannader: Opener) -> KannaderStore:
    """The test's Kannader spool."""
    return open_kannader()
