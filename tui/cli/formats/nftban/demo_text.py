"""The demo without a terminal: an operator's commands on its NFTBan queues, with their output.

Each step is a command of this program in a process of its own, as typed in the demo's folder. The
numbers and the operation that a command needs are read from the JSON of the command before it.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence

from engine.formats.nftban.demo import FLOWING, STUCK_AFTER_SECONDS, WEDGED
from engine.system.command_errors import fail
from engine.values import NamedTuple
from tui.terminal.crash_report import EX_SOFTWARE

REFUSED_RECIPIENTS = "code=550"
"""Filter of dead tasks that no retry repairs."""
PAST_ERROR = "nft"
"""Filter of dead tasks whose error is over."""
STUCK_WAIT_SECONDS = 2 * STUCK_AFTER_SECONDS
"""Seconds after which a lock that is still not stuck is an error of the demo."""


class OperatorShell(NamedTuple):
    """Runs commands in the demo's folder."""

    folder: str
    program: Sequence[str]
    """The command line that starts this program."""
    config_path: str

    def show(self, words: str, *codes: int) -> int:
        """Print a command, run it with our output, and return its exit code, one of `codes` (0)."""
        print(f"$ spooldeck {words}", flush=True)
        code = self._run(words).returncode
        print(flush=True)
        if code not in (codes or (0,)):
            fail(EX_SOFTWARE, f"demo: spooldeck {words}: ended with {code}")
        return code

    def read(self, words: str) -> dict[str, object]:
        """The first JSON object that a command prints, with any exit code."""
        ended = self._run(f"{words} --json", subprocess.PIPE, subprocess.PIPE)
        try:
            answer: dict[str, object] = json.loads(ended.stdout.partition(b"\n")[0])
        except ValueError:
            fail(EX_SOFTWARE, f"demo: spooldeck {words}: {ended.stderr.decode(errors='replace')}")
        return answer

    def apply(self, words: str) -> None:
        """Plan, then apply with the number of the plan. Plan again if the number has changed since:
        the traffic goes on."""
        for is_last in (False, False, True):
            amount = self.read(f"{words} --dry-run").get("acted_on", "?")
            if self.show(f"{words} --apply {amount}", *(() if is_last else (0, 1))) == 0:
                return

    def _run(
        self, words: str, stdout: int | None = None, stderr: int | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        argv = [*self.program, "--config", self.config_path, *shlex.split(words)]
        stdin = subprocess.DEVNULL
        return subprocess.run(argv, cwd=self.folder, stdin=stdin, stdout=stdout, stderr=stderr)


def run_as_text(
    folder: str, config_path: str, program: Sequence[str], places: Sequence[str]
) -> None:
    """Do an operator's work on the demo's places, as commands with their output."""
    shell = OperatorShell(folder, program, config_path)
    names = [os.path.relpath(place, folder) if place.startswith("/") else place for place in places]
    _say("What is wrong, at all places? (exit code 1: something needs attention)")
    shell.show(shlex.join(["overview", *names]), 0, 1)
    _say(f"One of them: {FLOWING}, a busy queue with dead tasks.")
    shell.show(f"status {FLOWING}", 0, 1)
    _say("Its dead tasks, grouped by error: which errors still happen?")
    shell.show(f"clusters {FLOWING}")

    _say("Mail to unknown users cannot be sent. A plan to purge it; nothing changes yet.")
    purge = f"purge {FLOWING} --filter {REFUSED_RECIPIENTS}"
    shell.show(f"{purge} --dry-run")
    _say("Apply it: the number must be that of the plan.")
    shell.apply(purge)
    _say("That was wrong? Each operation can be undone for 24 hours.")
    shell.show(f"undo {FLOWING}")
    shell.apply(f"undo {shell.read(f'undo {FLOWING}')['op']} {FLOWING}")

    _say("An error that stopped happening: replay its tasks, one first, then ten, then the rest.")
    shell.apply(f"replay {FLOWING} --filter {PAST_ERROR}")

    _say(
        f"The other queue: a worker holds the lock of {WEDGED} and hangs. After "
        f"{STUCK_AFTER_SECONDS:.0f} s without a heartbeat its lock is stuck ..."
    )
    recover, until = f"queue recover {WEDGED}", time.monotonic() + STUCK_WAIT_SECONDS
    while not shell.read(f"{recover} --dry-run")["done"]:
        if time.monotonic() > until:
            fail(EX_SOFTWARE, f"demo: the lock of {WEDGED} did not become stuck")
        time.sleep(1)
    shell.show(f"{recover} --dry-run")
    _say("Its process is proven to hold the lock, so it is ended; its task is queued again.")
    shell.show(f"{recover} --yes")
    shell.show(f"status {WEDGED}", 0, 1)


def _say(text: str) -> None:
    sys.stdout.write(f"# {text}\n")
    sys.stdout.flush()
