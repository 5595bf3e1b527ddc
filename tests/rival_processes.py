"""Processes that the tests of the stores start: rivals that begin at the same time."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


@contextmanager
def running(script: str, *words: str, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """A process that runs a script, which says by a line that it is ready, and ends with its input
    at the latest."""
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
from tests.open_store import open_store
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
    """What processes say that run a script at the same time: each goes on once all are ready."""
    with ExitStack() as opened:
        rivals = [opened.enter_context(running(script, *words)) for _ in range(count)]
        for rival in rivals:
            assert rival.stdin is not None
            rival.stdin.write("go\n")
            rival.stdin.flush()
        said = [rival.communicate(timeout=120)[0].split() for rival in rivals]
    assert [rival.returncode for rival in rivals] == [0] * count
    return said
