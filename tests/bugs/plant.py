"""Plants faults in a copy of the project, one at a time, and looks whether the tests find them.

`plant.py [NAME ...]` prints which test fails for each fault, and exits 1 if one survives. Each
fault's tests run in a fork of this process, which has loaded pytest and nothing of the project.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import hypothesis  # noqa: F401 - loaded once, here, and not again in every fork
import pytest
import pytest_asyncio.plugin

from tests.bugs.faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("engine", "tui", "themes", "tests", "pyproject.toml")
PATIENCE = 60.0
"""Seconds after which a test without a fault hangs."""
PYTEST = (
    "-x",
    "-q",
    "--deep",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=--strict-markers --strict-config --import-mode=importlib",
)


SKIPPED = "not tried here:"
"""What is said of a fault whose test needs rights or programs that are not there."""


class Ran(NamedTuple):
    """How some tests went."""

    passed: Sequence[str] = ()
    failed: Sequence[str] = ()
    """In their body: a test that fails before, or is not collected, is in neither list."""
    skipped: Sequence[str] = ()
    astray: Sequence[str] = ()
    """Modules of the project that were not those of the copy."""
    said: str = ""


class Verdict(NamedTuple):
    """Whether a fault was found."""

    name: str
    red: str
    """The test that found it; "" when none did."""
    why: str
    """Why it does not count as found; "" when it does."""
    seconds: float


class Stale(Exception):
    """The table does not fit the code any more."""


# ---- the copy


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the project that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="planted-") as place:
        copy = Path(place, "copy")
        copy.mkdir()
        for name in COPIED:
            if (ROOT / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / name, copy / name, ignore=ignored)
            else:
                shutil.copy2(ROOT / name, copy / name)
        yield copy


@contextmanager
def planted(fault: Fault, copy: Path) -> Iterator[None]:
    """The copy with a fault in it."""
    path = copy / fault.file
    text, stat = path.read_text(), path.stat()
    path.write_text(patched(fault, text))
    # Compiled code is known by time and size, and this may be the same size within one second.
    os.utime(path, (stat.st_atime, stat.st_mtime + 10))
    try:
        yield
    finally:
        path.write_text(text)
        os.utime(path, (stat.st_atime, stat.st_mtime))


def patched(fault: Fault, text: str) -> str:
    """A file's text with a fault in it.

    Raises:
        Stale: what it replaces is not there exactly once.
    """
    for old, new in fault.edits:
        if (count := text.count(old)) != 1:
            where = f"{fault.name}: {fault.file}"
            raise Stale(f"{where} holds this {count} times, expected once: {old!r}")
        text = text.replace(old, new)
    return text


# ---- running tests in it


class _Listener:
    """Hears from pytest how each test went, and fails one that hangs."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.skipped: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped:
            self.skipped.append(report.nodeid)
        elif report.when == "call":
            (self.passed if report.passed else self.failed).append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        def fail(*_: object) -> None:
            raise TimeoutError(f"hung for {self.patience:g} s")

        before = signal.signal(signal.SIGALRM, fail)
        signal.setitimer(signal.ITIMER_REAL, self.patience)
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def run(test: str, copy: Path, patience: float = PATIENCE) -> Ran:
    """Run a test of the copy, in a process of its own."""
    reader, writer = os.pipe()
    log = copy.parent / "log"
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.setsid()
            ran = _run_here(test, copy, log, patience)
            os.write(writer, json.dumps(ran).encode())
        except BaseException:
            log.write_text(traceback.format_exc())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        output = _read_until_end(reader, patience + PATIENCE)
    finally:
        os.close(reader)
        _end_session(child)
    text = log.read_text(errors="replace") if log.exists() else ""
    if not output:
        return Ran(said=f"its process died or hung: {text}")
    passed, failed, skipped, astray, _ = json.loads(output)
    return Ran(passed, failed, skipped, astray, text)


def _run_here(test: str, copy: Path, log: Path, patience: float) -> Ran:
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, source in enumerate((nothing, fd, fd)):
        os.dup2(source, number)
    os.chdir(copy)
    os.environ |= {"PYTHONPATH": str(copy), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    os.environ.pop("PYTEST_ADDOPTS", None)  # of other plugins
    sys.path[:] = [str(copy), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    listener = _Listener(patience)
    arguments = [*PYTEST, "--rootdir", str(copy), test]
    pytest.main(arguments, plugins=[listener, pytest_asyncio.plugin])
    importlib.import_module("engine.system.files")  # if no test has: what would it have got?
    sources = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
    prefix = f"{ROOT}/"
    astray = [s for s in sources if s.startswith(prefix) and not s.startswith(f"{prefix}.venv/")]
    astray = [source for source in astray if source != __file__]
    return Ran(listener.passed, listener.failed, listener.skipped, astray)


def _read_until_end(fd: int, patience: float) -> bytes:
    """What the child tells; nothing if it takes too long."""
    output, deadline = b"", time.monotonic() + patience
    while select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(fd, 65536)
        if not more:
            return output
        output += more
    return b""


def _end_session(child: int) -> None:
    """End the process, and what it started, even in sessions of its own: orphans become ours."""
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while children := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        for pid in map(int, children):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _adopt_orphans() -> None:
    """Become the parent of each descendant whose own parent ends (prctl(2))."""
    PR_SET_CHILD_SUBREAPER = 36
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


# ---- the verdict


class Planter:
    """A copy of the project, and what is known to pass in it."""

    def __init__(self, copy: Path) -> None:
        self._copy = copy
        self._sound: set[str] = set()
        self._check_path()

    def _check_path(self) -> None:
        """Processes that a test starts, too, must import the copy."""
        paths = subprocess.run(
            [sys.executable, "-c", "import engine, tui; print(engine.__file__, tui.__file__)"],
            env={**os.environ, "PYTHONPATH": str(self._copy), "PYTEST_ADDOPTS": ""},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        if not all(path.startswith(f"{self._copy}/") for path in paths):
            raise Stale(f"the copy is not what is imported: {paths}")

    def judge(self, fault: Fault) -> Verdict:
        """Whether the fault's tests pass without it, and one of them fails with it."""
        start = time.monotonic()
        red, why = self._judge(fault)
        return Verdict(fault.name, red, why, time.monotonic() - start)

    def _judge(self, fault: Fault) -> tuple[str, str]:
        if fault.test not in self._sound:
            ran = run(fault.test, self._copy)
            if ran.skipped and not (ran.passed or ran.failed or ran.astray):
                return "", f"{SKIPPED} {ran.skipped[0]} cannot run"
            if ran.failed or ran.astray or not ran.passed:
                return "", f"unsound without the fault: {ran.failed or ran.astray or ran.said}"
            self._sound.add(fault.test)
        with planted(fault, self._copy):
            ran = run(fault.test, self._copy, fault.patience)
        if ran.astray:
            return "", f"not the copy: {ran.astray}"
        if not ran.failed:
            return "", f"survived: {ran.said[-300:]}"
        return ran.failed[0], ""


def main(arguments: list[str]) -> int:
    """Judge all faults, or the named ones; returns 1 if one survives or no longer fits the code."""
    by_name = {fault.name: fault for fault in FAULTS}
    names = arguments or list(by_name)
    worst = 0
    _adopt_orphans()
    with copied() as copy:
        planter = Planter(copy)
        for name in names:
            try:
                verdict = planter.judge(by_name[name])
            except Stale as stale:
                verdict = Verdict(name, "", f"stale: {stale}", 0.0)
            outcome = verdict.red or f"NOT FOUND: {' '.join(verdict.why.split())}"
            sys.stdout.write(f"{name} | {outcome} | {verdict.seconds:.1f} s\n")
            sys.stdout.flush()
            worst |= not (verdict.red or verdict.why.startswith(SKIPPED))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
