"""What the games of killed processes have in common: roles, kills by a seed, and a result."""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 60
"""Runs of a worker until everything has to be done."""

Process: TypeAlias = "subprocess.Popen[bytes]"


class Result(NamedTuple):
    """What was counted in a game, and each promise that was broken."""

    counts: dict[str, int]
    broken: list[str]

    def __str__(self) -> str:
        return ", ".join(f"{name} {count}" for name, count in self.counts.items())


def start(
    words: list[str], home: Path, *, output: Any = subprocess.DEVNULL, **more: Any
) -> Process:
    """A process that no setting of this machine reaches, with further variables."""
    stdin = more.pop("stdin", subprocess.DEVNULL)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("NFTBAN_")}
    environ |= {"HOME": str(home), **more}
    return subprocess.Popen(words, env=environ, cwd=ROOT, stdin=stdin, stdout=output, stderr=output)


def spooldeck(at: Path, *words: str) -> list[str]:
    """A command of ours with the configuration in a folder."""
    return [sys.executable, "-P", "-m", "tui.cli", "--config", f"{at}/c.yaml", *words]


def churn(
    roles: Mapping[str, Callable[[], Process]],
    rng: random.Random,
    going: Callable[[], bool],
    risk: float,
    ended: Callable[[str, Process], None] = lambda role, process: None,
) -> Counter[str]:
    """Keep a process of each role running while it goes, and kill one at a time by SIGKILL.

    In the end all are killed but senders, which end. Returns how often each role was started, and
    the number of kills before.
    """
    running: dict[str, Process] = {}
    counts = Counter(kills=0)
    while going():
        for role, start_one in roles.items():
            if role not in running or running[role].poll() is not None:
                if role in running:
                    ended(role, running[role])
                running[role] = start_one()
                counts[role] += 1
        time.sleep(rng.uniform(0, 0.2))
        if rng.random() < risk:
            rng.choice(list(running.values())).kill()
            counts["kills"] += 1
    for role, process in running.items():
        if not role.startswith("send"):
            process.kill()
        process.wait()
        ended(role, process)
    return counts
