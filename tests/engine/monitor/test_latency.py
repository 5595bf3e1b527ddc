"""Latency of each kind of task, computed from the events of a log."""

from __future__ import annotations

import random

import pytest

from engine.logs.log_line import LogLine
from engine.logs.task_events import read_events
from engine.monitor import latency
from engine.monitor.forecast import expected_start
from engine.monitor.latency import KindFigures, LatencyMeter, percentile, with_unlogged_kinds
from engine.text.times import format_time

NOW = 1_795_167_728.0
EVER = float("-inf")


def task_id(created: float, number: int = 1, kind: str = "report") -> str:
    """An id with the time of creation, as the contract makes it."""
    stamp = format_time(created).replace("-", "").replace(":", "").replace(" ", "T")
    return f"{stamp}-{kind}-{number:08x}"


def metered(*lines: tuple[float, str], since: float | None = EVER) -> LatencyMeter:
    """A meter after these lines of one log, each with its time before now."""
    meter = LatencyMeter()
    meter.add(
        read_events(LogLine(NOW + at, "INFO", text, "queue.log") for at, text in lines), since
    )
    return meter


def only(meter: LatencyMeter, at: float = NOW) -> KindFigures:
    """The figures of the only kind."""
    (one,) = meter.figures(at)
    return one


def test_wait_and_run_of_a_first_attempt() -> None:
    """The wait ends with the claim and begins with the creation in the id; the run ends with the
    result.
    """
    id = task_id(NOW - 30)
    figures = only(
        metered(
            (-30, f"Task queued: {id} (report)"),
            (-18, f"Processing task: {id} (report: x)"),
            (-14, f"Task completed: {id} (report)"),
        )
    )

    assert figures == KindFigures(
        "report",
        0.1,
        0.0,
        wait_p50=12.0,
        wait_p95=12.0,
        run_p50=4.0,
        run_p95=4.0,
        source=latency.LOG,
    )


def test_the_line_of_a_start_has_the_wait() -> None:
    """Where the id has no time, the wait is that which the worker wrote; such words at the end of a
    description do not count.
    """
    meter = metered(
        (-60, "Processing task: 7-user (user: to a), waited 12.5s"),
        (-59, "Task completed: 7-user (user)"),
        (-50, "Processing task: a-1 (mail: x), waited 7s)"),
        (-49, "Task completed: a-1 (mail)"),
    )
    mail, user = meter.figures(NOW)

    assert (user.kind, user.wait_p50, user.wait_p95, user.unknown) == ("user", 12.5, 12.5, "")
    assert (mail.kind, mail.wait_p50, mail.unknown) == ("mail", None, latency.NO_DUE)


def test_a_retry_waits_from_its_due_time() -> None:
    """After a failure the wait begins when the backoff ends, and one attempt counts once, although
    two lines report its failure.
    """
    id = task_id(NOW - 500)
    figures = only(
        metered(
            (-500, f"Processing task: {id} (report: x)"),
            (-496, f"Task failed: {id} (report): busy"),
            (-496, f"Task {id} failed (attempt 1/3), retry in 120s"),
            (-370, f"Processing task: {id} (report: x)"),
            (-368, f"Task completed: {id} (report)"),
        )
    )

    assert figures.per_minute == pytest.approx(0.2)
    assert figures.failures_share == 0.5
    assert (figures.wait_p50, figures.wait_p95) == (0.0, 6.0)
    assert (figures.run_p50, figures.run_p95) == (2.0, 4.0)


def test_a_postponed_claim_is_no_run() -> None:
    """A task that is released without an attempt neither ran nor failed; its next claim ends the
    wait since then.
    """
    meter = metered(
        (-60, "Processing task: a-1 (mail_send: x)"),
        (-60, "Task a-1 waits: no token for domain example.com"),
        (-50, "Processing task: a-1 (mail_send: x)"),
        (-49, "Task completed: a-1 (mail_send)"),
    )

    assert only(meter) == KindFigures(
        "mail_send",
        0.1,
        0.0,
        wait_p50=10.0,
        wait_p95=10.0,
        run_p50=1.0,
        run_p95=1.0,
        source=latency.LOG,
    )


@pytest.mark.parametrize("since", [None, NOW - 100])
def test_the_wait_of_a_task_older_than_the_log_is_unknown(since: float | None) -> None:
    """A task without an earlier line may have been retried, so the time in its id shows no wait."""
    id = task_id(NOW - 9 * 3600)
    meter = metered(
        (-5, f"Processing task: {id} (report)"), (-3, f"Task completed: {id} (report)"), since=since
    )
    figures = only(meter)

    assert (figures.wait_p50, figures.run_p50) == (None, 2.0)
    assert figures.unknown


def test_a_dead_task_that_runs_again_has_no_known_wait() -> None:
    """Only the log of a retry shows since when a dead task waits; a replay writes no such line."""
    id = task_id(NOW - 400)
    meter = metered(
        (-390, f"Processing task: {id} (report)"),
        (-389, f"Task {id} exhausted retries (3/3), moving to DLQ"),
        (-9, f"Processing task: {id} (report)"),
        (-8, f"Task completed: {id} (report)"),
    )

    assert (only(meter).wait_p50, only(meter).wait_p95) == (10.0, 10.0)


def test_ten_minutes_count() -> None:
    """A run that ended before the last ten minutes is not counted, and a kind without any other
    has no figures.
    """
    meter = metered((-700, "Processing task: a (report)"), (-650, "Task completed: a (report)"))

    assert meter.figures(NOW) == ()


def test_figures_of_a_past_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs that ended later do not count, and a copy does not follow; a kind whose runs of then are
    not kept is unknown.
    """
    monkeypatch.setattr(latency, "MAX_RUNS", 2)
    endings = [(-500, "a", "completed"), (-400, "b", "completed"), (-20, "c", "completed")]
    meter = metered(*((at, f"Task {what}: {task_id(NOW, 1)}-{n} (x)") for at, n, what in endings))
    copied = meter.copy()
    meter.add(
        read_events([LogLine(NOW - 310, "INFO", f"Task completed: {task_id(NOW)}-d (x)", "log")]),
        EVER,
    )

    assert only(copied).per_minute == pytest.approx(2 / 400 * 60)
    (figures,) = copied.figures(NOW - 300, NOW - 300)
    assert figures.per_minute == pytest.approx(1 / 100 * 60)
    (figures,) = copied.figures(NOW - 450, NOW - 450)
    assert figures == KindFigures("x", unknown="its runs of then are not kept")


def test_a_mail_counts_once() -> None:
    """The lines about the sending of a mail are not those of its task's run."""
    head = "task_id=a attempt=1 transport=curl to=admin@..."
    meter = metered(
        (-9, "Processing task: a (mail_send)"),
        (-8, f"MAIL_SEND_ATTEMPT {head}"),
        (-5, "MAIL_SEND_RESULT task_id=a status=success transport=curl attempt=1"),
        (-4, "Task completed: a (mail_send)"),
    )

    assert (only(meter).per_minute, only(meter).run_p50) == (0.1, 5.0)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more runs than are kept the rate is that of the kept ones; kinds and open tasks beyond
    the limits are dropped, the oldest first.
    """
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


def test_percentiles_are_values_that_occurred() -> None:
    """p50 and p95 are the smallest values that half and 95 % are not above, in any order."""
    values = [float(number) for number in range(1, 101)]
    random.Random(3).shuffle(values)

    assert (percentile(values, 0.5), percentile(values, 0.95)) == (50.0, 95.0)
    assert (percentile([7.0], 0.95), percentile([], 0.5)) == (7.0, None)


def test_kinds_that_the_log_does_not_have() -> None:
    """A waiting kind without a run has the rate 0 if the log has others or no task leaves; the only
    kind of a queue without any line has the recorded rate; nothing is known before the log is read.
    """
    known = KindFigures("report", 1.0, source=latency.LOG)

    both = with_unlogged_kinds([known], {"report": 3, "sync": 4}, 2.0, finished=True)
    recorded = with_unlogged_kinds([], {"mail": 3}, 2.0, finished=True)
    several = with_unlogged_kinds([], {"mail": 3, "sync": 1}, 2.0, finished=True)
    early = with_unlogged_kinds([], {"mail": 3}, 2.0, finished=False)

    idle = with_unlogged_kinds([], {"mail": 3, "sync": 1}, 0.0, finished=True)
    sync = KindFigures("sync", 0.0, source=latency.LOG, unknown=latency.NO_RUNS)
    assert both == (known, sync)
    assert [(one.per_minute, one.source) for one in idle] == [(0.0, latency.RECORDER)] * 2
    assert (recorded[0].per_minute, recorded[0].source) == (120.0, latency.RECORDER)
    assert recorded[0].failures_share is None
    assert [one.per_minute for one in several] == [None, None]
    assert early[0].unknown == "reading the log"


@pytest.mark.parametrize(("due", "ahead", "outward", "seconds"), [
    (0.0, 0, None, 0.0),
    (NOW + 25, 0, None, 25.0),
    (NOW + 25, 2, 0.2, 25.0),
    (NOW + 25, 20, 0.5, 40.0),
    (0.0, 20, 0.5, 40.0),
])  # fmt: skip
def test_expected_start(due: float, ahead: int, outward: float | None, seconds: float) -> None:
    """A task runs when it is due and the tasks before it have left the queue."""
    found = expected_start(due, NOW, ahead, outward)

    assert (found.when, found.unknown) == (NOW + seconds, "")
    assert found.sentence(NOW).startswith("runs at about" if seconds else "runs next")


def test_expected_start_unknown() -> None:
    """Without a rate, with none, or with an obstacle there is no time, but a reason."""
    for found, why in (
        (expected_start(0.0, NOW, 3, None), "rate of the queue not measured yet"),
        (expected_start(0.0, NOW, 3, 0.0), "3 first, none finished in the last minute"),
        (expected_start(0.0, NOW, 0, 2.0, obstacle="paused\x1b"), "paused"),
        (expected_start(0.0, NOW, 0, 2.0, token_at=float("inf")), "rate limit is 0"),
    ):
        assert found.when is None
        assert why in found.sentence(NOW)
        assert found.sentence(NOW).isprintable()
