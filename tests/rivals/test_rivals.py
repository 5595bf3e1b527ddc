"""Processes on one spool or queue, killed and stopped at random: each task is handled.

The choices of the schedule are drawn from a seed, which each failure names; when each process
runs is up to the system, so a seed repeats a failure often, not always. `make soak` plays longer.
"""

import os
from pathlib import Path

import pytest

from tests.rivals import bullmq_processes
from tests.rivals.nftban_processes import BESIDE, BREAKING, OURS, Field

SEED = int(os.environ.get("RIVALS_SEED", "20261120"))
LINES = 250
"""Lines on the ledger after which a game is ended: some 25 processes, half of them killed."""
JOBS = 150


@pytest.mark.parametrize(
    "crew",
    [
        pytest.param(OURS, id="among ourselves"),
        # It may work at the same time, and rewrites in place.
        pytest.param(BESIDE, id="beside a program without our lock"),
        # A worker is ended whose last heartbeat is a second old.
        pytest.param(BREAKING, id="operators who break locks", marks=pytest.mark.deep),
    ],
)
def test_killed_rivals_lose_no_task(tmp_path: Path, crew: tuple[str, ...]) -> None:
    """No two hold the lock together, and only tasks that a killed process had are repeated."""
    with Field(tmp_path, SEED, crew) as field:
        field.play(lambda: len(field.lines) < LINES)
        result = field.finish()
    said = f"RIVALS_SEED={SEED}: {result}"
    assert result.broken == [], said
    assert crew != OURS or (result.counts["handled"] > 20 and result.counts["kills"] > 0), said
    assert crew != BESIDE or any(line.name.startswith("standin") for line in field.lines)


@pytest.mark.deep
@pytest.mark.parametrize("version", bullmq_processes.VERSIONS.values())
def test_killed_workers_and_pauses_lose_no_job(tmp_path: Path, version: str) -> None:
    """Beside BullMQ on Node each acknowledged job has ended, in one list."""
    added = tmp_path / "added"

    def going() -> bool:
        return not added.exists() or len(added.read_text().splitlines()) < JOBS

    result = bullmq_processes.play(tmp_path, version, SEED, going)
    assert result.broken == [], f"RIVALS_SEED={SEED}: {result}"
    assert result.counts["ended"] >= JOBS and result.counts["pauses"] > 1
