"""Spools of Kannader for tests, opened as often as a test likes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.formats.kannader.store import KannaderStore, make_spool
from tests.nftban_spool import NOW

Opener: TypeAlias = Callable[..., KannaderStore]


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
