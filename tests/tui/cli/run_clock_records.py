"""Runs whose uptime agrees with any clock, and a record of runs over a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.seen_time import RunMoment
from engine.system.run_clock import RECORD


def agree_with_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the uptime pass as the clock does, however far a test moves it."""
    monkeypatch.setattr(
        "engine.system.run_clock.read_moment", lambda now: RunMoment(now, now, "one-start")
    )


def record_runs(folder: Path, start: float, end: float) -> None:
    """Write that runs at a place have seen the time from start to end."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(f"{end} 0.0 another-start\n0.0 0.0\n{start} {end}\n")
