"""The spool that the tests of NFTBan's format use; `opened` of `tests.nftban_spool` opens it."""

from pathlib import Path

import pytest

from engine.formats.nftban.store import NftbanStore, SpoolFolders
from tests.nftban_spool import new_spool, opened


@pytest.fixture
def spool(tmp_path: Path) -> SpoolFolders:
    """An empty spool with the contract's folders in a data folder, shared with another program."""
    return new_spool(tmp_path / "data")


@pytest.fixture
def store(spool: SpoolFolders) -> NftbanStore:
    """The store of that spool, opened while it is empty."""
    return opened(spool)
