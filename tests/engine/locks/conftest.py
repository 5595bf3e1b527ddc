"""What the tests of locks share: the path of a lock file."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the lock file is, or will be."""
    return tmp_path / "queue.lock"
