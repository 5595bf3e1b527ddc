"""Killed, starved or refused at any step, a command loses nothing and repeats at most one task."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.crash.swept import ROOT, Sweeper
from tests.crash.verbs import SCENARIOS


@pytest.mark.parametrize("name", SCENARIOS)
def test_at_every_point_nothing_is_lost(name: str, sweeper: Sweeper) -> None:
    """Wherever it is killed or refused, and its recovery killed as well: each task stands whole
    under one name, attempts count once, and no exit code and no printed id promises too much.
    """
    result = sweeper.sweep(name)

    assert result.failures == []
    assert result.points >= SCENARIOS[name].floor
    assert result.runs > 2 * result.points


BREAKS = {
    "a reader may see half of the metrics": (
        "engine/files.py",
        'new = f"{name}.{os.getpid()}.tmp"',
        "new = name",
        "next-nothing",
        "queue.prom is not whole",
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


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_engine_is_found(name: str, tmp_path: Path) -> None:
    """The sweep of a copy in which one line was spoiled reports failures."""
    file, right, wrong, scenario, said = BREAKS[name]
    for part in ("engine", "tui", "themes", "tests/crash"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / file
    assert path.read_text().count(right) == 1, "this line has changed: name another one"
    path.write_text(path.read_text().replace(right, wrong))

    with Sweeper(tmp_path / "sweep", {}, tmp_path) as sweeper:
        result = sweeper.sweep(scenario)

    assert any(said in failure for failure in result.failures), result.failures
