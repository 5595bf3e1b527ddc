"""Asks a process that sweeps, `sweep.py` or `deeds.py`, for one scenario after another."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Result(NamedTuple):
    """What a sweep of one scenario came to."""

    points: int
    """Calls that change a file, in one undisturbed run."""
    runs: int
    failures: list[str]
    """Each with the fault, the point and what did not hold."""


class Sweeper:
    """A process that sweeps scenarios of the tree at `root`; it ends with the block."""

    def __init__(
        self,
        folder: Path,
        results: dict[str, Result],
        root: Path = ROOT,
        words: tuple[str, ...] = ("tests.crash.sweep",),
    ) -> None:
        """`words` are the module, and what it is told besides the folder."""
        self._command = [sys.executable, "-m", *words, str(folder)]
        self._root = root
        self._results = results

    def __enter__(self) -> Sweeper:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=self._root,
            env={
                "PYTHONPATH": str(self._root),
                "LC_ALL": "C.UTF-8",
                "TZ": "UTC",
                "HOME": "/nonexistent",
            },
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def sweep(self, name: str) -> Result:
        """All runs of one scenario."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the sweep of {name} ended: {self._process.wait()}"
        self._results[name] = Result(*json.loads(answer))
        return self._results[name]
