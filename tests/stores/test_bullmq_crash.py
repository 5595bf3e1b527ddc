"""Workers and servers that are killed: no job is lost, and each kill repeats one job at most."""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.config.place_address import parse_address
from engine.stores.bullmq import BullmqStore, parse_place
from engine.stores.bullmq.image import NewJob
from tests import command
from tests.redis_server import TestServer, running_server

pytestmark = pytest.mark.deep

PATIENCE = 60.0
"""Seconds after which a test that waits fails."""
CONFIG = """
stores:
  bullmq: {{lease: 1, stalled_check: 0.5}}
handlers:
  mails:
    timeout: 600
    command: [/bin/sh, -c, '{command}']
"""

StartWorker: TypeAlias = Callable[..., "command.Popen[str]"]


def until(condition: Callable[[], Any]) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def add_jobs(url: str, number: int) -> None:
    """Add jobs to the queue of the tests."""
    with closing(BullmqStore(parse_place(parse_address(url)))) as store:
        for _ in range(number):
            store.add_job(NewJob("mails", "report"))


def await_completed(server: TestServer, number: int) -> None:
    """Wait until so many jobs are completed."""
    with server.client() as client:
        until(lambda: int(client.zcard("bull:mails:completed")) >= number)


def runs(tmp_path: Path) -> Counter[str]:
    """How often each job was started."""
    path = tmp_path / "ran"
    return Counter(path.read_text().split()) if path.exists() else Counter()


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StartWorker]:
    """Start `bullmq work` on a server with a shell command as handler; it is ended by its PID."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("engine.config.place_address.ROOT_STATE_FOLDER", str(tmp_path / "state"))
    started: list[command.Popen[str]] = []

    def start(url: str, shell: str, *options: str) -> "command.Popen[str]":
        number = len(started)
        config, log = tmp_path / f"{number}.yaml", tmp_path / f"{number}.log"
        config.write_text(CONFIG.format(command=shell))
        words = ["--config", str(config), "bullmq", "work", *options, url]
        with log.open("w") as output:
            process = command.Popen(words, stdout=output, stderr=output, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_the_job_of_a_killed_worker_runs_on_another(
    redis_server: TestServer, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """kill -9 of a worker in the middle of a job: another worker of ours returns the job when its
    lock has ended, runs it, and counts no failed attempt."""
    add_jobs(redis_url, 2)
    first = start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran; sleep 600")
    until(lambda: runs(tmp_path))
    first.send_signal(signal.SIGKILL)
    first.wait()
    start(redis_url, f"echo $TASK_ID >>{tmp_path}/ran")
    with redis_server.client() as client:
        until(lambda: client.zcard("bull:mails:completed") == 2)
        assert sorted(runs(tmp_path).values()) == [1, 2]
        (killed,) = [job for job, number in runs(tmp_path).items() if number == 2]
        fields = client.hmget(f"bull:mails:{killed.partition('/')[2]}", "atm", "stc", "ats")
        assert fields == ["1", "1", "2"]


def test_a_job_that_kills_its_worker_twice_fails(
    redis_server: TestServer, redis_url: str, start: StartWorker, tmp_path: Path
) -> None:
    """It is returned once, as BullMQ's workers do, then a worker fails it with the reason."""
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
        said = client.hget(f"bull:mails:{job}", "failedReason")
    assert said == "job stalled more than allowable limit"
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
    found = runs(tmp_path)
    assert len(found) == jobs
    assert found.total() - jobs <= kills, found
