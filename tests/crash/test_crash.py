"""Killed, starved or refused at any step, a command loses nothing and repeats at most one task."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.swept import ROOT, Sweeper
from tests.crash.verbs import SCENARIOS
from tests.examples import deep_but

QUICK = {"add", "next-done", "dlq-purge"}


@pytest.mark.parametrize("name", deep_but(QUICK, SCENARIOS))
def test_at_every_point_nothing_is_lost(name: str, sweeper: Sweeper) -> None:
    """Wherever it is killed or refused, and its recovery killed as well: each task stands whole
    under one name, attempts count once, and no exit code and no printed id promises too much.
    """
    result = sweeper.sweep(name)

    assert result.failures == []
    assert result.points >= SCENARIOS[name].floor
    assert result.runs > result.points


BREAKS = {
    "a rescue forgets to count": (
        "engine/rescuer.py",
        "Move(task, outcome_of_failure(task, reason, retry, now, end))",
        "Move(task, verbs.unclaim(task))",
        "next-done",
        "its attempt was not counted",
    ),
    "an outcome that was not stored is forgotten": (
        "engine/worker.py",
        "self._owed.append(owed)",
        "pass",
        "next-done",
        "after exit code 1, not pending/0",
    ),
}
"""File, what is replaced by what, the scenario that finds it and what it says."""


@pytest.mark.deep
@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_engine_is_found(name: str, tmp_path: Path) -> None:
    """The sweep of a copy in which one line was spoiled reports failures."""
    file, right, wrong, scenario, said = BREAKS[name]
    copy = copied(tmp_path, file, right, wrong)

    with Sweeper(tmp_path / "sweep", {}, copy) as sweeper:
        result = sweeper.sweep(scenario)

    assert any(said in failure for failure in result.failures), result.failures


def copied(tmp_path: Path, file: str, right: str, wrong: str) -> Path:
    """This project with one line spoiled."""
    copy = tmp_path / "copy"
    for part in ("engine", "tui", "themes", "tests/crash"):
        shutil.copytree(ROOT / part, copy / part)
    path = copy / file
    text = path.read_text()
    assert text.count(right) == 1, f"{file}: this line has changed; name another one"
    path.write_text(text.replace(right, wrong))
    return copy


def crash(copy: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`make crash` in a copy of the project."""
    return subprocess.run(
        [sys.executable, "tests/crash/crash.py", *words],
        cwd=copy,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(copy)} | more,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_real_command_s_faults_are_found(tmp_path: Path) -> None:
    """Under strace, too, a spoiled line is found: exit 1, and a table that counts the failures."""
    if shutil.which("strace") is None and "CI" not in os.environ:
        pytest.skip("strace is not installed")
    spoiled = ("engine/verbs.py", "state=State.HELD)", "state=State.TRASH)")

    run = crash(copied(tmp_path, *spoiled), "--verb", "hold", "--slice", "9")

    assert run.returncode == 1, run.stderr
    assert "not held/0" in run.stdout
    _, points, runs, failures = run.stdout.splitlines()[-1].split()
    assert int(points) >= SCENARIOS["hold"].floor
    assert int(runs) >= 5
    assert int(failures) >= 1


def test_without_strace_it_is_never_passed(tmp_path: Path) -> None:
    """Where there is no strace, that is said in one line, with exit code 2."""
    run = crash(ROOT, PATH=str(tmp_path))

    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr == "crash: strace is missing; install it (Debian: apt-get install strace)\n"
