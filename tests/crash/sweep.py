"""All tables of what is killed and refused, and a process that sweeps what it is asked for.

`python -m tests.crash.sweep FOLDER` reads lines `EVERY TABLE/CASE` from standard input, makes each
EVERY-th run of that case and answers with a line of JSON, the fields of a `Result`."""

from __future__ import annotations

import gc
import importlib
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

if __name__ == "__main__":
    from tests.crash import wrapper

    wrapper.fix()

from engine.formats.kannader import permissions
from tests.crash import commands, kannader, mail, nftban, plans, zgb, zmailer  # by the fixed clock
from tests.crash.harness import Case, Result

ROOT = Path(__file__).resolve().parents[2]

TABLES: Mapping[str, Mapping[str, Case]] = {
    "command": commands.CASES,
    "plan": plans.CASES,
    "kannader": kannader.CASES,
    "zgb": zgb.CASES,
    "zmailer": zmailer.CASES,
    "mail": mail.CASES,
    "nftban": nftban.VERBS,
    "power cut": nftban.CUTS,
}
LYING = "lie"
"""The table of cases that fail: an fsync is skipped."""
CASES: Mapping[str, Case] = {
    f"{table}/{name}": case
    for table, cases in (*TABLES.items(), (LYING, nftban.LYING))
    for name, case in cases.items()
}

LOADED = """
tui.cli.formats.nftban.recover tui.cli.formats.nftban.corrupt tui.cli.queue.list_tasks
tui.cli.formats.nftban.dlq tui.cli.formats.nftban.work engine.locks.lock_breaker
engine.operations.plans engine.live.folder_watch yaml
"""
"""What the commands import when they run."""


class Sweeper:
    """A process that sweeps cases of the project at `root`; it ends with the block."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self._command = [sys.executable, "-m", "tests.crash.sweep", str(folder)]
        self._root = root

    def __enter__(self) -> Sweeper:
        environ = {"PYTHONPATH": str(self._root), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        environ |= {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
        pipe, root = subprocess.PIPE, self._root
        self._process = subprocess.Popen(
            self._command, stdin=pipe, stdout=pipe, text=True, cwd=root, env=environ
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def sweep(self, name: str, every: int = 1) -> Result:
        """Make the runs of one case, or each so many-th."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{every} {name}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the sweep of {name} ended: {self._process.wait()}"
        return Result(*json.loads(answer))


def load() -> None:
    """Import beforehand what every fork would."""
    sys.dont_write_bytecode = True
    for name in LOADED.split():
        importlib.import_module(name)
    gc.freeze()


def main() -> None:
    """Sweep what is asked for."""
    load()
    # It walks /proc/*/fd of the whole machine, for seconds per case; its own test calls it.
    permissions.find_kannaders = lambda folders: ()
    for number, line in enumerate(sys.stdin):
        every, _, name = line.strip().partition(" ")
        result = CASES[name].sweep(Path(sys.argv[1], str(number)), int(every))
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
