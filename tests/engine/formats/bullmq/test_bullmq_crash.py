"""Workers and servers that are killed: no job is lost, and each kill repeats one job at most."""

import signal
import tempfile
from pathlib import Path

import pytest

from tests.bullmq_workers import StartWorker, add_jobs, await_completed, runs, until
from tests.redis_server import TestServer, running_server

pytestmark = pytest.mark.deep


def test_a_job_that_kills_its_worker_twice_fails(
    redis_server: TestServer, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """kill -9 of a worker in the middle of a job: another worker of ours returns the job when its
    lock has ended, once, as BullMQ's workers do; then a worker fails it with the reason."""
    add_jobs(redis_url, 1)
    for number in (1, 2):
        worker = start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; sleep 600")
        until(lambda number=number: runs(tmp_path).total() == number)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran")
    with redis_server.client() as client:
        until(lambda: client.zcard("bull:mails:failed") == 1)
        (job,) = client.zrange("bull:mails:failed", 0, -1)
        fields = client.hmget(f"bull:mails:{job}", "failedReason", "atm")
    assert fields == ["job stalled more than allowable limit", "1"]
    assert runs(tmp_path).total() == 2


def test_a_killed_server_loses_no_job(start: StartWorker, tmp_path: Path) -> None:
    """Redis is killed three times while a worker runs jobs, with appendonly always, and started
    again: every job is completed, and a kill repeats at most the one that was running."""
    durable = ("--appendonly", "yes", "--appendfsync", "always")
    kills, jobs = 3, 60
    with tempfile.TemporaryDirectory(prefix="sdk", dir="/tmp") as folder:
        for number in range(1, kills + 2):
            with running_server(*durable, folder=Path(folder)) as server:
                if number == 1:
                    add_jobs(server.place(), jobs)
                    start(server.place(), f"echo $TASK_ID >>{tmp_path}/ran")
                await_completed(server, number * jobs // (kills + 1))
                if number <= kills:
                    assert server.process is not None
                    server.process.kill()
                    server.process.wait()
    counts = runs(tmp_path)
    assert len(counts) == jobs
    assert counts.total() - jobs <= kills, counts
