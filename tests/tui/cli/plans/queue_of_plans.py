"""A queue with tasks in each state, and commands that act on it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine import verbs
from engine.config import queue_config
from engine.formats.base.format import Setup
from engine.formats.known_formats import setup_for
from tests.nftban_queues import store_at, write_config
from tui.cli import main

HOUR = 3600.0
LONG_AGO = 1_795_000_000.0
"""Epoch seconds: a task made then is old enough to be purged without a question."""
Command: TypeAlias = Callable[..., "tuple[int, str, str]"]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A queue with three pending tasks, one of them due, and six dead ones."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    for name in [name for name in os.environ if name.startswith(("NFTBAN_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    data = tmp_path / "data"
    assert main(["init", str(data)]) == 0
    with store_at(data) as store:
        for number in range(6):
            kind = "report" if number % 2 else "feeds_sync"
            store.swap(None, verbs.enqueue(kind, LONG_AGO + number, f"{number:08x}", f"n{number}"))
        for task in list(store.take(LONG_AGO + 60, "a worker", 6)):
            store.swap(task, verbs.give_up_task(task, "out of paper", 4))
        for number in range(6, 9):
            later = 0.0 if number == 6 else time.time() + HOUR
            task = verbs.enqueue("report", LONG_AGO + number, f"{number:08x}")
            store.swap(None, task._replace(due=float(int(later))))
    return data


@pytest.fixture
def act(root: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Run a command, given as a line or as words, on that queue: exit code, output, complaints."""

    def run(line: str, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["--root", str(root), *((line, *words) if words else line.split())])
        return (code, *capsys.readouterr())

    return run


def tree(root: Path) -> dict[str, tuple[bytes, int, int, int]]:
    """Bytes, mode and owner of every task file, by its path."""
    by_name = {}
    for path in sorted((root / "queue").rglob("*.task")):
        stat = path.stat()
        by_name[str(path)] = (path.read_bytes(), stat.st_mode, stat.st_uid, stat.st_gid)
    return by_name


def objects(ran: tuple[int, str, str]) -> list[dict[str, Any]]:
    """The objects that a command printed with --json."""
    return [json.loads(line) for line in ran[1].splitlines()]


def setup_of(root: Path, text: str = "") -> Setup:
    """A queue as the commands see it."""
    return setup_for(queue_config.load_config(write_config(root, text), {}), str(root), {})
