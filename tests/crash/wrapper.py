"""Run the real `spooldeck` command at a fixed time, with fixed random numbers and test handlers.

`wrapper.py NOW WORD...` is `spooldeck WORD...` at NOW, epoch seconds. Beyond the command's own
words it knows `--root DIR @recover`: a worker that does what every worker does first, and finds no
token to go on with."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.model import Task
    from engine.work.handlers import Context, Handler

RAN = "ran"
"""File next to the data folder: a line for each time that a handler ran a task."""


class Clock:
    """The time that all modules read, epoch seconds."""

    def __init__(self) -> None:
        self.fixed: float | None = None

    def __call__(self) -> float:
        """Return the fixed time, or the real one where none is fixed."""
        return _time() if self.fixed is None else self.fixed


_time, _urandom = time.time, os.urandom
CLOCK = Clock()
open_file, note = os.open, os.pwrite
"""The system's own, apart from what is counted: what a handler does is not the engine's."""
_NOTES = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def fixed_random(count: int) -> bytes:
    """Replace `os.urandom`: the same bytes at one fixed time, others at another."""
    if CLOCK.fixed is None:
        return _urandom(count)
    piece = MARK + int(CLOCK.fixed).to_bytes(8)[-2:]
    return (piece * count)[:count]


MARK = b"\xca\xfe"


def fix() -> None:
    """Replace clock, uptime and random numbers; before the engine is imported, which binds them."""
    early = [
        name
        for name in sys.modules
        if name in ("engine.locks.queue_lock", "engine.formats.nftban.store")
    ]
    assert not early, f"imported already, with the real clock: {early}"
    from engine.locks import lock_file

    uptime, slept = lock_file.boot_seconds, lock_file.suspended_seconds()
    lock_file.boot_seconds, lock_file.suspended_seconds = (
        lambda: uptime() + CLOCK() - _time(),
        lambda: slept,
    )
    time.time = CLOCK
    os.urandom = fixed_random


def handlers(root: str) -> Mapping[str, Handler]:
    """Return handlers of one kind that succeeds, one that fails and one that fails for good."""
    from engine.work.handlers import Failed, Fatal

    ran = open_file(f"{root.rpartition('/')[0]}/{RAN}", _NOTES, 0o644)

    def done(task: Task, context: Context) -> None:
        # Not by `write`: strace counts calls by thread, and would strike here as well.
        note(ran, task.id.encode() + b"\n", 0)

    def fails(task: Task, context: Context) -> None:
        done(task, context)
        raise Failed("out of paper")

    def hopeless(task: Task, context: Context) -> None:
        done(task, context)
        raise Fatal("no such recipient")

    return {"done": done, "fails": fails, "hopeless": hopeless}


def _no(kind: str) -> bool:
    return False


def run(words: list[str]) -> int:
    """Run the command and return its exit code; its output is not flushed yet."""
    from engine.formats.base.format import Setup
    from tui import cli
    from tui.cli.formats.nftban import work

    option, root, *rest = words
    assert option == "--root"
    if rest == ["@recover"]:
        dry = SimpleNamespace(
            is_limited=lambda kind: True, ready=_no, spend=_no, token_at=lambda kind: CLOCK() + 3600
        )
        with replaced(Setup, "token_buckets", lambda setup: dry):
            return cli.main(["--root", root, "queue", "process-next"])
    with replaced(work, "handlers", lambda setup, store, closing, mailing: handlers(root)):
        return cli.main(["--root", root, *rest])


@contextmanager
def replaced(where: object, name: str, value: object) -> Iterator[None]:
    """Replace an attribute within the block."""
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


def main() -> None:
    """Run the command."""
    CLOCK.fixed = float(sys.argv[1])
    fix()
    sys.exit(run(sys.argv[2:]))


if __name__ == "__main__":
    main()
