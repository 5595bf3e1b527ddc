"""Databases of BullMQ queues for tests, opened as often as a test likes, and their workers."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pytest import MonkeyPatch
from redis import Redis

from engine.config import place_address, queue_config
from engine.config.place_address import parse_address
from engine.formats import known_formats
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from engine.places.place import Place
from tests import command
from tests.bullmq_jobs import write_failed, write_waiting
from tests.bullmq_workers import CONFIG, StartWorker
from tests.nftban_spool import NOW
from tests.node_packages import NodeProgram
from tests.redis_server import TestServer
from tui.cli import main
from tui.cli.setup.places import open_places

Run: TypeAlias = Callable[..., str]
Opener: TypeAlias = Callable[..., BullmqStore]


@pytest.fixture
def client(redis_server: TestServer, redis_url: str) -> Iterator[Redis]:
    """Another program's connection to the test's database, which is empty."""
    with redis_server.client() as other:
        yield other


@pytest.fixture
def jobs(client: Redis) -> None:
    """Three failed jobs and a waiting one."""
    for number in "123":
        write_failed(client, number, timestamp=round(time.time() * 1000) - 7_200_000)
    write_waiting(client, "4", "sums", timestamp=round(time.time() * 1000))


@pytest.fixture
def own_state(monkeypatch: MonkeyPatch, tmp_path: Path) -> None:
    """What commands keep for places is in the test's folder."""
    monkeypatch.setattr(place_address, "ROOT_STATE_FOLDER", str(tmp_path / "state" / "spooldeck"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def run(client: Redis, own_state: None, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; its output and errors."""

    def run(*argv: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main([*argv]) == code, capsys.readouterr()
        return "".join(capsys.readouterr())

    return run


@pytest.fixture
def console_place(redis_url: str, own_state: None) -> Place:
    """The test's database as a place of the console."""
    (place,) = open_places(known_formats.setup_for(queue_config.Config(), "", {}), [redis_url])
    return place


@pytest.fixture
def open_bullmq(redis_url: str) -> Iterator[Opener]:
    """Open the test's database once more, with other settings if any are given."""
    with ExitStack() as opened:

        def opener(clock: Callable[[], float] = lambda: NOW, **settings: Any) -> BullmqStore:
            place = parse_place(parse_address(redis_url))._replace(**settings)
            return opened.enter_context(closing(BullmqStore(place, clock)))

        yield opener


@pytest.fixture
def store(open_bullmq: Opener, request: pytest.FixtureRequest) -> BullmqStore:
    """The test's database, with the clock `CLOCK` of the test's module, else always at NOW."""
    return open_bullmq(getattr(request.module, "CLOCK", lambda: NOW))


@pytest.fixture(scope="session")
def programs(redis_server: TestServer) -> Iterator[Callable[[str], NodeProgram]]:
    """A program of each version of BullMQ that is asked for, which ends with the test process."""
    with ExitStack() as ended:

        @cache
        def program_of(version: str) -> NodeProgram:
            return ended.enter_context(closing(NodeProgram(version, redis_server.socket)))

        yield program_of


@pytest.fixture
def program(
    request: pytest.FixtureRequest, programs: Callable[[str], NodeProgram], redis_url: str
) -> Iterator[NodeProgram]:
    """A program of a version of BullMQ, the parameter."""
    program = programs(request.param)
    yield program
    program("forget")


@pytest.fixture
def start(own_state: None, tmp_path: Path) -> Iterator[StartWorker]:
    """Start `bullmq work` on a server with a shell command as handler; it is ended by its PID."""
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
