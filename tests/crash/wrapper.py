"""Runs the command as it is, at a fixed time, with fixed random numbers and handlers of the tests.

`wrapper.py NOW WORD...` is `spooldeck WORD...` at NOW, epoch seconds. Beyond the command's own
words it knows one verb of the store after `--root DIR`, as the console applies it (`@hold ID...`),
and `@recover`: a worker that does what every worker does first, and finds no token to go on with.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.handlers import Context, Handler
    from engine.model import Task

RAN = "ran"
"""Beside the data folder: a line for each time that a handler was at work on a task."""


class Clock:
    """The time that everybody is told, epoch seconds."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """Now."""
        return self.now


CLOCK = Clock()
open_file, note = os.open, os.pwrite
"""The system's own, kept apart from what is counted: what a handler does is not the engine's."""
_NOTES = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


def fixed_random(count: int) -> bytes:
    """As `os.urandom`: the same at one time, another at another time."""
    piece = MARK + int(CLOCK.now).to_bytes(8)[-2:]
    return (piece * count)[:count]


MARK = b"\xca\xfe"


def fix() -> None:
    """Set clock, uptime and random numbers for all; before the engine is imported."""
    early = [name for name in sys.modules if name in ("engine.locks", "engine.stores.nftban")]
    assert not early, f"imported already, with the real clock: {early}"
    from engine import lockfile

    wall, uptime, slept = time.time, lockfile.uptime, lockfile.slept()
    lockfile.uptime, lockfile.slept = lambda: uptime() + CLOCK.now - wall(), lambda: slept
    time.time = CLOCK
    os.urandom = fixed_random


def handlers(root: str) -> Mapping[str, Handler]:
    """One kind that is done, one that fails, and one that never can be done."""
    from engine.handlers import Failed, Fatal

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


class Dry:
    """Limits under which nothing is ever begun."""

    def ready(self, kind: str) -> bool:
        """There is no token."""
        return False

    def spend(self, kind: str) -> bool:
        """There is no token."""
        return False

    def token_at(self, kind: str) -> float:
        """In an hour, always."""
        return CLOCK.now + 3600


def run(words: list[str]) -> int:
    """The command's exit code; what it prints is not flushed yet."""
    from tui import cli
    from tui.cli.wiring import Setup

    option, root, *rest = words
    assert option == "--root"
    if rest == ["@recover"]:
        with replaced(Setup, "limits", lambda setup: Dry()):
            return cli.main(["--root", root, "queue", "process-next"])
    if rest[0].startswith("@"):
        with replaced(cli, "_run", lambda words: apply(root, rest[0][1:], rest[1:])):
            return cli.main([])
    with replaced(Setup, "handlers", lambda setup, store, mailing: handlers(root)):
        return cli.main(["--root", root, *rest])


@contextmanager
def replaced(where: object, name: str, value: object) -> Iterator[None]:
    """Something else under a name for a while."""
    before = getattr(where, name)
    setattr(where, name, value)
    try:
        yield
    finally:
        setattr(where, name, before)


def apply(root: str, verb: str, idents: list[str]) -> int:
    """Carry out one verb on some tasks, and print the id of each that it was done to."""
    from dataclasses import replace

    from engine import config, operations, plans
    from engine.model import Move, State, Task
    from tui.cli.wiring import Setup

    setup = Setup(config.Config(), config.queue_for(config.Config(), root, {}))
    store = setup.open()
    tasks = [found for found in store.look(idents) if isinstance(found, Task)]
    if verb == "restore":
        moves = [Move(task, replace(task, state=State.PENDING)) for task in tasks]
        done = [o.move.old.id for o in store.swap_all(moves) if o.error is None and o.move.old]
    else:
        plan = plans.freeze(verb, tasks, CLOCK.now)._replace(taken_in=frozenset(idents))
        done = list(operations.apply(store, plan, lambda: CLOCK.now).done)
    store.close()
    for ident in done:
        sys.stdout.write(f"{ident}\n")
    return 0 if len(done) == len(idents) else 1


def main() -> None:
    """Be the command."""
    CLOCK.now = float(sys.argv[1])
    fix()
    sys.exit(run(sys.argv[2:]))


if __name__ == "__main__":
    main()
