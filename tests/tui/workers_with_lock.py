"""Workers that hold a lock, and what the console shows of it: real processes on real queues."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from engine.config import queue_config
from engine.formats.known_formats import setup_for
from engine.locks import queue_lock
from engine.model import Task
from engine.places.place import Place
from tests.console_operator import ConsoleOperator
from tests.lock_processes import cli_later, later
from tests.open_store import open_store
from tui.cli.setup.places import make_place
from tui.locks.screen import LockScreen

HOLDER = """
import signal, sys, time
from engine.locks import queue_lock as locks
from engine.formats.nftban.store import NftbanStore, SpoolFolders
root = sys.argv[1]
lock = locks.acquire_lock(f"{root}/run/queue.lock", 1200.0)
queue = f"{root}/queue"
store = NftbanStore(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
print(*(task.id for task in store.take(time.time(), "holder", 1)), flush=True)
while True:
    signal.pause()
"""
"""A worker that took the lock and a task, and gives no more heartbeats."""

Child = subprocess.Popen[str]
Starter = Callable[..., Child]


@contextmanager
def children() -> Iterator[Starter]:
    """Start Python programs and wait for the first line of each; they are killed at the end."""
    started: list[Child] = []

    def starter(code: str, *args: str) -> Child:
        pipe = subprocess.PIPE
        argv = [sys.executable, "-c", code, *args]
        child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        started.append(child)
        assert child.stdout is not None
        assert child.stdout.readline()
        return child

    yield starter
    for child in started:
        child.kill()
        child.communicate()


def wired(root: Path, settings: str = "queue: {syslog: ''}\n", seconds: float = 0.0) -> Place:
    """A queue on disk as the command line makes it; its lock is examined `seconds` from now."""
    path = root.with_suffix(".yaml")
    path.write_text(settings)
    config = queue_config.load_config(str(path), {})
    place = make_place(setup_for(config, str(root), {}), str(root))
    lock, command = str(root / "run" / "queue.lock"), place.recovery_command
    return place._replace(
        lock=lambda: queue_lock.examine_lock(lock, 1200.0, **later(seconds)),
        recovery_command=(*cli_later(seconds), *command[command.index("--root") :]),
    )


async def open_lock(operator: ConsoleOperator) -> LockScreen:
    """The lock, once it was examined, and the logs were read about the tasks in work."""
    screen = await operator.opens(LockScreen, "U")
    await operator.until(lambda: "examining the lock" not in operator.page)
    await operator.until(lambda: not screen.why_wait())
    return screen


def tasks_in(root: Path) -> list[Task]:
    """The tasks of a queue on disk, each once; fails on what is no task."""
    with closing(open_store(str(root))) as store:
        tasks = {getattr(task, "id", task): task for task in store.scan()}
    assert all(isinstance(task, Task) for task in tasks.values()), tasks
    return [task for task in tasks.values() if isinstance(task, Task)]
