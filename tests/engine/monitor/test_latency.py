"""Latency of each kind of task, computed from the events of a log."""

import random
from typing import Any, TypeAlias

import pytest

from engine.logs.log_line import LogLine
from engine.logs.task_events import read_events
from engine.monitor import latency
from engine.monitor.latency import KindFigures, LatencyMeter, percentile, with_unlogged_kinds
from engine.text.times import format_time
from tests.tables import each

NOW = 1_795_167_728.0
EVER = float("-inf")


def task_id(created: float, number: int = 1, kind: str = "report") -> str:
    """An id with the time of creation, as the contract makes it."""
    stamp = format_time(created).replace("-", "").replace(":", "").replace(" ", "T")
    return f"{stamp}-{kind}-{number:08x}"


def metered(*lines: tuple[float, str], since: float | None = EVER) -> LatencyMeter:
    """A meter after these lines of one log, each with its time before now."""
    meter = LatencyMeter()
    log = [LogLine(NOW + at, "INFO", text, "queue.log") for at, text in lines]
    meter.add(read_events(log), since)
    return meter


def only(meter: LatencyMeter, at: float = NOW) -> KindFigures:
    """The figures of the only kind."""
    (one,) = meter.figures(at)
    return one


OLD = task_id(NOW - 30)
RETRIED = task_id(NOW - 500)
DEAD = task_id(NOW - 400)
Lines: TypeAlias = list[tuple[float, str]]


@each(("told", "lines", "figures"), [
    # what is told; lines of a log; then its kind: runs in ten minutes, share of failures,
    # p50 and p95 of the wait, p50 and p95 of the run
    ("a first attempt: the wait begins with the creation in the id, and ends with the claim",
     [(-30, f"Task queued: {OLD} (report)"), (-18, f"Processing task: {OLD} (report: x)"),
      (-14, f"Task completed: {OLD} (report)")],
     ("report", 1, 0, 12, 12, 4, 4)),
    ("a delayed first attempt: the wait begins when it is due, which its description cannot say",
     [(-300, f"Task queued: {OLD} (report: x), due in 120s), due in 270s"),
      (-18, f"Processing task: {OLD} (report: x)"), (-14, f"Task completed: {OLD} (report)")],
     ("report", 1, 0, 12, 12, 4, 4)),
    ("the id has no time: the wait is that which the worker wrote",
     [(-60, "Processing task: 7-user (user: to a), waited 12.5s"),
      (-59, "Task completed: 7-user (user)")],
     ("user", 1, 0, 12.5, 12.5, 1, 1)),
    ("such words at the end of a description do not count",
     [(-50, "Processing task: a-1 (mail: x), waited 7s)"), (-49, "Task completed: a-1 (mail)")],
     ("mail", 1, 0, None, None, 1, 1)),
    ("a retry waits since the end of the backoff; one attempt counts once, though two lines fail",
     [(-500, f"Processing task: {RETRIED} (report: x)"),
      (-496, f"Task failed: {RETRIED} (report): busy"),
      (-496, f"Task {RETRIED} failed (attempt 1/3), retry in 120s"),
      (-370, f"Processing task: {RETRIED} (report: x)"),
      (-368, f"Task completed: {RETRIED} (report)")],
     ("report", 2, 0.5, 0, 6, 2, 4)),
    ("a claim released without an attempt is no run; the next one ends the wait since then",
     [(-60, "Processing task: a-1 (mail_send: x)"),
      (-60, "Task a-1 waits: no token for domain example.com"),
      (-50, "Processing task: a-1 (mail_send: x)"), (-49, "Task completed: a-1 (mail_send)")],
     ("mail_send", 1, 0, 10, 10, 1, 1)),
    ("a dead task that runs again has no known wait: a replay writes no line",
     [(-390, f"Processing task: {DEAD} (report)"),
      (-389, f"Task {DEAD} exhausted retries (3/3), moving to DLQ"),
      (-9, f"Processing task: {DEAD} (report)"), (-8, f"Task completed: {DEAD} (report)")],
     ("report", 2, 0.5, 10, 10, 1, 1)),
    ("the lines about the sending of a mail are not those of its task's run",
     [(-9, "Processing task: a (mail_send)"),
      (-8, "MAIL_SEND_ATTEMPT task_id=a attempt=1 transport=curl to=admin@..."),
      (-5, "MAIL_SEND_RESULT task_id=a status=success transport=curl attempt=1"),
      (-4, "Task completed: a (mail_send)")],
     ("mail_send", 1, 0, None, None, 5, 5)),
])  # fmt: skip
def test_wait_and_run_are_known(told: str, lines: Lines, figures: tuple[Any, ...]) -> None:
    """A wait ends with a claim, a run with its result; what is not known has a reason."""
    one = only(metered(*lines))
    assert one.per_minute is not None
    assert (one.kind, round(one.per_minute * 10), *one[2:7]) == figures
    assert one.unknown == (latency.NO_DUE if figures[3] is None else "")
    assert one.source == latency.LOG


@each("since", [None, NOW - 100])
def test_the_wait_of_a_task_older_than_the_log_is_unknown(since: float | None) -> None:
    """It may have been retried before; nor does a run count that ended ten minutes ago."""
    id = task_id(NOW - 9 * 3600)
    lines = ((-5, f"Processing task: {id} (report)"), (-3, f"Task completed: {id} (report)"))
    figures = only(metered(*lines, since=since))
    assert (figures.wait_p50, figures.run_p50, bool(figures.unknown)) == (None, 2.0, True)
    meter = metered((-700, "Processing task: a (report)"), (-650, "Task completed: a (report)"))

    assert meter.figures(NOW) == ()


def test_the_rate_of_a_young_log_is_over_its_age() -> None:
    """Runs per minute are over ten minutes, or over the time since the log began; one run in the
    first seconds is no burst."""
    meter = metered(*((-4, f"Task completed: a-{n} (x)") for n in range(7)))
    for began, per_minute in ((NOW - 420, 1.0), (NOW - 9000, 0.7), (NOW - 2, 42.0)):
        (figures,) = meter.figures(NOW, began=began)
        assert figures.per_minute == pytest.approx(per_minute)


def test_figures_of_a_past_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later runs do not count, and a copy does not follow; runs that are not kept are unknown."""
    monkeypatch.setattr(latency, "MAX_RUNS", 2)
    endings = [(-500, "a", "completed"), (-400, "b", "completed"), (-20, "c", "completed")]
    meter = metered(*((at, f"Task {what}: {task_id(NOW, 1)}-{n} (x)") for at, n, what in endings))
    copied = meter.copy()
    line = LogLine(NOW - 310, "INFO", f"Task completed: {task_id(NOW)}-d (x)", "log")
    meter.add(read_events([line]), EVER)

    assert only(copied).per_minute == pytest.approx(2 / 400 * 60)
    (figures,) = copied.figures(NOW - 300, NOW - 300)
    assert figures.per_minute == pytest.approx(1 / 100 * 60)
    (figures,) = copied.figures(NOW - 450, NOW - 450)
    assert figures == KindFigures("x", unknown="its runs of then are not kept")


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rate is that of the kept runs; the oldest kinds and open tasks are dropped."""
    for name, most in (("MAX_RUNS", 10), ("MAX_KINDS", 2), ("MAX_OPEN_TASKS", 3)):
        monkeypatch.setattr(latency, name, most)
    meter = metered(
        *((-300 + at, f"Task completed: {at} (busy)") for at in range(300)),
        *((-1, f"Task completed: x ({kind})") for kind in ("old", "new")),
        *((-1, f"Processing task: t{at} (open)") for at in range(9)),
        *((0, f"Task completed: t{at} (open)") for at in range(9)),
    )

    kinds = {one.kind: one for one in meter.figures(NOW)}
    assert set(kinds) == {"new", "open"}
    busy = metered(*((-300 + at, f"Task completed: {at} (busy)") for at in range(300)))
    assert only(busy).per_minute == pytest.approx(60.0)
    assert only(busy).run_p50 is None


def test_runs_that_are_tried_again_are_counted() -> None:
    """With their median backoff; four successes are added, as six of ten may fail by chance. The
    present rate is that of the last minute, from its first run on."""
    failed = "Task failed: {0} (x): busy", "Task {0} failed (attempt 1/3), retry in {1}s"
    lines = [(at - 60, f"Task completed: ok{at} (x)") for at in range(0, 60, 10)]
    for at, wait in ((-50, 60), (-40, 60), (-30, 120)):
        lines += [(at, line.format(f"t{at}", wait)) for line in failed]
    figures = only(metered(*sorted(lines, key=lambda line: line[0])))
    assert (figures.retried_share, figures.retry_p50) == (3 / (9 + latency.STEADY_RUNS), 60.0)
    assert figures.per_second_now == pytest.approx(9 / 60)


def test_percentiles_are_values_that_occurred() -> None:
    """p50 and p95 are the smallest values that half and 95 % are not above, in any order."""
    values = [float(number) for number in range(1, 101)]
    random.Random(3).shuffle(values)
    assert (percentile(values, 0.5), percentile(values, 0.95)) == (50.0, 95.0)
    assert (percentile([7.0], 0.95), percentile([], 0.5)) == (7.0, None)


KNOWN = KindFigures("report", 1.0, source=latency.LOG)


@each(("figures", "waiting", "rate", "finished", "expected", "why"), [
    ([KNOWN], {"report": 3, "sync": 4}, 2.0, True, [(1.0, latency.LOG), (0.0, latency.LOG)],
     latency.NO_RUNS),
    ([], {"mail": 3, "sync": 1}, 0.0, True, [(0.0, latency.RECORDER)] * 2, latency.NO_RUNS),
    ([], {"mail": 3}, 2.0, True, [(120.0, latency.RECORDER)], "the log has no runs: "),
    ([], {"mail": 3, "sync": 1}, 2.0, True, [(None, "")] * 2, latency.NO_RUNS),
    ([], {"mail": 3}, 2.0, False, [(None, "")], "reading the log"),
])  # fmt: skip
def test_kinds_that_the_log_does_not_have(
    figures: list[KindFigures],
    waiting: dict[str, int],
    rate: float,
    finished: bool,
    expected: list[tuple[float | None, str]],
    why: str,
) -> None:
    """A kind without a run has the rate 0 if the log has others or no task leaves; the only kind of
    a queue without a line has the recorded one. Before the log is read none is known."""
    kinds = with_unlogged_kinds(figures, waiting, rate, finished)
    assert [(one.per_minute, one.source) for one in kinds] == expected
    assert (kinds[-1].kind, kinds[-1].failures_share) == (max(waiting), None)
    assert kinds[-1].unknown.startswith(why)
