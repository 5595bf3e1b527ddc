"""Ages count as far as runs have seen them pass; a clock that was set starts them again."""

import errno
from pathlib import Path

import pytest

from engine.seen_time import RunMoment, SeenTime, note_run
from engine.system import files
from engine.system.run_clock import RECORD, ClockSteps, RunClock, read_seen_time

NOW, HOUR, DAY = 1_795_200_000.0, 3600.0, 86400.0


def seen_by(*runs: tuple[float, float, str]) -> SeenTime:
    """What runs at these times have seen: seconds after NOW, uptime and start of the system."""
    uptime_note = SeenTime()
    for after, uptime, boot in runs:
        uptime_note = note_run(uptime_note, RunMoment(NOW + after, uptime, boot))
    return uptime_note


@pytest.mark.parametrize(("runs", "age"), [
    ([(0, 0, "a")], 0),
    ([(0, 0, "a"), (300, 300, "a")], 300),
    ([(0, 0, "a"), (DAY, DAY, "a")], DAY),
    ([(0, 0, "a"), (8 * DAY, 60, "a")], 0),
    ([(0, 0, "a"), (DAY, DAY, "a"), (9 * DAY, DAY + 9, "a"), (DAY, DAY + 18, "a")], 0),
    ([(0, 0, "a"), (DAY, DAY, "a"), (3 * DAY, 0, "b"), (4 * DAY, DAY, "b")], 2 * DAY),
    ([(0, 0, "a"), (DAY, DAY, "a"), (-30 * DAY, 0, "b"), (2 * DAY, 60, "b")], 0),
    ([(0, 0, "a"), (1800, 0, "b")], 1800),
    ([(0, 0, ""), (300, 0, ""), (2 * DAY, 0, "")], 300),
    ([(0, 0, "a"), (DAY, DAY, "a"), (DAY - 2, DAY + 1, "a")], DAY),
    ([(0, 900, "a"), (DAY, 5, "a")], 0),
])  # fmt: skip
def test_an_age_is_what_runs_have_seen(runs: list[tuple[float, float, str]], age: float) -> None:
    """Time between runs counts if the uptime confirms it or if it is short; a step of the clock by
    more than an hour, or a time before the last run, starts all ages again."""
    assert seen_by(*runs).age(NOW - 9 * DAY) == age


def test_a_step_is_remembered() -> None:
    """A console knows one for a day; runs record what the clock gained over the uptime."""
    clock, uptime = [NOW], [500.0]
    recorded = SeenTime(stepped_at=NOW - HOUR, step=2 * HOUR)
    steps = ClockSteps(lambda now: recorded, lambda: clock[0], lambda: uptime[0])
    assert steps.describe() == "clock set ahead by 2h00m before 2026-11-20 17:40:00Z"
    clock[0], uptime[0] = NOW + 59, 559.0
    assert "2h00m" in steps.describe()
    clock[0], uptime[0] = NOW - 3 * HOUR, 560.0
    assert steps.describe().startswith("clock set back by 3h01m before 2026-")
    clock[0], uptime[0] = NOW + DAY, 560.0 + DAY + 3 * HOUR
    assert steps.describe() == ""

    uptime_note = seen_by((0, 0, "a"), (8 * DAY, 60, "a"), (8 * DAY + 60, 120, "a"))
    assert (uptime_note.stepped_at, uptime_note.step) == (NOW + 8 * DAY, 8 * DAY - 60)
    assert uptime_note.age(NOW) == 60


def test_the_record_is_read_again_and_a_damaged_one_has_seen_nothing(tmp_path: Path) -> None:
    """A second process goes on where the first ended, and logs a step once."""
    logged: list[str] = []

    def clock() -> RunClock:
        return RunClock(str(tmp_path), "", lambda _, text: logged.append(text), lambda path: None)

    clock().note(NOW)
    assert read_seen_time(str(tmp_path), "").age(NOW - DAY) == 0
    assert clock().age(NOW - DAY, NOW + 1800) == 1800
    assert logged == []
    assert clock().age(NOW - DAY, NOW + 8 * DAY) == 0
    assert clock().age(NOW - DAY, NOW + 8 * DAY) == 0
    (line,) = logged
    assert line.startswith("clock set ahead by 7d23h before 2026-")
    (tmp_path / RECORD).write_text("no record\n")
    assert read_seen_time(str(tmp_path), "") == SeenTime()


def test_ages_are_known_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is too old is deleted there too: only its record cannot be written."""
    clock = RunClock(str(tmp_path), "", lambda level, text: None, lambda path: None)
    clock.note(NOW)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "replace_file", fail)
    assert clock.age(NOW, NOW + 1800) == 1800
