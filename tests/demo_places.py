"""Demos for the tests: the demo places of one format or more, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil

from engine.config import queue_config
from engine.demo.demo import CONFIG_FILE, class_name
from engine.formats.known_formats import FORMATS, setup_for
from engine.live.shared_watch import FolderEventSource
from engine.model import Task
from engine.store import Store

PROGRAM = [sys.executable, "-m", "tui.cli"]

NFTBAN, KANNADER, ZGB = (
    class_name(FORMATS[name].demo_place("")) for name in ("nftban", "kannader", "zgb")
)

START = f"""
import sys
from engine.demo.demo import Demo
with Demo(40, sys.argv[1], {PROGRAM!r}, sys.argv[2:]) as demo:
    print(*demo.wait_for_places(), flush=True)
    sys.stdin.read()
"""


def start(folder: str, *demo_places: str) -> tuple[subprocess.Popen[bytes], list[Path]]:
    """A demo in a process of its own, as in the command; and its places, once they are there."""
    argv, pipe = [sys.executable, "-c", START, folder, *demo_places], subprocess.PIPE
    process = subprocess.Popen(argv, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    return process, [Path(place) for place in process.stdout.readline().decode().split()]


def end(process: subprocess.Popen[bytes]) -> None:
    """Let it end as it does when the operator leaves the console."""
    process.communicate(timeout=60)


@contextmanager
def demo_of(folder: Path, *demo_places: str) -> Iterator[psutil.Process]:
    """A demo in this folder until the block ends; yields its process."""
    process, places = start(str(folder), *demo_places)
    assert {place.parent for place in places} == {folder}
    yield psutil.Process(process.pid)
    end(process)


def until(condition: Callable[[], bool], folder: Path) -> None:
    """Wait for something to happen in a folder, however long it takes."""
    with closing(FolderEventSource(path for path, _, _ in os.walk(folder))) as events:
        while not condition():
            events.wait(0.5)


def ended(process: psutil.Process) -> bool:
    """Whether a process is gone, though perhaps not yet waited for by its parent."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def open_in(place: Path) -> Store:
    """The store of a place of the demo, as its own configuration says."""
    loaded = queue_config.load_config(str(place.parent / CONFIG_FILE), os.environ)
    return setup_for(loaded, str(place), {}).open_store()


def tasks_in(store: Store) -> list[Task]:
    """All tasks; of one that moved meanwhile, its later state."""
    return [*{item.id: item for item in store.scan() if isinstance(item, Task)}.values()]
