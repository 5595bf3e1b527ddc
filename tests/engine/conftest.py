"""Children for the engine's tests: real processes, none of which outlives its test."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

Child = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[..., Child]]:
    """Start a Python program with pipes to it; it is killed when the test is over."""
    children: list[Child] = []

    def starter(code: str, *args: str, pass_fds: tuple[int, ...] = ()) -> Child:
        child = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )
        children.append(child)
        return child

    yield starter
    for child in children:
        child.kill()
        child.communicate()
