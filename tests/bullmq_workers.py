"""Workers of ours on BullMQ's queues, as processes that a test can kill."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

from engine.config.place_address import parse_address
from engine.formats.bullmq.image import NewJob
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from tests import command
from tests.redis_server import TestServer

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
