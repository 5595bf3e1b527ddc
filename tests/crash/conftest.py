"""The table of what was killed and refused, at the end of a run of the tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crash.swept import Result, Sweeper

SHM = Path("/dev/shm")
_RESULTS = pytest.StashKey[dict[str, Result]]()


@pytest.fixture(scope="session")
def sweeper(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sweeper]:
    """Sweeps scenarios, each when it is asked for."""
    yield from _sweeping(pytestconfig, tmp_path_factory, "tests.crash.sweep")


@pytest.fixture(scope="session")
def deed_sweeper(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sweeper]:
    """Sweeps plans, each when it is asked for; `make crash` makes every run, this some of each."""
    yield from _sweeping(pytestconfig, tmp_path_factory, "tests.crash.deeds", "--slice", EVERY)


EVERY = "7"
"""Prime to how many faults a point has, so that each of them is met."""


def _sweeping(
    config: pytest.Config, factory: pytest.TempPathFactory, *words: str
) -> Iterator[Sweeper]:
    results = config.stash.setdefault(_RESULTS, {})
    # A kill does not ask for a disk, and in memory the files of some thousand runs cost half.
    memory = SHM if os.access(SHM, os.W_OK) else factory.mktemp("sweep")
    remove_left_behind(memory)
    with (
        TemporaryDirectory(prefix=f"{PREFIX}{os.getpid()}-", dir=memory) as folder,
        Sweeper(Path(folder), results, words=words) as sweeper,
    ):
        yield sweeper


PREFIX = "spooldeck-sweep-"


def remove_left_behind(memory: Path) -> None:
    """Remove the folders of test processes that were killed: nothing else empties the memory."""
    for folder in memory.glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """How many points each command has, and how many runs went through them."""
    results = config.stash.get(_RESULTS, {})
    if results:
        terminalreporter.section("killed and refused at every point")
        terminalreporter.write_line(f"{'command':20} {'points':>7} {'runs':>7} {'failures':>9}")
        for name, result in results.items():
            terminalreporter.write_line(
                f"{name:20} {result.points:7} {result.runs:7} {len(result.failures):9}"
            )
        runs = sum(result.runs for result in results.values())
        terminalreporter.write_line(f"{runs:,} runs")
