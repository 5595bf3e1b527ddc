"""Our workers and operators beside BullMQ on Node lose no job; `make soak` plays longer."""

import os
from pathlib import Path

import pytest

from tests.rivals import bullmq_processes

SEED = int(os.environ.get("RIVALS_SEED", "20261128"))
JOBS = 150


@pytest.mark.deep
@pytest.mark.parametrize("version", bullmq_processes.VERSIONS.values())
def test_killed_workers_and_pauses_lose_no_job(tmp_path: Path, version: str) -> None:
    """Killed workers and pauses lose none: each acknowledged job has ended, in one list."""
    added = tmp_path / "added"

    def going() -> bool:
        return not added.exists() or len(added.read_text().splitlines()) < JOBS

    result = bullmq_processes.play(tmp_path, version, SEED, going)
    assert result.broken == [], f"RIVALS_SEED={SEED}: {result}"
    assert result.counts["ended"] >= JOBS and result.counts["pauses"] > 1
