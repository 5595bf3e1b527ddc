"""Processes on one spool, killed and stopped at random: each task is handled.

The choices of the schedule are drawn from a seed, which each failure names; when each process
runs is up to the system, so a seed repeats a failure often, not always. `make soak` plays longer.
"""

import os
from pathlib import Path

import pytest

from tests.rivals.nftban_processes import BESIDE, BREAKING, OURS, Field, Line, needless, overlaps
from tests.tables import each

SEED = int(os.environ.get("RIVALS_SEED", "20261120"))
LINES = 250
"""Lines on the ledger after which a game is ended: some 25 processes, half of them killed."""


def played(folder: Path, crew: tuple[str, ...]) -> Field:
    """A game that went on for so many lines."""
    with Field(folder, SEED, crew) as field:
        field.play(lambda: len(field.lines) < LINES)
        field.finish()
    return field


def test_killed_rivals_lose_no_task(tmp_path: Path) -> None:
    """Nothing is lost, torn or unexpected, no two processes hold the lock together, and only tasks
    that a killed process had claimed are repeated."""
    counts = played(tmp_path, OURS).count()
    assert counts.broken() == [], f"RIVALS_SEED={SEED}: {counts}"
    assert counts.handled > 20 and counts.kills > 0, f"RIVALS_SEED={SEED}: {counts}"


def test_no_task_is_lost_beside_a_program_without_our_lock(tmp_path: Path) -> None:
    """Though it may work at the same time and rewrites in place, every task is handled, whole."""
    field = played(tmp_path, BESIDE)
    counts = field.count()
    assert counts.broken(shared=True) == [], f"RIVALS_SEED={SEED}: {counts}"
    assert any(line.name.startswith("standin") for line in field.lines)


@pytest.mark.deep
def test_operators_who_break_locks_lose_no_task(tmp_path: Path) -> None:
    """Nothing is lost or torn if a worker is ended whose last heartbeat is a second old."""
    counts = played(tmp_path, BREAKING).count()
    assert counts.broken() == [], f"RIVALS_SEED={SEED}: {counts}"


# ---- the count itself


def test_the_count_finds_a_lost_task(tmp_path: Path) -> None:
    """A task that leaves the spool without having been handled is counted as lost, by its name."""
    with Field(tmp_path, SEED, ("produce",)) as field:
        field.start("produce")
        field.go_on()
        while not any(line.event == "ack" for line in field.lines):
            field.turn()
        (ack, *_) = (line for line in field.lines if line.event == "ack")
        (tmp_path / "queue" / "pending" / f"{ack.detail}.task").unlink()
        counts = field.finish()
    assert counts.lost == (ack.task,)
    assert f"lost: {ack.task}" in counts.broken()


@each(("ledger", "seen"), [
    ("a begin t 1, a ok t 1, b begin u 2, b ok u 2", 0),
    ("a begin t 1, a begin u 2, a ok t 1, a fail u 2, b begin t 3", 0),
    ("a begin t 1, b begin u 2, a ok t 1, b ok u 2", 1),
    ("a begin t 1, a begin u 2, a ok t 1, b begin t 3, a ok u 2", 1),
    ("a begin t 1, b begin u 2, b ok u 2", 0),
])  # fmt: skip
def test_the_count_finds_two_lock_holders_at_work(ledger: str, seen: int) -> None:
    """Handlers of one holder may overlap, those of two may not; one that was killed has no end."""
    lines = [Line(*words.split()) for words in ledger.split(", ")]
    assert len(list(overlaps(lines))) == seen


@each(("ledger", "killed", "expected"), [
    ("a ok t 1, a ok u 2, b ok v 3", {}, []),
    ("a ok t 1, b ok t 2", {"a": 1}, []),
    ("a ok t 1, b ok t 2", {"b": 1}, ["t after a"]),
    ("a ok t 1, a ok u 2, b ok t 3, b ok u 4", {"a": 2}, []),
    ("a ok t 1, a ok u 2, b ok t 3, b ok u 4", {"a": 1}, ["u after a"]),
])  # fmt: skip
def test_the_count_finds_repeats(ledger: str, killed: dict[str, int], expected: list[str]) -> None:
    """Only a task that a killed process had claimed may be handled again."""
    lines = [Line(*words.split()) for words in ledger.split(", ")]
    assert list(needless(lines, killed)) == expected
