"""What is to be expected: a sentence and its numbers, or why nothing can be said."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.config.queue_config import Thresholds
from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.model import State
from engine.monitor import forecast
from engine.monitor.forecast import (
    Forecast,
    ForecastInputs,
    forecast_dead_letters,
    forecast_drain,
    forecast_retention,
)
from engine.monitor.throughput import Drain, Growth, Trend
from engine.policy import DAY_SECONDS
from engine.text.safe import safe_line
from tests.tables import each

NOW = 1_795_167_728.0
DRAINS = Drain(Trend.DRAINING, 90.0)
ESCAPE = "\x1b[31m"
GROWS, IDLE, UNKNOWN = Drain(Trend.GROWING), Drain(Trend.IDLE), Drain(Trend.UNKNOWN)


def a_bucket(per_hour: int, tokens: int = 0, name: str = ALL_KINDS) -> BucketState:
    """A bucket that lets so many through in an hour."""
    return BucketState(name, tokens, 5, None, per_hour)


def drain_of(
    waiting: int,
    pace: Drain,
    tokens: Sequence[BucketState] | str = (),
    kinds: Mapping[str, int] | None = None,
    **known: Any,
) -> Forecast:
    """When a queue with so many waiting tasks is empty."""
    counts = {State.PENDING: waiting}
    basis = ForecastInputs(
        counts, {}, pace, None, None, has_arrivals=False, tokens=tokens, kinds=kinds
    )
    return forecast_drain(basis._replace(**known), NOW)


def lasts(seconds: float) -> Drain:
    """A queue that is empty after so many seconds."""
    return Drain(Trend.DRAINING, seconds)


def at_least(seconds: float) -> Drain:
    """The same without new tasks."""
    return lasts(seconds)._replace(is_least=True)


SLOW = a_bucket(60)
FAST = a_bucket(36_000)
GROWING = "backlog is growing at the present rate"
ALONE = " without new ones"
ALL_60 = "x 1m at 60/h of all kinds"
AT_PRESENT = "120 at 1.3/s, out less in"
DRAINED: tuple[tuple[int, Drain, tuple[BucketState, ...], float | None, str], ...] = (
    (0, DRAINS, (), 0.0, "nothing waits"),
    (0, UNKNOWN, (SLOW,), 0.0, "nothing waits"),
    (0, DRAINS, (a_bucket(60, name="mail_send"),), 0.0, "nothing waits"),
    (120, DRAINS, (), 90.0, f"empty in 1m: {AT_PRESENT}"),
    (120, DRAINS, (FAST,), 90.0, f"empty in 1m: {AT_PRESENT}"),
    (120, DRAINS, (SLOW,), 7200.0, f"empty in 2h00m{ALONE}: 120 {ALL_60}"),
    (120, DRAINS, (a_bucket(60, 5),), 6900.0, f"empty in 1h55m{ALONE}: 115 {ALL_60}"),
    (3, DRAINS, (a_bucket(60, 5),), 90.0, "empty in 1m: 3 at 2/min, out less in"),
    (120, GROWS, (), None, GROWING),
    (120, GROWS, (SLOW,), None, f"{GROWING}; without new ones 120 x 1m at 60/h of all kinds"),
    (20, IDLE, (a_bucket(40),), 1800.0, f"empty in 30m{ALONE}: 20 x 90s at 40/h of all kinds"),
    (120, DRAINS, (a_bucket(0),), None, "never empty: the rate limit of all kinds is 0"),
    (3, DRAINS, (a_bucket(0, 5),), 90.0, "empty in 1m: 3 at 2/min, out less in"),
)


def test_when_nothing_waits_any_more() -> None:
    """At the present pace or at the slowest bucket's, whichever takes longer; that bucket is named.
    Without a known input there is no number, and the reason is given."""
    for waiting, pace, tokens, seconds, words in DRAINED:
        told = drain_of(waiting, pace, tokens)
        assert (told.seconds, told.sentence, told.unknown) == (seconds, words, "")
    escape: tuple[BucketState, ...] = (a_bucket(60, name=ESCAPE),)
    for told, why in (
        (drain_of(120, UNKNOWN, ()), "not enough data yet"),
        (
            drain_of(120, UNKNOWN, (SLOW,)),
            "not enough data yet; at least 2h00m: 120 x 1m at 60/h of all kinds",
        ),
        (drain_of(120, IDLE, ()), "nothing moved in the last minute"),
        (drain_of(120, IDLE, (FAST,)), "nothing moved in the last minute"),
        (drain_of(120, DRAINS, "No such"), "rate limits cannot be read: No such"),
        (drain_of(120, DRAINS, escape), f"backlog of {safe_line(ESCAPE)} not counted"),
    ):
        assert (told.seconds, told.unknown) == (None, why)
        assert told.sentence == f"ETA unknown: {why}"

    buckets = (a_bucket(3600), a_bucket(60, name="mail_send"), a_bucket(1, name="report"))
    told = drain_of(500, DRAINS, buckets, {"mail_send": 30, "report": 0})
    assert (told.seconds, told.numbers["bucket"]) == (1800.0, "mail_send")
    rates = (told.numbers["at_present_rate"], told.numbers["at_bucket_rate"])
    assert rates == (90.0, 1800.0)
    assert told.sentence == f"empty in 30m{ALONE}: 30 x 1m at 60/h of mail_send"


def test_a_drain_that_was_rounded_to_nothing_has_no_eta() -> None:
    """A recorded drain has tenths of a second: one of 0.03 s comes back as 0."""
    known = ForecastInputs(
        {State.PENDING: 3}, {}, Drain(Trend.DRAINING, 0.0), None, None, has_arrivals=False
    )
    assert forecast_drain(known, NOW).unknown == "less than a second"


def test_without_a_worker_no_rate_limit_makes_an_eta() -> None:
    """The reason is that of the drain, also in a queue with a rate limit."""
    missing = Drain(Trend.UNKNOWN, unknown="no worker")
    for tokens in ((), (SLOW,)):
        told = drain_of(120, missing, tokens)
        assert (told.brief, told.seconds) == ("ETA: ? (no worker)", None)
        assert forecast.drain_with_rate_limit(missing, [told]) == missing


def test_a_limit_of_all_kinds_has_no_end_while_as_many_tasks_come() -> None:
    """Ten minutes show it at 40 an hour, in which two minutes of such a queue look idle."""
    idle, tokens = Drain(Trend.IDLE), (a_bucket(40, name=""),)
    for tasks, seconds, words in (
        (0, 600.0, "ETA unknown: as many tasks came as ran"),
        (-2, 600.0, "ETA unknown: as many tasks came as ran"),
        (5, 600.0, "ETA unknown: more tasks came than ran"),
        (-4, 600.0, "empty in 50m: 20 tasks at 24/h, out less in"),
        (0, 60.0, f"empty in 30m{ALONE}: 20 x 90s at 40/h of all kinds"),  # one ran
    ):
        told = drain_of(20, idle, tokens, {}, kind_growth={"": Growth(tasks, seconds)})
        assert told.sentence == words
        drain = forecast.drain_with_rate_limit(idle, [told])
        assert drain.seconds == told.seconds


def test_before_arrivals_are_known_an_eta_is_of_what_waits() -> None:
    """A limit that lets one run in a minute shows nothing about arrivals, unless one was seen."""
    idle, growth = Drain(Trend.IDLE), {"": Growth(0, 300.0)}
    for comes, cell, brief in (
        (False, "30m+", "empty in 30m without new ones"),
        (True, "?", "ETA: ? (as many tasks came as ran)"),
    ):
        tokens = (a_bucket(40, name=""),)
        told = drain_of(20, idle, tokens, {}, kind_growth=growth, has_arrivals=comes)
        shown = forecast.drain_with_rate_limit(idle, [told])
        assert (shown.text, told.brief) == (cell, brief)


def test_a_kind_that_grows_is_not_hidden_by_a_queue_that_shrinks() -> None:
    """If more tasks of a kind come than its limit lets run, there is no end; if they become fewer,
    the end is at that rate, but one or two fewer show none. A limit of less than two in the time
    that was watched shows neither."""
    kinds = {"mail": 60}
    for rate, tasks, drain, words in (
        (720, 12, UNKNOWN, "mail is growing; without new ones 60 x 5s at 720/h of mail"),
        (720, 0, UNKNOWN, "ETA unknown: as many mail came as ran"),
        (720, -6, lasts(600.0), "empty in 10m: 60 mail at 0.1/s, out less in"),
        (720, -60, lasts(300.0), "empty in 5m: 60 x 5s at 720/h of mail"),
        (720, -2, at_least(300.0), f"empty in 5m{ALONE}: 60 x 5s at 720/h of mail"),
        (20, 1, UNKNOWN, "mail is growing; without new ones 60 x 3m at 20/h of mail"),
        (20, 0, at_least(10_800.0), f"empty in 3h00m{ALONE}: 60 x 3m at 20/h of mail"),
        (20, -1, at_least(10_800.0), f"empty in 3h00m{ALONE}: 60 x 3m at 20/h of mail"),
    ):
        growth = {"mail": Growth(tasks, 60)}
        told = drain_of(80, DRAINS, (a_bucket(rate, name="mail"),), kinds, kind_growth=growth)
        assert (told.seconds, told.sentence) == (drain.seconds, words)
        assert told.is_growing is (tasks > 0)
        shown = forecast.drain_with_rate_limit(DRAINS, [told])
        assert shown == drain._replace(unknown="" if drain.seconds else told.unknown or words)


@pytest.mark.parametrize("tokens", ["No such", (a_bucket(720, name="mail"),)])
def test_a_backlog_that_grows_is_not_called_unknown(tokens: Sequence[BucketState] | str) -> None:
    """The text agrees with the column of the table, also if a rate limit is not known."""
    steady = {"mail": Growth(0, 60)}
    told = drain_of(80, GROWS, tokens, {"mail": 60}, kind_growth=steady)
    assert (told.brief, told.unknown) == ("growing", "")


@given(st.integers(0, 10**6), st.floats(0.1, 1e7), st.integers(1, 10**6), st.integers(0, 100))
def test_no_bucket_is_outrun(waiting: int, seconds: float, per_hour: int, tokens: int) -> None:
    """It never takes less than the bucket needs, nor less than the present pace."""
    pace = Drain(Trend.DRAINING, seconds)
    told = drain_of(waiting, pace, (a_bucket(per_hour, tokens),))
    assert told.seconds is not None
    if waiting:
        assert told.seconds >= seconds
        assert told.seconds * per_hour / 3600 + tokens >= waiting - 1e-3


def test_when_the_dead_are_too_many() -> None:
    """One more than the threshold, as the alert has it; a minute is needed to tell the growth."""
    for dead, growth, seconds, words in (
        (11, None, 0.0, "DLQ has 11 (limit 10)"),
        (10, Growth(1, 60), 60.0, "DLQ passes 10 in 1m: it has 10, +1 in 1m"),
        (4, Growth(7, 600), 600.0, "DLQ passes 10 in 10m: it has 4, +7 in 10m"),
        (4, Growth(0, 600), None, "DLQ does not pass 10: no growth in 10m"),
        (4, Growth(-3, 600), None, "DLQ does not pass 10: no growth in 10m"),
        # What came and has left again is no growth.
        (0, Growth(20, 600), None, "DLQ does not pass 10: no growth in 10m"),
    ):
        told = forecast_dead_letters(dead, 10, growth)
        assert (told.seconds, told.sentence, told.unknown) == (seconds, words, "")
        assert told.is_serious is (seconds is not None)
    for growth in (None, Growth(5, 59)):
        told = forecast_dead_letters(4, 10, growth)
        assert (told.seconds, told.unknown) == (None, "needs one minute of data")


def test_when_retention_deletes_the_oldest() -> None:
    """So many days after it died; without its date or the setting there is no number."""
    deletes = "retention deletes the oldest of DLQ in"
    gone = "the next run deletes the oldest of DLQ (kept 7 days)"
    for dead, died, days, seconds, words in (
        (0, None, 7, None, "retention deletes nothing: DLQ is empty"),
        (3, NOW - 4 * DAY_SECONDS, 7, 3 * DAY_SECONDS, f"{deletes} 3d00h (kept 7 days)"),
        (3, NOW - 7 * DAY_SECONDS, 7, 0.0, gone),
        (3, NOW - 60, 0.5, DAY_SECONDS / 2 - 60, f"{deletes} 11h59m (kept 0.5 days)"),
    ):
        told = forecast_retention(dead, died, days, NOW)
        assert (told.seconds, told.sentence, told.unknown) == (seconds, words, "")
    for told, why in (
        (forecast_retention(3, None, 7.0, NOW), "no dead task records when it died"),
        (forecast_retention(3, NOW, None, NOW), "configuration not known"),
    ):
        assert (told.seconds, told.unknown) == (None, why)


def test_all_forecasts_as_data() -> None:
    """Each has its seconds, its words, why it is not known, and the numbers behind it."""
    counts = {State.PENDING: 120, State.DEAD: 4}
    words, growth = {State.DEAD: "graveyard"}, Growth(7, 600)
    basis = forecast.ForecastInputs(counts, words, DRAINS, growth, None, has_arrivals=False)
    forecasts = forecast.make_forecasts(basis, Thresholds(dlq=10), 7, NOW)
    assert [each.topic for each in forecasts] == list(forecast.ForecastTopic)
    row: dict[str, Any] = dict(forecast.as_row(forecasts))
    drain, dlq, retention = row["drain"], row["dlq"], row["retention"]
    assert drain == {
        **{"seconds": 90.0, "is_least": False, "words": f"empty in 1m: {AT_PRESENT}"},
        **{"unknown": None},
        **{"waiting": 120, "at_present_rate": 90.0, "at_bucket_rate": None, "bucket": None},
    }
    limited = forecast.make_forecasts(basis._replace(tokens=(SLOW,)), Thresholds(), 7, NOW)
    least: dict[str, Any] = dict(forecast.as_row(limited))
    assert (least["drain"]["is_least"], least["dlq"]["is_least"]) == (True, False)
    assert (dlq["seconds"], dlq["limit"], dlq["grown"]) == (600.0, 10, 7)
    assert dlq["words"].startswith("graveyard passes 10")
    assert retention["seconds"] is None
    assert retention["unknown"] == "no dead task records when it died"


@each(("pace", "tokens", "drain"), [
    (DRAINS, (), DRAINS),
    (DRAINS, (SLOW,), at_least(7200.0)),
    (IDLE, (SLOW,), at_least(7200.0)),
    (IDLE, (), IDLE),
    (GROWS, (SLOW,), GROWS),
    (UNKNOWN, (SLOW,), UNKNOWN),
    (UNKNOWN, (), UNKNOWN),
    (
        DRAINS,
        (SLOW._replace(name="mail_send"),),
        Drain(Trend.UNKNOWN, unknown="backlog of mail_send not counted"),
    ),
])  # fmt: skip
def test_column_and_text_agree(pace: Drain, tokens: tuple[BucketState, ...], drain: Drain) -> None:
    """Where a rate limit is slower than the pace, the drain column shows the time of the limit,
    or that it is not known."""
    assert forecast.drain_with_rate_limit(pace, [drain_of(120, pace, tokens)]) == drain
