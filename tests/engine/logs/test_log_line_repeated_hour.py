"""Local times of the hour that occurs twice when the clocks are set back."""

import calendar
import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from math import inf
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.logs.line_counts import LineRates
from engine.logs.log_line import format_log_line, parse_local_time
from engine.logs.merged_log import BEGIN, END, MergedLog, run_to_end
from engine.logs.recent_lines import RecentLines
from engine.text.time_expressions import Clock, parse_time
from tests.engine.logs.test_merged_log import scanned
from tests.tables import each

SET_BACK = float(calendar.timegm((2026, 10, 25, 1, 0, 0)))
"""In Berlin the clocks are set back from 03:00 to 02:00."""

TIMES = [SET_BACK + second for second in range(-5400, 5400, 15)]
"""From 01:30 to 02:59:45, and from 02:00 to 03:29:45."""


def _scheduler_line(level: str, text: str, now: float) -> bytes:
    return f"{time.strftime('%Y%m%d%H%M%S', time.localtime(now))} {text}\n".encode()


def _json_line(level: str, text: str, now: float) -> bytes:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(now))
    return json.dumps({"time": stamp, "msg": text}).encode() + b"\n"


Form: TypeAlias = Callable[[str, str, float], bytes]
FORMS: list[Form] = [format_log_line, _scheduler_line, _json_line]


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is that of Berlin."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def _write_log(path: Path, form: Form) -> str:
    path.write_bytes(b"".join(form("INFO", f"{when:.0f} {'x' * 240}", when) for when in TIMES))
    return str(path)


@each("begin", [0, 233, 433, 700])
@each("form", FORMS)
def test_a_tail_from_anywhere_knows_the_second_half(tmp_path: Path, form: Form, begin: int) -> None:
    """A line has the time at which it was written, wherever in the hour the tail starts."""
    path = _write_log(tmp_path / "log", form)
    size = sum(len(form("INFO", f"{when:.0f} {'x' * 240}", when)) for when in TIMES[begin:])
    with closing(RecentLines(path, inf, size)) as tail:
        assert [line.when for line in tail.poll(0.0)] == TIMES[begin:]


@each("forward", [True, False])
@each("form", FORMS)
def test_a_page_of_a_log_knows_the_second_half(tmp_path: Path, form: Form, forward: bool) -> None:
    """Read forward or backward, a line has its own time, and is sorted by it."""
    with closing(MergedLog([_write_log(tmp_path / "log", form)], 4096)) as book:
        book.refresh()
        scan = scanned(book, BEGIN if forward else END, want=len(TIMES), forward=forward)
        assert [entry.line.when for entry in scan.entries] == TIMES
        assert [entry.key[0] for entry in scan.entries] == TIMES


@pytest.mark.parametrize(("seconds", "before", "expected"), [
    (600, 600 - 3540, 600 - 3600),  # nothing is certain: the first one
    (2400, 600, 2400),  # half an hour of silence in the second half
    (590, 600, 590),  # another writer was faster
    (-3010, -3000, -3010),
    (600, 7200, 600),
])  # fmt: skip
def test_no_time_is_before_that_of_the_last_line(seconds: int, before: int, expected: int) -> None:
    """Of the two times, the first that is at most a minute before; the second if none is."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(SET_BACK + seconds))
    assert parse_local_time(stamp, SET_BACK + before) == SET_BACK + expected


def test_both_halves_are_told_apart(tmp_path: Path) -> None:
    """The last hour ends in the second half; a histogram has as many lines in each half."""
    now, path = TIMES[-1], _write_log(tmp_path / "log", format_log_line)
    with closing(RecentLines(path)) as recent:
        times = [line.when for line in recent.poll(now)]
        assert recent.since == now - 3600
    assert [when for when in times if when and when >= now - 3600] == TIMES[-241:]
    with closing(MergedLog([path], 4096)) as book:
        book.refresh()
        rates = LineRates(book, TIMES[0])
        run_to_end(rates)
        assert [part.lines for part in rates.parts(6, TIMES[0], TIMES[-1] + 15)] == [120] * 6


@pytest.mark.parametrize(("now", "expected"), [(-1500, -1800), (900, -1800), (2100, 1800)])
def test_a_typed_time_of_day_is_the_latest_of_both(now: int, expected: int) -> None:
    """02:30 is the latest half past two that has passed."""
    moment = parse_time("02:30", SET_BACK + now)
    assert isinstance(moment, Clock)
    assert moment.before(SET_BACK + now) == SET_BACK + expected
