"""Killed, refused or cut off at any point: no task or mail is lost, torn or doubled."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.crash.commands import CASES as COMMANDS
from tests.crash.nftban import LYING
from tests.crash.sweep import ROOT, TABLES, Sweeper
from tests.examples import IS_DEEP

QUICK = {
    "command": {"add-batch", "next-done", "work"},
    "plan": {"retry", "purge", "hold"},
    "kannader": {"hold", "take", "discard a mail"},
    "zgb": {"ack", "hold", "retry all"},
    "zmailer": {"hold", "release a finished one", "agent hold"},
    "mail": {"doubt", "record", "suspend"},
    "nftban": {"enqueue", "take, nack", "edit"},
    "power cut": set(TABLES["power cut"]),
}
BATCH = 6
EVERY = 1 if IS_DEEP else 7
"""Each so many-th run of a case is made; `make deep` makes all. It is prime to the number of faults
of a point, so that each of them is met."""


SHM = Path("/dev/shm")
PREFIX = "spooldeck-sweep-"


@pytest.fixture(scope="session")
def sweeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweeper]:
    """Return what sweeps cases, each when it is asked for."""
    # A kill needs no disk, and in memory the files of some thousand runs cost half.
    memory = SHM if os.access(SHM, os.W_OK) else tmp_path_factory.mktemp("sweep")
    remove_left_behind(memory)
    prefix = f"{PREFIX}{os.getpid()}-"
    with TemporaryDirectory(prefix=prefix, dir=memory) as folder, Sweeper(Path(folder)) as sweeper:
        yield sweeper


def remove_left_behind(memory: Path) -> None:
    """Remove the folders of test processes that were killed."""
    for folder in memory.glob(f"{PREFIX}*-*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)


def batches() -> Iterator[Any]:
    """Return the cases of each table: the quick ones, then the others in batches."""
    for table, cases in TABLES.items():
        yield pytest.param(table, sorted(QUICK[table]), id=table)
        rest = [name for name in cases if name not in QUICK[table]]
        for at in range(0, len(rest), BATCH):
            name = f"{table} {at // BATCH + 1}"
            yield pytest.param(table, rest[at : at + BATCH], id=name, marks=pytest.mark.deep)


@pytest.mark.parametrize(("table", "names"), batches())
def test_at_every_point_nothing_is_lost(table: str, names: list[str], sweeper: Sweeper) -> None:
    """Killed, refused or cut off at any point, its recovery too, an action is done or not done."""
    results = {name: sweeper.sweep(f"{table}/{name}", EVERY) for name in names}
    assert [f"{name}: {what}" for name, r in results.items() for what in r.failures] == []
    assert all(result.runs > 2 for result in results.values())


# ---- the checks find what they are made for


@pytest.mark.deep
def test_a_missing_fsync_is_found(sweeper: Sweeper) -> None:
    """Where a single fsync is skipped, there is a disk on which a promise does not hold."""
    assert [lie for lie in LYING if not sweeper.sweep(f"lie/{lie}").failures] == []


BREAKS = {
    "a rescue forgets to count": (
        "engine/work/outcomes.py",
        "task_after_failure(task, reason, _policy_of(store, task, retry), now, end)",
        "verbs.unclaim(task)",
        "command/next-done",
        "its attempt was not counted",
    ),
    "an outcome that was not stored is forgotten": (
        "engine/work/outcomes.py",
        "self.owed.append(one)\n\n    def",
        "pass\n\n    def",
        "command/next-done",
        "after exit code 1, not pending/0",
    ),
    "the intent follows the first move": (
        "engine/operations/journal.py",
        'files.write_all(fd, f"{json.dumps(line)}\\n".encode())',
        "pass",
        "plan/retry",
        "moved without an intent",
    ),
    "what was excluded is forgotten": (
        "engine/operations/journal_writer.py",
        "    excluded = (RowOutcome(row, RowResult.EXCLUDED, why) for row, why in plan.excluded)\n",
        "    excluded: list[RowOutcome] = []\n",
        "plan/purge",
        "written down as done",
    ),
    "an interruption counts as done": (
        "engine/operations/undo.py",
        '        return "" if is_so else "interrupted, and changed since"',
        '        return ""',
        "plan/promote",
        "written down as done",
    ),
}
"""File, what is replaced by what, the case that finds it and what it reports."""


@pytest.mark.deep
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_engine_is_found(name: str, tmp_path: Path) -> None:
    """The sweep of a copy in which one line was changed reports failures."""
    file, right, wrong, case, reported = BREAKS[name]
    with Sweeper(tmp_path / "sweep", copied(tmp_path, file, right, wrong)) as sweeper:
        result = sweeper.sweep(case, 7)
    assert any(reported in failure for failure in result.failures), result.failures


def copied(tmp_path: Path, file: str, right: str, wrong: str) -> Path:
    """Return a copy of this project with one line changed."""
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for part in ("engine", "tui", "themes", "tests/crash"):
        shutil.copytree(ROOT / part, copy / part, ignore=ignored)
    text = (copy / file).read_text()
    assert text.count(right) == 1, f"{file}: this line has changed; name another one"
    (copy / file).write_text(text.replace(right, wrong))
    return copy


def crash(copy: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run `make crash` in a copy of the project."""
    return subprocess.run(
        [sys.executable, "tests/crash/crash.py", *words],
        cwd=copy,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(copy)} | more,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.deep
def test_the_real_commands_faults_are_found(tmp_path: Path) -> None:
    """Under strace, too, a changed line is found: exit 1, and a table that counts the failures."""
    if shutil.which("strace") is None and "CI" not in os.environ:
        pytest.skip("strace is not installed")
    right, wrong = 'due=0.0, attempts=0, error="")', 'due=0.0, error="")'
    copy = copied(tmp_path, "engine/verbs.py", right, wrong)
    run = crash(copy, "--verb", "dlq-retry", "--slice", "19")
    assert run.returncode == 1, run.stderr
    assert "not pending/0" in run.stdout
    _, points, runs, failures = run.stdout.splitlines()[-1].split()
    assert int(points) >= COMMANDS["dlq-retry"].floor
    assert int(runs) >= 5
    assert int(failures) >= 1


def test_without_strace_it_is_never_passed(tmp_path: Path) -> None:
    """Where there is no strace, one line and exit code 2 report that."""
    run = crash(ROOT, PATH=str(tmp_path))
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "crash: strace is missing; install it (Debian: apt-get install strace)\n"
