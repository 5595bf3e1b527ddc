"""The time line of a frozen screen: what is recorded, where alerts began, where the screen is."""

from __future__ import annotations

from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.monitor.recorded_history import RecordedHistory
from engine.monitor.recorder import EncodedSample
from engine.monitor.sample_codec import encode_sample
from tests.recorder_samples import NOW, a_sample, an_alert
from tests.tables import each
from tui.overview.time_line import TimeLine, draw_time_line, read_time_line

STUCK = Alert(Level.CRIT, AlertKind.STUCK, "stuck lock", None, Goal("x", Where.LOCK))
STEP = 10.0


def recorded(*alerts: tuple[Alert, ...] | None) -> TimeLine:
    """A sample each ten seconds up to now with these alerts; None for none."""
    first = NOW - STEP * (len(alerts) - 1)
    moments = [
        EncodedSample(when, encode_sample(a_sample(when, alerts=some)))
        for when, some in zip((first + STEP * n for n in range(len(alerts))), alerts, strict=True)
        if some is not None
    ]
    return read_time_line([("mail.out", RecordedHistory(moments, "/srv/mail.out"))])


def drawn(line: TimeLine, at: float, width: int) -> str:
    """The line as text."""
    return "".join(text for text, _ in draw_time_line(line, at, NOW, width))


def test_alerts_are_marks_where_they_began() -> None:
    """An alert is a mark once, also if its text changes, and again if it comes back; the most
    urgent one is shown. Spans without samples are blank."""
    dead, more = an_alert(), an_alert("14 dead, +14 in 10m")
    gap = [None] * 8
    line = recorded((), (dead,), (more,), *[()] * 5, *gap, (STUCK, dead), (), (), ())
    starts = [(NOW - one.when, one.text) for one in line.starts]
    assert starts == [
        (180.0, "WARN mail.out: 12 dead, +12 in 10m"),
        (30.0, "CRIT mail.out: stuck lock"),
        (30.0, "WARN mail.out: 12 dead, +12 in 10m"),
    ]
    assert drawn(line, NOW, 37) == "< 09:38 |─!────────     ─!─▲| 09:42 >"
    marks = [style for text, style in draw_time_line(line, NOW, NOW, 37) if text == "!"]
    assert marks == ["warn", "error"]


@each(("seconds", "direction", "found"), [
    (0, -1, 30.0), (30, -1, 180.0), (180, -1, None), (180, 1, 30.0), (30, 1, None),
])  # fmt: skip
def test_the_next_alert(seconds: float, direction: int, found: float | None) -> None:
    """Before and after a time, never the one at that time; none beyond the last ones."""
    line = recorded((), (an_alert(),), *[()] * 14, (STUCK,), (), (), ())
    start = line.next_start(NOW - seconds, direction)
    assert (None if start is None else NOW - start.when) == found


@each(("line", "width"), [(recorded((), ()), 27), (recorded(()), 80), (TimeLine(), 80)])
def test_no_time_line(line: TimeLine, width: int) -> None:
    """There is none without room, and where nothing was recorded before."""
    assert drawn(line, NOW, width) == ""
