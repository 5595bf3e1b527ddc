"""Databases of BullMQ queues for tests, opened as often as a test likes, and their workers."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import redis

from engine.config import place_address as addresses
from engine.config.place_address import parse_address
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from tests import command
from tests.bullmq_jobs import write_failed, write_waiting
from tests.bullmq_workers import CONFIG, StartWorker
from tests.nftban_spool import NOW
from tests.redis_server import TestServer
from tui.cli import main

Run = Callable[..., str]


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[redis.Redis]:
    """Another program's connection to the test's database, which has some jobs."""
    with redis_server.client() as other:
        for number in "123":
            write_failed(other, number, timestamp=round(time.time() * 1000) - 7_200_000)
        write_waiting(other, "4", "sums", timestamp=round(time.time() * 1000))
        yield other


@pytest.fixture
def run(
    client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command; its output and errors."""
    monkeypatch.setattr(addresses, "ROOT_STATE_FOLDER", str(tmp_path / "state" / "spooldeck"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*argv: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*argv]) == code, capsys.readouterr()
        return "".join(capsys.readouterr())

    return run


@pytest.fixture
def open_bullmq(redis_url: str) -> Iterator[Callable[..., BullmqStore]]:
    """Open the test's database once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> BullmqStore:
            place = parse_place(parse_address(redis_url))._replace(**settings)
            return opened.enter_context(closing(BullmqStore(place, clock)))

        yield opener


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
