"""The time line of a frozen overview: the recorded span, where alerts began, and the time shown."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from engine.monitor.alerts import Level
from engine.monitor.recorded_history import MAX_SAMPLE_AGE_SECONDS, RecordedHistory
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.overview.alert_lines import alert_key
from tui.text.glyphs import RISING
from tui.text.lines import Line, Run, merge_runs

MIN_LINE_CELLS = 10
"""Cells of the shortest line between its two times."""

SAMPLES_IN_A_ROW, PAUSE_SECONDS = 50, 0.001
"""After so many samples the decoding pauses: else the event loop would wait for the interpreter."""

_LEVEL_STYLES = {Level.CRIT: "error", Level.WARN: "warn", Level.INFO: "muted"}


class AlertStart(NamedTuple):
    """An alert that a sample has and the sample before it has not."""

    when: float
    """Time of the sample, epoch seconds UTC."""
    level: Level
    text: str
    """Level, place and text of the alert."""
    is_first: bool = False
    """The recording begins with it: it may have begun before."""


class TimeLine(NamedTuple):
    """What is recorded of some places."""

    times: Sequence[float] = ()
    """Times of all samples in order, epoch seconds UTC."""
    starts: Sequence[AlertStart] = ()
    """In order of time."""

    def next_start(self, at: float, direction: int) -> AlertStart | None:
        """The last alert that began before a time (direction -1), or the first one after it."""
        if direction < 0:
            return next((one for one in reversed(self.starts) if one.when < at), None)
        return next((one for one in self.starts if one.when > at), None)


def read_time_line(histories: Iterable[tuple[str, RecordedHistory]]) -> TimeLine:
    """Decode the alerts of all samples: of a day about a second for each place. Each history has
    the name of its place. Run it in a thread: it lets others run now and then."""
    times: list[float] = []
    starts: list[AlertStart] = []
    for name, history in histories:
        times += history.times
        before: set[str] = set()
        for at, (when, found) in enumerate(history.alerts()):
            if at % SAMPLES_IN_A_ROW == 0:
                time.sleep(PAUSE_SECONDS)
            alerts = {alert_key(alert): alert for alert in found}
            starts += [
                AlertStart(
                    when,
                    alert.level,
                    safe_line(f"{alert.level} {name}: {alert.text}"),
                    is_first=not at,
                )
                for key, alert in alerts.items()
                if key not in before
            ]
            before = {*alerts}
    starts.sort(key=attrgetter("when"))
    return TimeLine(sorted(times), starts)


def draw_time_line(line: TimeLine, at: float, end: float, width: int) -> Line:
    """The span from the first sample to `end` in `width` cells, with the keys to the alerts at its
    ends: `< 23:32 |--!---!!  ^-| 23:46 >`. A cell without samples is blank; of several alerts the
    most urgent one is shown. Empty if it does not fit, or if nothing was recorded before."""
    times, cells = line.times, width - len("< 00:00 || 00:00 >")
    if cells < MIN_LINE_CELLS or not times or times[0] >= end:
        return ()
    first, length = times[0], (end - times[0]) / cells
    runs: list[Run] = [_cell(times, first + n * length, length) for n in range(cells)]
    for start in sorted(line.starts, key=attrgetter("level"), reverse=True):  # CRIT over WARN
        if start.when <= end:
            runs[_cell_of(start.when - first, length, cells)] = "!", _LEVEL_STYLES[start.level]
    runs[_cell_of(at - first, length, cells)] = RISING, "accent"
    before, after = (time.strftime("%H:%M", time.gmtime(when)) for when in (first, end))
    return (
        ("<", "key"),
        (f" {before} |", "muted"),
        *merge_runs(runs),
        (f"| {after} ", "muted"),
        (">", "key"),
    )


def _cell_of(seconds: float, length: float, cells: int) -> int:
    return max(0, min(int(seconds / length), cells - 1))


def _cell(times: Sequence[float], start: float, length: float) -> Run:
    """The sign of a span that begins at `start`: a dash if a sample describes a part of it."""
    last = bisect_right(times, start + length) - 1
    known = last >= 0 and times[last] > start - MAX_SAMPLE_AGE_SECONDS
    return ("─", "muted") if known else (" ", "")
