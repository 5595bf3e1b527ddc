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
from engine.monitor.throughput import (
    RATE_WINDOW_SECONDS,
    TREND_WINDOW_SECONDS,
    Drain,
    Growth,
    Trend,
)
from engine.policy import DAY_SECONDS, seconds_to_spend
from engine.text.safe import safe_line, state_name
from engine.text.times import format_deadline, format_rough_duration, format_time
from engine.values import NamedTuple
from engine.waiting_reasons import describe_time_to_empty

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
    tokens: Sequence[BucketState] | str = ()
    kinds: Mapping[str, int] | None = None
    """Number of waiting tasks of each kind that has a rate limit of its own."""
    undated: str = "no dead task records when it died"
    """Why `died` is not known, if it is None."""


def make_forecasts(
    known: ForecastInputs, limits: Thresholds, retention_days: float | None, now: float
) -> tuple[Forecast, ...]:
    """Return all forecasts; those of dead tasks only if the store keeps dead tasks.
    `retention_days` is infinite if nothing is ever deleted, None if not known."""
    waiting = known.counts.get(State.PENDING, 0)
    forecasts = [forecast_drain(waiting, known.pace, known.tokens, known.kinds)]
    if State.DEAD in known.words or not known.words:
        dead, word = known.counts.get(State.DEAD, 0), known.words.get(State.DEAD, "dead")
        forecasts.append(forecast_dead_letters(dead, limits.dlq, known.growth, word))
        if retention_days != inf:
            died, why = known.died, known.undated
            forecasts.append(forecast_retention(dead, died, retention_days, now, word, undated=why))
    return tuple(forecasts)


def forecast_drain(
    waiting: int,
    drain: Drain,
    tokens: Sequence[BucketState] | str = (),
    kinds: Mapping[str, int] | None = None,
) -> Forecast:
    """Forecast when the queue is empty: at the rate of the last minutes, or at the rate limit of
    the slowest token bucket, whichever takes longer. `kinds` gives the number of waiting tasks of
    each kind that has a rate limit of its own."""
    slow = _slowest(waiting, tokens, kinds) if waiting else (0.0, None)
    if isinstance(slow, str):
        return _unknown(ForecastTopic.DRAIN, "ETA", slow)
    limit, name = slow
    numbers: Numbers = {
        "waiting": waiting,
        "at_present_rate": drain.seconds,
        "at_bucket_rate": limit if name is not None and isfinite(limit) else None,
        "bucket": name,
    }
    bucket = "" if name is None else f"the rate limit of {safe_line(name) if name else 'all kinds'}"

    def forecast(brief: str, sentence: str, seconds: float | None, grave: bool = False) -> Forecast:
        return Forecast(ForecastTopic.DRAIN, brief, sentence, seconds, grave, numbers=numbers)

    if not waiting:
        return forecast("nothing waits", "nothing waits", 0.0)
    if not isinstance(tokens, str) and any(each.paused for each in tokens):
        return forecast("paused", "paused: no task is taken until the queue is resumed", None)
    if limit == inf:
        return forecast("rate limit 0", f"never empty: {bucket} is 0", None, True)
    if drain.trend is Trend.STALLED:
        return forecast("stalled", "stalled: tasks are due, none runs", None, True)
    alone = f"; {format_rough_duration(limit)} at {bucket}" if bucket else ""
    if drain.trend is Trend.UNKNOWN and not bucket:
        why = "not enough data yet"
        return _unknown(ForecastTopic.DRAIN, "ETA", why, numbers)
    slower = drain.seconds is not None and limit > drain.seconds
    # A low rate limit makes the backlog look idle although it does drain.
    unseen = drain.trend is Trend.IDLE and limit >= waiting * TREND_WINDOW_SECONDS / MIN_TREND_TASKS
    if drain.trend is Trend.UNKNOWN or slower or unseen:
        words = f"{describe_time_to_empty(limit)}: {bucket} allows no more"
        return forecast(f"empty in {format_rough_duration(limit)} (rate limit)", words, limit)
    if drain.trend is Trend.IDLE:
        return _unknown(ForecastTopic.DRAIN, "ETA", "nothing moved in the last minute", numbers)
    if drain.seconds is None:
        return forecast("growing", f"backlog is growing at the present rate{alone}", None, True)
    words = f"empty in {format_rough_duration(drain.seconds)} at the present rate{alone}"
    return forecast(f"empty in {format_rough_duration(drain.seconds)}", words, drain.seconds)


def _slowest(
    waiting: int, tokens: Sequence[BucketState] | str, kinds: Mapping[str, int] | None
) -> tuple[float, str | None] | str:
    """Return the seconds that the slowest token bucket needs, and its name (None if missing); or
    the reason why that is not known."""
    if isinstance(tokens, str):
        return f"rate limits cannot be read: {safe_line(tokens)}"
    longest: tuple[float, str | None] = (0.0, None)
    for each in tokens:
        if each.per_hour is None:
            continue
        amount = waiting if each.name == ALL_KINDS else (kinds or {}).get(each.name)
        if amount is None:
            return f"backlog of {safe_line(each.name)} not counted yet"
        seconds = seconds_to_spend(amount, each.tokens, each.per_hour)
        if seconds > longest[0]:
            longest = seconds, each.name
    return longest


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
        return Forecast(ForecastTopic.RETENTION, "nothing to delete", words, numbers=numbers)
    if days is None:
        return _unknown(ForecastTopic.RETENTION, what, "configuration not known", numbers)
    if died is None:
        return _unknown(ForecastTopic.RETENTION, what, undated, numbers)
    seconds = max(0.0, died + days * DAY_SECONDS - now)
    retention = f"{days:g} days"
    if not seconds:
        words = f"the next run deletes the oldest of {name} (kept {retention})"
        brief = "next run deletes oldest"
        return Forecast(ForecastTopic.RETENTION, brief, words, 0.0, True, numbers=numbers)
    when = format_rough_duration(seconds)
    words = f"retention deletes the oldest of {name} in {when} (kept {retention})"
    is_soon, brief = seconds < DAY_SECONDS, f"oldest dead deleted in {when}"
    return Forecast(ForecastTopic.RETENTION, brief, words, seconds, is_soon, numbers=numbers)


def _unknown(topic: ForecastTopic, what: str, why: str, numbers: Numbers | None = None) -> Forecast:
    brief = _UNKNOWN_BRIEFS[topic]
    return Forecast(topic, brief, f"{what} unknown: {why}", unknown=why, numbers=numbers or {})


_UNKNOWN_BRIEFS = {
    ForecastTopic.DRAIN: "empty: ?",
    ForecastTopic.DEAD: "dead: ?",
    ForecastTopic.RETENTION: "oldest dead deleted: ?",
}


class ExpectedStart(NamedTuple):
    """When a waiting task runs, by the present rate of its queue."""

    when: float | None
    """Epoch seconds UTC; None if unknown."""
    unknown: str = ""
    """Why it is unknown; "" if it is known."""

    def sentence(self, now: float) -> str:
        """As text: `runs at about 14:31:39Z (in 35s)`."""
        if self.when is None:
            return f"start unknown: {safe_line(self.unknown)}"
        if self.when <= now:
            return "runs next"
        return f"runs at about {format_deadline(self.when, now)}"


def expected_start(
    due: float,
    now: float,
    ahead: int,
    outward: float | None,
    *,
    obstacle: str = "",
    token_at: float = 0.0,
) -> ExpectedStart:
    """Estimate when a pending task runs.

    It runs when it is due, when there is a token for its kind, and when the `ahead` tasks that are
    claimed before it have left the queue at `outward` tasks per second (None: unknown). `obstacle`:
    why it does not run however long it waits; "" if nothing prevents it."""
    if obstacle:
        return ExpectedStart(None, obstacle)
    earliest = max(now, due, token_at)
    if earliest == inf:
        return ExpectedStart(None, "rate limit is 0")
    if not ahead:
        return ExpectedStart(earliest)
    if outward is None:
        return ExpectedStart(None, "rate of the queue not measured yet")
    if not outward:
        return ExpectedStart(None, f"{ahead:,} first, none finished in the last minute")
    return ExpectedStart(max(earliest, now + ahead / outward))


def drain_with_rate_limit(drain: Drain, forecasts: Sequence[Forecast]) -> Drain:
    """Return the drain with the forecast's ETA, if a rate limit is slower than the present rate."""
    empty = next((each.seconds for each in forecasts if each.topic is ForecastTopic.DRAIN), None)
    decided = drain.trend in (Trend.EMPTY, Trend.GROWING, Trend.STALLED)
    return drain if decided or not empty else Drain(Trend.DRAINING, empty)


def as_row(forecasts: Sequence[Forecast]) -> dict[str, object]:
    """Return the forecasts as JSON values: durations in seconds, times in epoch seconds UTC and
    with `_at` as RFC 3339 text."""
    return {
        str(each.topic): {
            "seconds": each.seconds,
            "words": each.sentence,
            "unknown": each.unknown or None,
            **each.numbers,
        }
        for each in forecasts
    }
