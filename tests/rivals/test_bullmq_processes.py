"""Our workers and operators beside BullMQ on Node lose no job; `make soak` plays longer."""

import os
from pathlib import Path

import pytest

from tests.redis_server import TestServer
from tests.rivals import bullmq_processes

SEED = int(os.environ.get("RIVALS_SEED", "20261128"))
JOBS = 150


@pytest.mark.deep
@pytest.mark.parametrize("version", bullmq_processes.VERSIONS.values())
def test_killed_workers_and_pauses_lose_no_job(tmp_path: Path, version: str) -> None:
    """Killed workers and pauses lose none: each acknowledged job has ended, in one list."""
    added = tmp_path / "added"
    counts = bullmq_processes.play(
        tmp_path,
        version,
        SEED,
        lambda: not added.exists() or len(added.read_text().splitlines()) < JOBS,
    )
    assert counts.broken() == [], f"RIVALS_SEED={SEED}: {counts}"
    assert counts.ended >= JOBS and counts.pauses > 1


def test_the_count_finds_a_job_that_is_in_no_list(
    redis_server: TestServer, redis_url: str, tmp_path: Path
) -> None:
    """An acknowledged job that is in no list is named; so is one in two lists."""
    (tmp_path / "added").write_text("1\n2\n3\n")
    (tmp_path / "ran").write_text("mails/1\n")
    with redis_server.client() as client:
        for job in ("1", "2", "3"):
            client.hset(f"bull:mails:{job}", "data", "{}")
        client.zadd("bull:mails:completed", {"1": 1, "3": 1})
        client.rpush("bull:mails:wait", "3")
        counts = bullmq_processes.count(client, tmp_path, 0, 0)
    assert counts.lost == ("2 is in 0 lists", "3 is in 2 lists")
    assert counts.unrun == ("3",)
