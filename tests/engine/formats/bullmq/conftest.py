"""Databases of BullMQ queues for tests, opened as often as a test likes, and their workers."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from engine.config.place_address import parse_address
from engine.formats.bullmq.place import parse_place
from engine.formats.bullmq.store import BullmqStore
from tests import command
from tests.bullmq_workers import CONFIG, StartWorker
from tests.nftban_spool import NOW


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
