"""Queues in NFTBan's format, for the tests of commands: made, filled and read again."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from engine import verbs
from engine.formats.nftban.store import NftbanStore
from engine.model import Task
from engine.operations.journal import Journal
from tests import command
from tests.open_store import open_store

Run: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]

COMMAND = [sys.executable, "-P", "-m", "spooldeck"]
GOLDEN = Path(__file__).parent / "golden" / "nftban"
"""Files as the contract's own program wrote them."""

WITHOUT_MAIL = {"LC_ALL": "C.UTF-8", "TZ": "UTC", "NFTBAN_MAIL_METHOD": "none"}
"""No mail program of this machine is used."""


def clean_environment(home: Path) -> dict[str, str]:
    """The environment of a command that no setting of this machine reaches."""
    return {"PATH": os.environ["PATH"], "HOME": str(home), **WITHOUT_MAIL}


@pytest.fixture
def spooldeck(tmp_path: Path) -> Run:
    """Run a command in an empty home folder, with no settings from outside and no terminal."""
    home = tmp_path / "home"
    home.mkdir()

    def run(*words: str | Path, cwd: Path = home, **more: str) -> subprocess.CompletedProcess[str]:
        env, null = clean_environment(home) | more, subprocess.DEVNULL
        return command.run(words, capture_output=True, text=True, cwd=cwd, env=env, stdin=null)

    return run


@pytest.fixture
def root(tmp_path: Path, spooldeck: Run) -> str:
    """The data folder of a queue made by `init`."""
    made = spooldeck("init", str(tmp_path / "data"))
    assert made.returncode == 0, made.stderr
    return str(tmp_path / "data")


@contextmanager
def store_at(root: str | Path, clock: Callable[[], float] | None = None) -> Iterator[NftbanStore]:
    """The store of a queue, closed again."""
    with closing(open_store(str(root), clock) if clock else open_store(str(root))) as store:
        assert isinstance(store, NftbanStore)
        yield store


def tasks_at(root: str | Path, *words: str) -> list[Task]:
    """The tasks in these states, or in all."""
    with store_at(root) as store:
        tasks = store.scan(words or ("pending", "work", "dlq", "held", "trash"))
        return [task for task in tasks if isinstance(task, Task)]


def ids_at(root: str | Path, *words: str) -> set[str]:
    """The ids of the tasks in these states."""
    return {task.id for task in tasks_at(root, *words)}


def add_task(
    root: str | Path, kind: str = "report", created: float = 1_795_239_223, **changes: str
) -> Task:
    """Add a pending task to a queue."""
    with store_at(root) as store:
        task = verbs.enqueue(kind, created, os.urandom(4).hex(), **changes)
        store.swap(None, task)
        return task


def bury_one(root: str | Path, description: str = "", days_ago: float = 0) -> Task:
    """Add a dead task to a queue that has none waiting, dead since so many days."""
    added = add_task(root, description=description)
    with store_at(root) as store:
        (taken,) = store.take(1_795_239_224, "test", 1)
        store.swap(taken, verbs.give_up_task(taken, "no use"))
        (dead,) = (task for task in store.scan({added.id}) if isinstance(task, Task))
    file, died = Path(root, "queue", "dlq", f"{dead.id}.task"), dead.extra["dead_since"]
    if days_ago:
        file.write_text(file.read_text().replace(died, str(int(int(died) - days_ago * 86400))))
    return dead


def masked(lines: list[str]) -> list[str]:
    """Lines of a log or of an output without times and random ids."""
    for pattern, mask in (
        (r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\]", "[STAMP]"),
        (r"\d{8}T\d{6}Z\w*-(\w+)-[0-9a-f]{8}", r"TIME-\1-RAND"),
        (r"completed in \d+s", "completed in Ns"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d", "MINUTE"),
    ):
        lines = [re.sub(pattern, mask, line) for line in lines]
    return lines


def journal_at(root: str | Path) -> Journal:
    """The journal of a queue."""
    return Journal(f"{root}/queue/.spooldeck/journal")


def write_config(root: str | Path, text: str) -> str:
    """Write a configuration file beside a queue."""
    path = Path(root).parent / "some.yaml"
    path.write_text(text)
    return str(path)
