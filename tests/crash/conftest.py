"""The process that sweeps cases for the tests, in memory where there is room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crash.sweep import Sweeper

SHM = Path("/dev/shm")
PREFIX = "spooldeck-sweep-"


@pytest.fixture(scope="session")
def sweeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeper]:
    """Return what sweeps cases, each when it is asked for."""
    # A kill needs no disk, and in memory the files of some thousand runs cost half.
    memory = SHM if os.access(SHM, os.W_OK) else tmp_path_factory.mktemp("sweep")
    remove_left_behind(memory)
    prefix = f"{PREFIX}{os.getpid()}-"
    with TemporaryDirectory(prefix=prefix, dir=memory) as folder, Sweeper(Path(folder)) as sweeper:
        yield sweeper


def remove_left_behind(memory: Path) -> None:
    """Remove the folders of test processes that were killed."""
    for folder in memory.glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
