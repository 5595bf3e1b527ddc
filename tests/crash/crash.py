"""Kill or fail the real command at every system call by which it changes a file, under strace.

`make crash` runs each scenario of `commands.py` in a process of its own: once to find its points,
then once for each point and fault; the harness recovers and checks. Plans: `test_crash.py`.
Exit codes: 0 all held, 1 something did not, 2 it could not be run."""

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
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash import wrapper

wrapper.fix()

from tests.crash import commands, sweep  # noqa: E402  # only now, when the clock is fixed
from tests.crash.harness import Ended, Fault, Result, Sweep  # noqa: E402

WRAPPER = Path(__file__).with_name("wrapper.py")
CALLS = (
    "open,openat,openat2,creat,write,pwrite64,writev,pwritev,pwritev2,truncate,ftruncate,fallocate,"
    "rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,symlink,symlinkat,"
    "mknod,mknodat,chmod,fchmod,fchmodat,chown,fchown,lchown,fchownat,utimensat,fsync,fdatasync,"
    "sync,syncfs,copy_file_range,sendfile,flock,setxattr,fsetxattr,exit_group"
)
"""Every call by which a file is changed or locked, and the end of the process."""
KILL, END = "before", "exit_group"
HOWS = (KILL, "EIO", "ENOSPC", "EACCES", "EINTR", "EMFILE")
"""A kill after a call is a kill before the next one, or at the end."""
HANGS_SECONDS = 30.0
TRIES = 8
"""Runs that are made until one is struck where it was meant to be."""
SHOWN = 10
"""Failures of a scenario that are printed."""

ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    # Without `site` (-S), which is a fifth of a start: where it would find packages is given here.
    "PYTHONPATH": f"{sweep.ROOT}:{sysconfig.get_path('purelib')}",
    **{"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0"},
    **{"LC_ALL": "C.UTF-8", "TZ": "UTC", "HOME": "/nonexistent"},
}


class Call(NamedTuple):
    """A system call, as strace counts it: the so many-th of its name."""

    name: str
    nth: int
    text: str
    """Without what changes from run to run."""


class Job(NamedTuple):
    """One run of a scenario with one fault."""

    scenario: str
    call: Call
    how: str

    def __str__(self) -> str:
        return f"{self.scenario}: {self.how} at {self.call.name} {self.call.nth}: {self.call.text}"


class CannotRun(Exception):
    """strace does not work here; the message is the reason."""


class Traced(Sweep):
    """All runs of a scenario, each in a process of its own under strace."""

    def __init__(self, name: str, folder: Path) -> None:
        self._scenario, self._folder = commands.CASES[name], folder
        super().__init__(self._scenario, folder / name)

    def calls(self) -> tuple[list[Call], list[str]]:
        """Return the points of the scenario; and what is wrong with it undisturbed."""
        with self.restored() as now:
            ended, log = self._trace(now, CALLS)
            if f"{END}(" not in log:
                raise CannotRun(f"strace does not trace: {ended.err.strip()[-200:]}")
            return list(self._points(log)), self.checked(ended, now)

    def run(self, job: Job) -> list[str]:
        """Make one faulted run, and return what is wrong with it.

        How often /proc is opened depends on what else runs on the machine: a run that was struck
        elsewhere than meant is made again."""
        for _ in range(TRIES):
            missed, wrong = self._run(job)
            if not missed:
                break
        return missed + wrong

    def _run(self, job: Job) -> tuple[list[str], list[str]]:
        """Return what is wrong with the run, and with what it left."""
        call = job.call
        with self.restored() as now:
            ended, log = self._trace(now, call.name, job)
            if job.how == KILL and not ended.killed:
                missed = [f"was not killed, but ended: {ended}"]
            else:
                lines = [text for text in _main_thread(log) if text.startswith(f"{call.name}(")]
                hit = self._signature(lines[call.nth - 1]) if len(lines) >= call.nth else "no call"
                missed = [] if hit == call.text else [f"came to another point: {hit}"]
            return missed, self.checked(ended, now)

    def _points(self, log: str) -> Iterator[Call]:
        counted: Counter[str] = Counter()
        for line in _main_thread(log):
            name, _, rest = line.partition("(")
            counted[name] += 1
            there = (
                str(self.root) in rest or name == END or (name == "write" and rest.startswith("1<"))
            )
            if there and (not name.startswith("open") or "O_CREAT" in rest or "O_TRUNC" in rest):
                yield Call(name, counted[name], self._signature(line))

    def _signature(self, line: str) -> str:
        """Return a call without results and numbers, such as PIDs, times and random numbers."""
        line = re.sub(r"\s*(=\s+-?\d.*|=\s+\?.*|<unfinished.*)$", "", line)
        # Data of which strace shows the beginning; where it ends depends on how long a PID is.
        line = re.sub(r'"(?:[^"\\]|\\.)*"\.\.\.', "...", line.replace(str(self._folder), ""))
        return re.sub(r"cafe[0-9a-f]*|[0-9a-f]*\d[0-9a-f]*", "#", line)

    def _trace(self, now: float, calls: str, job: Job | None = None) -> tuple[Ended, str]:
        """Return how the command ended under strace, and strace's log."""
        log, out, err = (self._folder / name for name in ("log", "out", "err"))
        killing, inject = job is not None and job.how == KILL, []
        if job is not None:
            harm = "signal=KILL" if killing else f"error={job.how}"
            inject = ["-e", f"inject={job.call.name}:{harm}:when={job.call.nth}"]
        # The kernel's filter makes a run twice as fast, but with it strace sends no signal.
        quick = [] if killing else ["--seccomp-bpf"]
        strace = ["strace", "-f", *quick, "-y", "-qq", "-o", str(log), "-e", "signal=none"]
        words = self._scenario.words(self.root)
        command = [*strace, "-e", f"trace={calls}", *inject]
        command += [sys.executable, "-S", str(WRAPPER), str(now), *words]
        lines = self._folder / "in"
        lines.write_text(self._scenario.lines)
        with lines.open("rb") as stdin, out.open("wb") as stdout, err.open("wb") as stderr:
            streams: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
            process = subprocess.Popen(
                command, **streams, cwd=sweep.ROOT, env=ENVIRONMENT, start_new_session=True
            )
            try:
                code = process.wait(HANGS_SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = -signal.SIGALRM
        killed = killing and code == -signal.SIGKILL
        texts = [path.read_text(errors="replace") for path in (out, err, log)]
        fault = Fault(job.call.nth if job else 0, job.how if job else KILL)
        signal_, answer = 0 if killed else max(0, -code), None if code < 0 else code
        ended = Ended(fault, killed, signal_, answer, out=texts[0], err=texts[1])
        return ended, texts[2]


def _main_thread(log: str) -> list[str]:
    """Return the calls of the thread that does all but run handlers; strace counts each apart."""
    lines = [line.partition(" ") for line in log.splitlines()]
    calls = ((thread, call.lstrip()) for thread, _, call in lines)
    return [call for thread, call in calls if thread == lines[0][0] and call[:1] != "<"]


_folder: Path


@cache
def _traced(name: str) -> Traced:
    return Traced(name, _folder)


def _begin(folder: str) -> None:
    global _folder
    sweep.load()
    _folder = Path(tempfile.mkdtemp(dir=folder))


def _find(name: str) -> tuple[str, list[Call], list[str]]:
    return name, *_traced(name).calls()


def _do(job: Job) -> tuple[Job, list[str]]:
    return job, _traced(job.scenario).run(job)


def main() -> int:
    """Sweep what is asked for, and print a table of it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--slice", type=int, default=1, metavar="N", help="every N-th run only")
    parser.add_argument("--verb", choices=list(commands.CASES), help="this scenario only")
    options = parser.parse_args()
    if shutil.which("strace") is None:
        return _complain("strace is missing; install it (Debian: apt-get install strace)")
    for part in ("engine", "tui", "themes", "tests/crash"):
        # Bytecode is not written in a run, where it would be a point in the first one only.
        compileall.compile_dir(sweep.ROOT / part, quiet=2)
    # recover-stuck opens /proc once for each process of the machine: its calls cannot be numbered
    # the same way twice. The sweep of tests/crash runs it at every point.
    names = [options.verb] if options.verb else [n for n in commands.CASES if n != "recover-stuck"]
    results: dict[str, Result] = {}
    with (
        tempfile.TemporaryDirectory(prefix="spooldeck-crash-") as folder,
        multiprocessing.get_context("fork").Pool(2, _begin, (folder,)) as pool,
    ):
        try:
            sweeps = pool.map(_find, names, chunksize=1)
        except CannotRun as reason:
            return _complain(str(reason))
        jobs = []
        for name, calls, wrong in sweeps:
            undisturbed = [f"{name}: undisturbed: {what}" for what in wrong]
            results[name] = Result(len(calls), 0, undisturbed)
            hows = [(call, (KILL,) if call.name == END else HOWS) for call in calls]
            jobs += [Job(name, call, how) for call, those in hows for how in those]
        # The same disorder each time: a slice then holds some of every command and every fault.
        random.Random(0).shuffle(jobs)
        for job, wrong in pool.imap_unordered(_do, jobs[:: options.slice], chunksize=4):
            points, runs, failures = results[job.scenario]
            failures += [f"{job}\n    {what}" for what in wrong]
            results[job.scenario] = Result(points, runs + 1, failures)
    sys.stdout.writelines(f"{line}\n" for line in _table(results))
    return int(any(result.failures or not result.points for result in results.values()))


def _complain(text: str) -> int:
    sys.stderr.write(f"crash: {text}\n")
    return 2


def _table(results: dict[str, Result]) -> Iterator[str]:
    for name, (_, _, failures) in results.items():
        yield from sorted(failures)[:SHOWN]
        if len(failures) > SHOWN:
            yield f"{name}: ... and {len(failures) - SHOWN} more"
    yield f"{'verb':24} {'points':>7} {'runs':>7} {'failures':>9}"
    every = results.values()
    failed = [failure for result in every for failure in result.failures]
    together = Result(sum(r.points for r in every), sum(r.runs for r in every), failed)
    for name, (points, runs, failures) in (*results.items(), ("all", together)):
        yield f"{name:24} {points:7} {runs:7} {len(failures):9}"


if __name__ == "__main__":
    sys.exit(main())
