"""Kills and refuses the real command at every system call by which it changes a file.

`make crash` runs each scenario of `verbs.py` in a process of its own under strace: once to find its
points, then once for each point and fault. Then the next worker recovers, and `checker.py` judges.
Exit codes: 0 all held, 1 something did not, 2 it could not be run.

To be killed after a call is to be killed before the next one of these, or at the end.
"""

from __future__ import annotations

import argparse
import compileall
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.crash import sweep  # first: it fixes the clock

# isort: split

from tests.crash import checker
from tests.crash.checker import Ended
from tests.crash.verbs import SCENARIOS

ROOT = Path(__file__).resolve().parents[2]
WRAPPER = Path(__file__).with_name("wrapper.py")

CALLS = (
    *("open", "openat", "openat2", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2"),
    *("truncate", "ftruncate", "fallocate", "rename", "renameat", "renameat2", "link", "linkat"),
    *(
        "unlink",
        "unlinkat",
        "mkdir",
        "mkdirat",
        "rmdir",
        "symlink",
        "symlinkat",
        "mknod",
        "mknodat",
    ),
    *("chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat", "utimensat"),
    *("fsync", "fdatasync", "sync", "syncfs", "copy_file_range", "sendfile", "flock"),
    *("setxattr", "fsetxattr", "exit_group"),
)
"""Every call by which a file is changed or locked, and the end of the process."""

ERRORS = ("EIO", "ENOSPC", "EACCES", "EINTR", "EMFILE")
KILL = "kill"
END = "exit_group"

HANGS = 30.0
"""Seconds after which a command that has not ended never will; it takes a fifth of a second."""


class Point(NamedTuple):
    """A system call, as strace counts it: the so many-th of its name."""

    name: str
    nth: int
    text: str
    """With what changes from run to run left out."""


class Job(NamedTuple):
    """One run."""

    scenario: str
    point: Point
    how: str
    """`kill`, or an error's name."""


class Failure(NamedTuple):
    """A job that showed something wrong, and what."""

    job: Job
    what: str


TRIES = 4
"""Runs that are made until one is struck where it was meant to be."""


class CannotRun(Exception):
    """strace does not work here; the message says why."""


class Runner:
    """Runs jobs one after another, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places: dict[str, sweep.Place] = {}

    def points(self, name: str) -> tuple[list[Point], list[str]]:
        """The points of a scenario; and what is wrong with it undisturbed."""
        place = self._place(name)
        with place.laid() as now:
            ended, log = self._run(place, now, CALLS, "")
            if f"{END}(" not in log:
                raise CannotRun(f"strace does not trace: {ended.err.strip()[-200:]}")
            wrong = list(checker.of_the_command(place.scenario, ended, faulted=False))
            return self._points(log, str(place.root)), wrong + place.recovered(now, ended)

    def job(self, job: Job) -> list[Failure]:
        """One faulted run, and all that is wrong with it.

        How often /proc is opened depends on what else runs on the machine: a run that was struck
        elsewhere than meant is made again.
        """
        for _ in range(TRIES):
            missed, wrong = self._job(job)
            if not missed:
                break
        return [Failure(job, what) for what in (*missed, *wrong)]

    def _job(self, job: Job) -> tuple[list[str], list[str]]:
        """What is wrong with the run, and what is wrong with what came of it."""
        place, point = self._place(job.scenario), job.point
        fault = "signal=KILL" if job.how == KILL else f"error={job.how}"
        with place.laid() as now:
            inject = f"{point.name}:{fault}:when={point.nth}"
            ended, log = self._run(place, now, (point.name,), inject)
            missed, wrong = self._unless_struck(job, log, ended), list[str]()
            if job.how == KILL:
                ended = ended._replace(signal=0)
            else:
                wrong += checker.of_the_command(place.scenario, ended, faulted=True)
            wrong += place.recovered(now, ended)
        return missed, wrong

    def _points(self, log: str, root: str) -> list[Point]:
        counted: Counter[str] = Counter()
        points = []
        for line in _of_main_thread(log):
            name, _, rest = line.partition("(")
            counted[name] += 1
            if _is_point(name, rest, root):
                points.append(Point(name, counted[name], self._signature(line)))
        return points

    def _unless_struck(self, job: Job, log: str, ended: Ended) -> list[str]:
        """What is wrong with the run itself: the fault must hit the call that it was meant for."""
        if job.how == KILL and ended.signal != signal.SIGKILL:
            return [f"was not killed, but ended: {ended}"]
        point = job.point
        lines = [line for line in _of_main_thread(log) if line.startswith(f"{point.name}(")]
        if len(lines) < point.nth:
            return ["never came to this point"]
        hit = self._signature(lines[point.nth - 1])
        return [] if hit == point.text else [f"came to another point: {hit}"]

    def _signature(self, line: str) -> str:
        return _signature(line.replace(str(self._folder), ""))

    def _place(self, name: str) -> sweep.Place:
        if name not in self._places:
            self._places[name] = sweep.Place(self._folder / name, SCENARIOS[name])
        return self._places[name]

    def _run(
        self, place: sweep.Place, now: float, calls: tuple[str, ...], inject: str
    ) -> tuple[Ended, str]:
        """How the command ended under strace, and strace's log."""
        paths = [self._folder / name for name in ("log", "out", "err")]
        log, out, err = paths
        # The kernel's filter makes a run twice as fast, but with it strace sends no signal.
        quick = [] if "KILL" in inject else ["--seccomp-bpf"]
        command = [
            *("strace", "-f", *quick, "-y", "-qq", "-o", str(log), "-e", "signal=none"),
            *("-e", f"trace={','.join(calls)}", *(("-e", f"inject={inject}") if inject else ())),
            *(sys.executable, "-S", str(WRAPPER), str(now), *place.words),
        ]
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=ROOT,
                env=ENVIRONMENT,
                start_new_session=True,
            )
            try:
                code = process.wait(HANGS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = -signal.SIGALRM
        said, complained = out.read_text(errors="replace"), err.read_text(errors="replace")
        return (
            Ended(None if code < 0 else code, max(0, -code), said, complained),
            log.read_text(errors="replace"),
        )


ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    # Without `site` (-S), which is a fifth of a start: where it would find packages is said here.
    "PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "HOME": "/nonexistent",
}


def _of_main_thread(log: str) -> list[str]:
    """The calls of the thread that does everything but run handlers; strace counts each apart."""
    lines = [line.partition(" ") for line in log.splitlines()]
    calls = ((thread, call.lstrip()) for thread, _, call in lines)
    return [call for thread, call in calls if thread == lines[0][0] and call[:1] != "<"]


def _is_point(name: str, rest: str, root: str) -> bool:
    if name == END:
        return True
    if name in ("open", "openat", "openat2"):
        return root in rest and ("O_CREAT" in rest or "O_TRUNC" in rest)
    return root in rest or (name == "write" and rest.startswith("1<"))


def _signature(call: str) -> str:
    """A call without what differs from run to run: results, and numbers such as PIDs and times.

    Random numbers are the time behind a mark (`wrapper.fixed_random`), at some times letters alone.
    """
    return re.sub(
        r"cafe[0-9a-f]*|[0-9a-f]*\d[0-9a-f]*", "#", _CUT_SHORT.sub("...", _RESULT.sub("", call))
    )


_RESULT = re.compile(r"\s*(=\s+-?\d.*|=\s+\?.*|<unfinished.*)$")
_CUT_SHORT = re.compile(r'"(?:[^"\\]|\\.)*"\.\.\.')
"""Data of which strace shows the beginning; where it ends depends on how long a PID is."""


def _hows(point: Point) -> tuple[str, ...]:
    return (KILL,) if point.name == END else (KILL, *ERRORS)


_runner: Runner


def _begin(folder: str) -> None:
    global _runner
    sweep.load()
    _runner = Runner(Path(tempfile.mkdtemp(dir=folder)))


def _find(name: str) -> tuple[str, list[Point], list[str]]:
    return name, *_runner.points(name)


def _do(job: Job) -> list[Failure]:
    return _runner.job(job)


def main() -> int:
    """Everything that is asked for, and a table of it."""
    arguments = _parse()
    if shutil.which("strace") is None:
        return _say("strace is missing; install it (Debian: apt-get install strace)", 2)
    for folder in ("engine", "tui", "themes", "tests/crash"):
        # Bytecode is not written in a run, where it would be a point in the first one only.
        compileall.compile_dir(ROOT / folder, quiet=2)
    names = [arguments.verb] if arguments.verb else list(SCENARIOS)
    with (
        tempfile.TemporaryDirectory(prefix="spooldeck-crash-") as folder,
        multiprocessing.get_context("fork").Pool(2, _begin, (folder,)) as pool,
    ):
        try:
            found = pool.map(_find, names, chunksize=1)
        except CannotRun as reason:
            return _say(str(reason), 2)
        jobs = [
            Job(name, point, how)
            for name, points, _ in found
            for point in points
            for how in _hows(point)
        ]
        # The same disorder each time: a slice then holds some of every command and every fault.
        random.Random(0).shuffle(jobs)
        jobs = jobs[:: arguments.slice]
        failures = [f for some in pool.imap_unordered(_do, jobs, chunksize=4) for f in some]
    undisturbed = [
        Failure(Job(name, Point("", 0, "undisturbed"), ""), what)
        for name, _, wrong in found
        for what in wrong
    ]
    counts = {name: len(points) for name, points, _ in found}
    return _report(counts, jobs, undisturbed + failures)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--slice", type=int, default=1, metavar="N", help="every N-th run only")
    parser.add_argument("--verb", choices=list(SCENARIOS), help="this scenario only")
    return parser.parse_args()


def _say(text: str, code: int) -> int:
    sys.stderr.write(f"crash: {text}\n")
    return code


def _report(counts: dict[str, int], jobs: list[Job], failures: list[Failure]) -> int:
    lines = []
    for name in counts:
        of_it = sorted(failure for failure in failures if failure.job.scenario == name)
        lines += [line for failure in of_it[:MOST] for line in _words(failure)]
        if len(of_it) > MOST:
            lines.append(f"{name}: ... and {len(of_it) - MOST} more")
    lines += _table(counts, jobs, failures)
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if failures or not all(counts.values()) else 0


def _words(failure: Failure) -> tuple[str, str]:
    (scenario, point, how), what = failure
    return f"{scenario}: {how} at {point.name} {point.nth}: {point.text}", f"    {what}"


def _table(counts: dict[str, int], jobs: list[Job], failures: list[Failure]) -> Iterator[str]:
    yield f"{'verb':20} {'points':>7} {'runs':>7} {'failures':>9}"
    for name, points in counts.items():
        runs = sum(job.scenario == name for job in jobs)
        bad = sum(failure.job.scenario == name for failure in failures)
        yield f"{name:20} {points:7} {runs:7} {bad:9}"
    yield f"{'all':20} {sum(counts.values()):7} {len(jobs):7} {len(failures):9}"


MOST = 10
"""Failures of a scenario that are shown one by one."""

if __name__ == "__main__":
    sys.exit(main())
