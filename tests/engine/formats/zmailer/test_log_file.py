"""The log file of a scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.formats.zmailer.log_file import SchedulerLog


def test_the_log_has_times_and_can_be_rotated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each line has its time; after 25 s, or a signal, the file is opened by its name again."""
    now = [1_795_170_000.0]
    path = tmp_path / "scheduler"
    log = SchedulerLog(str(path), lambda: now[0])
    fd = log.fd
    log.write("a\x1bb")
    path.rename(tmp_path / "old")
    log.write("to the old file")
    now[0] += 25
    log.write("to the new file")
    log.reopen()

    assert log.fd == fd
    log.close()
    stamps = [line.partition(" ")[0] for line in (tmp_path / "old").read_text().splitlines()]
    assert len(stamps) == 2
    assert all(len(one) == 14 and one.isdigit() for one in stamps)
    assert "\x1b" not in (tmp_path / "old").read_text()
    assert path.read_text().endswith(" to the new file\n")
