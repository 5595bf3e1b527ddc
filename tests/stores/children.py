"""Processes that the tests of the stores start: rivals that begin at once, and children each of
which ends at another step of what it does.
"""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine import files
from engine.store import StoreError

ROOT = Path(__file__).parents[2]

STEPS = (
    *("rename", "unlink", "write", "fsync", "mkdir", "fchown", "fchmod", "ftruncate", "utime"),
    *("link", "rmdir", "symlink"),
)
"""Everything by which the engine changes a file."""

ERRORS = {"broken": errno.EIO, "interrupted": errno.EINTR, "full": errno.ENOSPC}
"""How calls fail; when the disk is full, all that follow fail as well."""

HOWS = ("before", "torn", "after", *ERRORS)
"""How a child ends at a step: killed before it, in the middle of what it writes, or after it; or
told by the system that it failed."""

_REFUSED, _RAW, _OVER, _DONE = range(10, 14)
"""What a child says by its exit code; 1 is an error of the test itself."""

_WORDS = {_REFUSED: "refused", _RAW: "raw", _OVER: "over", _DONE: "done"}


def die() -> None:
    """End at once, with nothing tidied up."""
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(step: int, how: str) -> list[int]:
    """Make the so many-th of all steps the last one of this process; counts them."""
    count = [0]

    def wrap(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **options: object) -> object:
            count[0] += 1
            if count[0] < step or (count[0] > step and how != "full"):
                return call(*args, **options)
            if how in ERRORS:
                raise OSError(ERRORS[how], os.strerror(ERRORS[how]))
            try:
                if how == "torn" and name == "write":
                    fd, data = args
                    assert isinstance(data, bytes)
                    return call(fd, data[: len(data) // 2])
                return call(*args, **options) if how == "after" else None
            finally:
                die()

        return wrapper

    for name in STEPS:
        setattr(files, name, wrap(name, getattr(files, name)))
    return count


def ended(begin: Callable[[], Callable[[], object]], step: int, how: str) -> str:
    """How a child ended: `killed`, `refused` (it said that it could not), `raw` (it said so by an
    error of the system's), `done`, or `over` when it had no such step.

    `begin` opens what it needs, and answers with what is to be ended.
    """
    child = os.fork()
    if child == 0:
        act = begin()
        count = deadly(step, how)
        try:
            act()
        except StoreError:
            os._exit(_REFUSED)
        except OSError:
            os._exit(_RAW)
        os._exit(_OVER if count[0] < step else _DONE)
    _, status = os.waitpid(child, 0)
    return "killed" if os.WIFSIGNALED(status) else _WORDS[os.WEXITSTATUS(status)]


def end_everywhere(root: str, verb: str, run: Callable[[str, int, str], str]) -> None:
    """Every step in every manner, until the verb is over before it comes to that step; a line
    `NAME HOW` for each. `run` is given a place of its own, a step and a manner.
    """
    for how in HOWS:
        step, end = 0, ""
        while end != "over":
            step += 1
            name = f"{verb}-{how}-{step}".replace(" ", "_")
            end = run(f"{root}/{name}", step, how)
            sys.stdout.write(f"{name} {'done' if end == 'over' else end}\n")


def ends(module: str, *words: str) -> list[tuple[str, str]]:
    """What a module beside this one answers of all the children that it ended: name and how."""
    said = subprocess.run(
        [sys.executable, "-m", f"tests.stores.{module}", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert said.returncode == 0, said.stderr
    found = [line.rpartition(" ") for line in said.stdout.splitlines()]
    return [(name, how) for name, _, how in found]


@contextmanager
def running(script: str, *words: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a script, which says by a line that it is ready, and ends with its input
    at the latest.
    """
    with subprocess.Popen(
        [sys.executable, "-c", script, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=cwd,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def asked(process: subprocess.Popen[str], line: str) -> str:
    """What a process answers to a line, by another one."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()
    return process.stdout.readline()


TAKER = """
import sys
from engine.stores import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
while batch := list(store.take(float(sys.argv[2]), "me", 2)):
    for task in batch:
        if sys.argv[3:] == ["done"]:
            store.swap(task, None)
        print(task.id)
"""
"""Takes all that is due in a place by a moment, says what, and with `done` is done with it."""


def at_once(count: int, script: str, *words: str) -> list[list[str]]:
    """What processes say that run a script at the same time: once all are ready, each is told to go
    by a line.
    """
    with ExitStack() as opened:
        rivals = [opened.enter_context(running(script, *words)) for _ in range(count)]
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("go\n")
            rival.stdin.flush()
        said = [rival.communicate(timeout=120)[0].split() for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0] * count
    return said
