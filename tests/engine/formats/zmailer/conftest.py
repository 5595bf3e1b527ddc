"""A MAILQ server for the tests of its clients."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mailq_server import RunningServer, serving


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningServer]:
    """A server of version 2 with the jobs of the samples."""
    with serving(tmp_path) as server:
        yield server
