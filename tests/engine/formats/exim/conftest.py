"""A real Exim for the tests of this folder, with an empty spool for each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.exim_server import EximServer, Sink, running_overlay, wait_until


@pytest.fixture(scope="session")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EximServer]:
    """The overlay of this process of the tests."""
    with running_overlay(tmp_path_factory.mktemp("exim")) as server:
        yield server


@pytest.fixture
def exim(overlay: EximServer, tmp_path: Path) -> Iterator[EximServer]:
    """An Exim with an empty spool and an empty log, and a folder of our own for its place."""
    overlay.clear()
    overlay.state = tmp_path / "state"
    yield overlay
    overlay.stop()


@pytest.fixture
def slow(exim: EximServer) -> Iterator[Sink]:
    """A server that takes mail to slow.example.test only when the test ends: then all is gone."""
    sink = Sink("127.0.0.2", is_slow=True)
    exim.configure(sinks=[("slow.example.test", sink)])
    yield sink
    sink.release()
    wait_until(lambda: exim.ids() == [])
