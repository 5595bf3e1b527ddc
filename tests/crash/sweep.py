"""Kills and refuses a command at each of its points, by forks of one prepared process.

`sweep.py FOLDER` reads names of scenarios from standard input and answers each with a line of JSON,
the fields of a `Result`. A run is: lay the spool out anew; fork, and run the command with one
fault; fork, recover; check. Where the command was killed, a first recovery is itself killed, at
another of its points each time.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from time import time as wall_clock
from typing import NamedTuple

from tests.crash import tree, wrapper

wrapper.fix()

from engine import locks  # noqa: E402  # only now, when the clock is fixed
from tests.crash import checker  # noqa: E402
from tests.crash.checker import Ended  # noqa: E402
from tests.crash.points import KILLS, Fault, Points, faults  # noqa: E402
from tests.crash.verbs import LATER, MUCH_LATER, SCENARIOS, Scenario, make_place  # noqa: E402

HANGS = 20
"""Seconds after which a command that has not ended never will."""

LOADED = (
    "tui.cli.recover",
    "tui.cli.corrupt",
    "engine.breaker",
    "engine.plans",
    "engine.watch",
    "tui.cli.queue",
    "tui.cli.dlq",
    "tui.cli.work",
    "yaml",
)
"""What the commands import when they run."""

RECOVERY = "@recover"
NOTHING = 1
"""Its exit code: it found no token to go on with."""


class Result(NamedTuple):
    """What a sweep of one scenario came to."""

    points: int
    runs: int
    failures: list[str]


class Place:
    """The spool of one scenario, laid out anew for each run."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self.root = folder / "place"
        self.scenario = scenario
        self.root.mkdir(parents=True)
        make_place(self.root)
        scenario.prepare(self.root)
        aside = self.root / "queue/.spooldeck/corrupt"
        names = (path.name for path in (aside.iterdir() if aside.is_dir() else ()))
        self._aside = next((name for name in names if not name.endswith(".why")), "")
        self._fixture = tree.taken(self.root)
        tree.remove(self.root)
        self.runs = 0
        self._holder = 0

    @property
    def words(self) -> list[str]:
        """The scenario's command on this place."""
        root = str(self.root)
        return [
            "--root",
            root,
            *(w.format(root=root, aside=self._aside) for w in self.scenario.words),
        ]

    @contextmanager
    def laid(self) -> Iterator[float]:
        """There while in the block; answers with the time at which its command runs."""
        self.runs += 1
        tree.lay(self.root, self._fixture)
        if self.scenario.stuck:
            self._holder = _stuck_holder(f"{self.root}/run/queue.lock")
        yield int(wall_clock()) + LATER
        self._end_holder()
        tree.remove(self.root)
        (self.root.parent / wrapper.RAN).unlink(missing_ok=True)

    def _end_holder(self) -> None:
        """Whoever was not ended by the command ends now; a later worker must find it gone."""
        if self._holder:
            os.kill(self._holder, signal.SIGKILL)
            os.waitpid(self._holder, 0)
            self._holder = 0

    def recovered(self, now: float, ended: Ended) -> list[str]:
        """What is wrong once the next worker has recovered it, in this process."""
        self._end_holder()
        wrapper.CLOCK.now = at_recovery(now)
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said), _signals_kept():
            code = wrapper.run(["--root", str(self.root), RECOVERY])
        wrong = list(checker.of_the_place(self.scenario, self.root, now, ended))
        if code != NOTHING:
            wrong.append(f"recovery ended with {code}: {said.getvalue()!r}")
        return wrong


@contextmanager
def _signals_kept() -> Iterator[None]:
    """A worker listens to these until its process ends; ours goes on."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def _stuck_holder(path: str) -> int:
    """The PID of a process that takes a lock and gives no heartbeat: it is stuck `LATER`."""
    ready, done = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            locks.acquire(path, 1200, wall_clock, lambda: clock_gettime(CLOCK_BOOTTIME))
            os.write(done, b"!")
            signal.pause()
        finally:
            os._exit(1)
    os.close(done)
    held = os.read(ready, 1)
    os.close(ready)
    assert held, "it could not take the lock"
    return child


def at_recovery(now: float) -> float:
    """When a place is recovered whose command ran at `now`."""
    return now - LATER + MUCH_LATER


class Sweep:
    """All runs of one scenario in one folder."""

    def __init__(self, folder: Path, scenario: Scenario) -> None:
        self._place = Place(folder, scenario)
        self._scenario = scenario
        self._recovery_points = 1
        self._out, self._err, self._report = map(os.memfd_create, ("out", "err", "report"))

    def result(self) -> Result:
        """Every run there is."""
        points, failures = self._undisturbed()
        for fault in faults(points) if not failures else ():
            where = (["", *points, "its end"])[fault.step]
            failures += [f"{fault} ({where}): {what}" for what in self._with(fault)]
        return Result(len(points), self._place.runs, failures)

    def _undisturbed(self) -> tuple[list[str], list[str]]:
        with self._place.laid() as now:
            ended = self._run(self._place.words, now, Fault())
            points = self._said(self._report).split()
            wrong = list(checker.of_the_command(self._scenario, ended, faulted=False))
            return points, wrong + self._place.recovered(now, ended)

    def _with(self, fault: Fault) -> list[str]:
        with self._place.laid() as now:
            ended = self._run(self._place.words, now, fault)
            if fault.how not in KILLS:
                wrong = list(checker.of_the_command(self._scenario, ended, faulted=True))
                if "struck" not in self._said(self._report) and not ended.signal:
                    wrong.append("never came to this point")
                return wrong + self._place.recovered(now, ended)
            if ended.signal != signal.SIGKILL:
                return [f"was not killed, but ended: {ended}"]
            recovery = self._kill_recovery(fault.step, now)
            return [f"(recovery {recovery}) {what}" for what in self._place.recovered(now, ended)]

    def _kill_recovery(self, turn: int, now: float) -> Fault:
        """A first recovery that is killed as well, each time further on."""
        fault = Fault(1 + turn % self._recovery_points)
        ended = self._run(["--root", str(self._place.root), RECOVERY], at_recovery(now) - 1, fault)
        if ended.signal:
            self._recovery_points += 1
        else:
            self._recovery_points = len(self._said(self._report).split())
        return fault

    def _run(self, words: list[str], now: float, fault: Fault) -> Ended:
        for fd in (self._out, self._err, self._report):
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        child = os.fork()
        if child == 0:
            try:
                os.dup2(self._out, 1)
                os.dup2(self._err, 2)
                os._exit(self._live(words, now, fault))
            finally:
                os._exit(99)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        return Ended(
            None if killed else os.WEXITSTATUS(status),
            os.WTERMSIG(status) if killed else 0,
            self._said(self._out),
            self._said(self._err),
        )

    def _live(self, words: list[str], now: float, fault: Fault) -> int:
        """The command's whole life in this process, to the exit code."""
        signal.alarm(HANGS)
        wrapper.CLOCK.now = now
        points = Points(fault)
        points.install()
        try:
            code = wrapper.run(words)
        except BaseException:
            # As the interpreter does with what nobody catches.
            traceback.print_exc()
            code = 1
        try:
            sys.stdout.flush()
        except OSError:
            code = 120  # what the interpreter ends with then
        points.end()
        struck = ["struck"] * bool(points.struck)
        wrapper.note(self._report, " ".join(points.passed + struck).encode(), 0)
        return code

    def _said(self, fd: int) -> str:
        return os.pread(fd, 1 << 20, 0).decode()


def load() -> None:
    """Import beforehand what every fork would."""
    sys.dont_write_bytecode = True
    for name in LOADED:
        importlib.import_module(name)
    gc.freeze()


def main() -> None:
    """Sweep what is asked for."""
    folder = Path(sys.argv[1])
    load()
    for line in sys.stdin:
        name = line.strip()
        result = Sweep(folder / name, SCENARIOS[name]).result()
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
