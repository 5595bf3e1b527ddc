"""Spools of NFTBan for tests, opened as often as a test likes."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from engine.formats.nftban.store import NftbanStore, SpoolFolders
from tests.nftban_spool import NOW, new_spool


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
