"""Forecasts at the present rate: queue empty (ETA), dead-letter queue over its limit, retention.

Each forecast is a sentence with its numbers. The functions read no file or clock. If a forecast is
not possible, it states the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf, isfinite
from typing import TypeAlias

from engine.config.queue_config import Thresholds
from engine.locks.token_buckets import ALL_KINDS, BucketState
from engine.model import State
from engine.monitor.latency import KindFigures
from engine.monitor.run_forecast import Pace, RunForecast, token_waits
from engine.monitor.throughput import (
    RATE_WINDOW_SECONDS,
    TREND_WINDOW_SECONDS,
    Drain,
    Growth,
    Trend,
)
from engine.policy import DAY_SECONDS
from engine.text.figures import format_rate
from engine.text.safe import safe_line, state_name
from engine.text.times import format_rough_duration, format_time
from engine.values import NamedTuple

MIN_TREND_TASKS = 2
"""Up to this many tasks in `TREND_WINDOW_SECONDS` seconds, a trend cannot be told from none."""

Numbers: TypeAlias = Mapping[str, float | str | None]


class ForecastTopic(StrEnum):
    """Subject of a forecast."""

    DRAIN = "drain"
    DEAD = "dlq"
    RETENTION = "retention"


class Forecast(NamedTuple):
    """One forecast."""

    topic: ForecastTopic
    brief: str
    """Short form, for a line with several forecasts."""
    sentence: str
    """Full sentence with its reasons; free of control characters."""
    seconds: float | None = None
    """Seconds until it happens; 0 if it has happened, None if it will not, or is not known."""
    is_serious: bool = False
    """True if an operator should act."""
    unknown: str = ""
    """Why there is no forecast; "" if there is one."""
    numbers: Numbers = {}
    is_growing: bool = False
    """True of a backlog that grows, as a whole or of one kind."""
    is_least: bool = False
    """As in `Drain`."""


class ForecastInputs(NamedTuple):
    """The facts about a queue that a forecast needs."""

    counts: Mapping[State, int]
    words: Mapping[State, str]
    """The states with the store's own names for them."""
    pace: Drain
    growth: Growth | None
    """Growth of the dead-letter queue."""
    died: float | None
    """Time of death of the task that has been dead longest, epoch seconds UTC."""
    has_arrivals: bool
    """Tasks of any kind were seen to come in the last ten minutes."""
    tokens: Sequence[BucketState] | str = ()
    kinds: Mapping[str, int] | None = None
    """Number of waiting tasks of each kind that has a rate limit of its own."""
    kind_growth: Mapping[str, Growth] = {}
    """How these numbers have grown in the last two minutes, as far as watched; for `ALL_KINDS` all
    tasks, in ten minutes: its limits are low."""
    figures: Sequence[KindFigures] = ()
    """Runs of each kind: the share that is tried again."""
    max_runs: int | None = None
    """As in `Pace`."""
    undated: str = "no dead task records when it died"
    """Why `died` is not known, if it is None."""


def make_forecasts(
    known: ForecastInputs, limits: Thresholds, retention_days: float | None, now: float
) -> tuple[Forecast, ...]:
    """Return all forecasts; those of dead tasks only if the store keeps dead tasks.
    `retention_days` is infinite if nothing is ever deleted, None if not known."""
    forecasts = [forecast_drain(known, now)]
    if State.DEAD in known.words or not known.words:
        dead, word = known.counts.get(State.DEAD, 0), known.words.get(State.DEAD, "dead")
        forecasts.append(forecast_dead_letters(dead, limits.dlq, known.growth, word))
        if retention_days != inf:
            died, why = known.died, known.undated
            forecasts.append(forecast_retention(dead, died, retention_days, now, word, undated=why))
    return tuple(forecasts)


def forecast_drain(known: ForecastInputs, now: float) -> Forecast:
    """Forecast when the queue is empty: at the rate of the last minutes, or at the rate limit that
    takes longest, whichever is later. A kind of which more tasks come than its limit lets run grows
    even while the queue as a whole shrinks."""
    waiting, drain, tokens = known.counts.get(State.PENDING, 0), known.pace, known.tokens
    slow = _slowest(waiting, known, now) if waiting else None
    if isinstance(slow, str):
        if drain.trend not in (Trend.GROWING, Trend.STALLED):
            return _unknown(ForecastTopic.DRAIN, "ETA", slow)
        slow = None
    limit = 0.0 if slow is None or slow.seconds is None else slow.seconds
    numbers: Numbers = {
        "waiting": waiting,
        "at_present_rate": drain.seconds,
        "at_bucket_rate": limit if limit and isfinite(limit) else None,
        "bucket": None if slow is None else slow.bucket,
    }
    name = "" if slow is None or slow.bucket is None else slow.bucket
    bucket = "" if slow is None else f"the rate limit of {safe_line(name) or 'all kinds'}"
    terms = "" if slow is None else f"{slow.terms} of {safe_line(name) or 'all kinds'}"

    def forecast(brief: str, sentence: str, seconds: float | None, grave: bool = False) -> Forecast:
        return Forecast(ForecastTopic.DRAIN, brief, sentence, seconds, grave, numbers=numbers)

    def grows(brief: str, words: str) -> Forecast:
        alone = f"; without new ones {terms}" if terms else ""
        return forecast(brief, f"{words}{alone}", None, True)._replace(is_growing=True)

    if not waiting:
        return forecast("nothing waits", "nothing waits", 0.0)
    if not isinstance(tokens, str) and any(each.paused for each in tokens):
        return forecast("paused", "paused: no task is taken until the queue is resumed", None)
    if limit == inf:
        return forecast("rate limit 0", f"never empty: {bucket} is 0", None, True)
    if drain.trend is Trend.STALLED:
        return forecast("stalled", "stalled: tasks are due, none runs", None, True)
    if drain.trend in (Trend.UNKNOWN, Trend.EMPTY):  # a sample may be older than the counts
        least = f"; at least {format_rough_duration(limit)}: {terms}" if bucket else ""
        why = drain.unknown or f"not enough data yet{least}"
        return _unknown(ForecastTopic.DRAIN, "ETA", why, numbers)
    if drain.trend is Trend.GROWING:
        return grows("growing", "backlog is growing at the present rate")
    growth = known.kind_growth.get(name, Growth(0, 0.0))
    if growth.tasks > 0 and name != ALL_KINDS:
        return grows(f"{safe_line(name)} growing", f"{safe_line(name)} is growing")
    rates = {} if isinstance(tokens, str) else {each.name: each.per_hour or 0 for each in tokens}
    # A limit has no ETA while as many tasks come as it lets run. Growth shows that only if the
    # limit let enough run in that time; of all kinds, a few more run on tokens that were saved up.
    allowed = growth.seconds * rates.get(name, 0) / 3600
    saved_runs = MIN_TREND_TASKS if name == ALL_KINDS else 0
    shows_arrivals = allowed >= MIN_TREND_TASKS and allowed > 2 * saved_runs
    what = safe_line(name) or "tasks"
    # Else arrivals that were seen show it, if the backlog did not shrink.
    arrivals_seen = name == ALL_KINDS and known.has_arrivals and growth.tasks >= 0
    if arrivals_seen or (shows_arrivals and growth.tasks >= -saved_runs):
        why = f"more {what} came than ran" if growth.tasks > 0 else f"as many {what} came as ran"
        return _unknown(ForecastTopic.DRAIN, "ETA", why, numbers)
    shows_arrivals &= growth.tasks < -MIN_TREND_TASKS  # fewer give an ETA that jumps
    waits = waiting if name == ALL_KINDS else (known.kinds or {}).get(name, 0)
    shrinking = max(limit, -waits * growth.seconds / growth.tasks) if shows_arrivals else limit
    if shrinking > limit:
        net = format_rate(waits / shrinking)
        limit, terms = shrinking, f"{waits:,} {what} at {net}, out less in"
    # The limit gives the ETA if it is slower than the present rate, or so low that it looks idle.
    is_slower = drain.seconds is not None and limit > drain.seconds
    is_low = limit >= waiting * TREND_WINDOW_SECONDS / MIN_TREND_TASKS
    looks_idle = drain.trend is Trend.IDLE and (is_low or bool(bucket and drain.unknown))
    if is_slower or looks_idle:
        brief = f"empty in {format_rough_duration(limit)}"
        if not shows_arrivals:
            brief = f"{brief} without new ones"
            return forecast(brief, f"{brief}: {terms}", limit)._replace(is_least=True)
        return forecast(f"{brief} (rate limit)", f"{brief}: {terms}", limit)
    if drain.trend is Trend.IDLE:
        why = drain.unknown or "nothing moved in the last minute"
        return _unknown(ForecastTopic.DRAIN, "ETA", why, numbers)
    if not drain.seconds:  # as recorded, rounded to a tenth of a second
        return _unknown(ForecastTopic.DRAIN, "ETA", "less than a second", numbers)
    brief = f"empty in {format_rough_duration(drain.seconds)}"
    net = format_rate(waiting / drain.seconds)
    return forecast(brief, f"{brief}: {waiting:,} at {net}, out less in", drain.seconds)


def _slowest(waiting: int, known: ForecastInputs, now: float) -> RunForecast | str | None:
    """Return the rate limit that needs the longest, None if none delays; or the reason why that is
    not known."""
    if isinstance(known.tokens, str):
        return f"rate limits cannot be read: {safe_line(known.tokens)}"
    kinds = dict(known.kinds or {})
    for each in known.tokens:
        if each.per_hour is not None and each.name != ALL_KINDS and each.name not in kinds:
            return f"backlog of {safe_line(each.name)} not counted"
    runs = {**kinds, ALL_KINDS: max(0, waiting - sum(kinds.values()))}
    pace = Pace(known.tokens, {one.kind: one for one in known.figures}, max_runs=known.max_runs)
    waits = token_waits(runs, pace, now, runs)
    return max(
        (one for one in waits if one.seconds), key=lambda one: one.seconds or 0.0, default=None
    )


def forecast_dead_letters(
    dead: int, limit: int, growth: Growth | None, word: str = "dlq"
) -> Forecast:
    """Forecast when the dead-letter queue passes `limit`, the alert threshold."""
    name = state_name(word)
    numbers: Numbers = {
        "dead": dead,
        "limit": limit,
        "grown": None if growth is None else growth.tasks,
        "in_seconds": None if growth is None else growth.seconds,
    }
    if dead > limit:
        words, brief = f"{name} has {dead:,} (limit {limit:,})", f"{name} over {limit:,}"
        return Forecast(ForecastTopic.DEAD, brief, words, 0.0, True, numbers=numbers)
    if growth is None or growth.seconds < RATE_WINDOW_SECONDS:
        why = "needs one minute of data"
        return _unknown(ForecastTopic.DEAD, f"time until {name} is over {limit:,}", why, numbers)
    span, grown = format_rough_duration(growth.seconds), growth.tasks if dead else 0
    if grown <= 0:  # what came has left again, at once if a server was emptied
        words = f"{name} does not pass {limit:,}: no growth in {span}"
        return Forecast(ForecastTopic.DEAD, f"{name} does not grow", words, numbers=numbers)
    seconds = (limit + 1 - dead) * growth.seconds / grown
    when = format_rough_duration(seconds)
    words = f"{name} passes {limit:,} in {when}: it has {dead:,}, +{grown:,} in {span}"
    brief = f"{name} over {limit:,} in {when}"
    return Forecast(ForecastTopic.DEAD, brief, words, seconds, True, numbers=numbers)


def forecast_retention(
    dead: int,
    died: float | None,
    days: float | None,
    now: float,
    word: str = "dlq",
    undated: str = "no dead task records when it died",
) -> Forecast:
    """Forecast when retention deletes the oldest dead task: at the first run after that time."""
    name = state_name(word)
    what = f"time until retention deletes the oldest of {name}"
    died_at = None if died is None else format_time(died).replace(" ", "T")
    numbers = {"died": died, "died_at": died_at, "retention_days": days}
    if not dead:
        words = f"retention deletes nothing: {name} is empty"
        return Forecast(ForecastTopic.RETENTION, f"{name} is empty", words, numbers=numbers)
    if days is None:
        return _unknown(ForecastTopic.RETENTION, what, "configuration not known", numbers)
    if died is None:
        return _unknown(ForecastTopic.RETENTION, what, undated, numbers)
    seconds = max(0.0, died + days * DAY_SECONDS - now)
    retention = f"{days:g} days"
    if not seconds:
        words = f"the next run deletes the oldest of {name} (kept {retention})"
        brief = "next run deletes the oldest dead task"
        return Forecast(ForecastTopic.RETENTION, brief, words, 0.0, True, numbers=numbers)
    when = format_rough_duration(seconds)
    words = f"retention deletes the oldest of {name} in {when} (kept {retention})"
    is_soon, brief = seconds < DAY_SECONDS, f"oldest dead task deleted in {when}"
    return Forecast(ForecastTopic.RETENTION, brief, words, seconds, is_soon, numbers=numbers)


def _unknown(topic: ForecastTopic, what: str, why: str, numbers: Numbers | None = None) -> Forecast:
    brief = f"{_UNKNOWN_BRIEFS[topic]}: ? ({why})"
    return Forecast(topic, brief, f"{what} unknown: {why}", unknown=why, numbers=numbers or {})


_UNKNOWN_BRIEFS = {
    ForecastTopic.DRAIN: "ETA",
    ForecastTopic.DEAD: "growth of dead tasks",
    ForecastTopic.RETENTION: "deletion of dead tasks",
}


def drain_with_rate_limit(drain: Drain, forecasts: Sequence[Forecast]) -> Drain:
    """Return the drain with the forecast's ETA, if a rate limit is slower than the present rate;
    unknown if a kind grows while the backlog does not, or if the forecast cannot tell how long a
    limit takes."""
    found = next((each for each in forecasts if each.topic is ForecastTopic.DRAIN), None)
    if found is None or drain.trend in (Trend.EMPTY, Trend.GROWING, Trend.STALLED):
        return drain
    if found.is_growing:
        return Drain(Trend.UNKNOWN, unknown=found.sentence)
    if found.unknown and drain.trend is Trend.DRAINING:
        return Drain(Trend.UNKNOWN, unknown=found.unknown)
    if not found.seconds:
        return drain
    return Drain(Trend.DRAINING, found.seconds, is_least=found.is_least)


def as_row(forecasts: Sequence[Forecast]) -> dict[str, object]:
    """Return the forecasts as JSON values: durations in seconds, times in epoch seconds UTC and
    with `_at` as RFC 3339 text."""
    return {
        str(each.topic): {
            "seconds": each.seconds,
            "is_least": each.is_least,
            "words": each.sentence,
            "unknown": each.unknown or None,
            **each.numbers,
        }
        for each in forecasts
    }
