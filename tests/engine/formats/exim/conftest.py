"""A real Exim for the tests of this folder, with an empty spool for each of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exim_server import EximServer, running_overlay


@pytest.fixture(scope="session")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EximServer]:
    """The overlay of this process of the tests."""
    with running_overlay(tmp_path_factory.mktemp("exim")) as server:
        yield server


@pytest.fixture
def exim(overlay: EximServer) -> Iterator[EximServer]:
    """An Exim with an empty spool and an empty log."""
    overlay.clear()
    yield overlay
    overlay.stop()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Our own folder for the place."""
    return tmp_path / "state"
