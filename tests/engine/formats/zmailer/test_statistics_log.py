"""The statistics log of the scheduler."""

import os
from pathlib import Path
from typing import Any

import pytest

from engine.formats.zmailer import statistics_log
from engine.formats.zmailer.spool import names
from engine.formats.zmailer.statistics_log import parse_line

NOW = 1_795_170_000

NEW = "S3309638AbmKTJ5Ym690J 0 20 error2 smtp/[127.0.0.1]\n"
OLD = "812876256 90401-2 0 5 ok smtp/((mx1)(mx2 mx3))\n"


def test_both_forms_are_read_and_the_new_one_is_written() -> None:
    """The old form has its time too, and a host may have blanks; a torn or foreign line is none."""
    new, old = parse_line(NEW), parse_line(OLD)
    where: dict[str, Any] = {"state": "error2", "channel": "smtp", "host": "[127.0.0.1]"}
    assert new == statistics_log.StatisticsLine("S3309638AbmKTJ5Ym690J", 0, 20, **where)
    assert statistics_log.format_line(new) == NEW
    assert old is not None
    assert (old.time, old.message, old.host) == (812876256.0, "90401-2", "((mx1)(mx2 mx3))")
    for text in ("", "S1 0 0 ok x/y", "9 x 0 1 ok a/b", "9 1 0 1 fine a/b", "9 1 0 1 ok ab"):
        assert parse_line(text) is None
    assert parse_line("9 1 a 1 ok a/b") is None


def test_the_ends_of_recipients_are_counted_as_they_are_logged(tmp_path: Path) -> None:
    """Failures by thread, of the last ends; of a log that was rotated the new one, from its start;
    a line without its end counts when it is complete."""
    path, spool_id = tmp_path / "statistics", names.spool_id(7, NOW * 10**9)
    reader = statistics_log.EndsReader(str(path))
    with pytest.raises(FileNotFoundError):
        reader.read()

    def line(state: str, thread: str) -> str:
        return f"{spool_id} 0 2 {state} {thread}\n"

    path.write_text(line("ok3", "smtp/a") + line("error", "smtp/a") + "no line\n")
    os.utime(path, (NOW, NOW))
    statistics = reader.read()
    assert (statistics, statistics.is_alarming) == ((2, 1, {"smtp/a": 1}, 1, NOW), False)
    with path.open("a") as log:
        log.write(line("error2", "smtp/b") * 3 + line("expire", "smtp/b")[:-3])
    assert reader.read()[:4] == (5, 4, {"smtp/b": 3, "smtp/a": 1}, 4)
    with path.open("a") as log:
        log.write("/b\n")
    assert reader.read().total_failed == 5
    path.rename(tmp_path / "statistics.1")
    path.write_text(line("expire", "smtp/b"))
    statistics = reader.read()
    assert (statistics.total_failed, statistics.failed, statistics.is_alarming) == (6, 6, True)


def test_the_log_of_a_running_scheduler_is_that_of_its_option() -> None:
    """From its command line, of either program; a relative path is not known."""
    for words, path in (
        ("/usr/lib/zmailer/scheduler -l /var/log/stat", "/var/log/stat"),
        ("python3 spooldeck zmailer scheduler -vl/log/stat", "/log/stat"),
        ("scheduler -l stat", ""),
        ("scheduler -?", ""),
        ("other", ""),
        ("scheduler", ""),
    ):
        line = f"{words} ".replace(" ", "\0").encode()
        assert statistics_log.find_statistics_log(7, lambda path, line=line: line) == path  # type: ignore[misc]
    assert statistics_log.find_statistics_log(2**30) == ""
