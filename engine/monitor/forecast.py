"""What is to be expected if it goes on like this: each a sentence and its numbers.

Nothing here reads anything. What cannot be said is said so, with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import inf, isfinite
from typing import NamedTuple

from engine.config.queue_config import Thresholds
from engine.locks.token_buckets import WHOLE, Left
from engine.model import State
from engine.monitor.throughput import LATELY, TREND, Drain, Growth, Trend, roughly
from engine.policy import DAY, emptied, spending_seconds
from engine.text.safe import shown

SELDOM = 2
"""Tasks in `TREND` up to which no course can be told from none."""


class About(StrEnum):
    """What is forecast."""

    DRAIN = "drain"
    DEAD = "dlq"
    RETENTION = "retention"


class Forecast(NamedTuple):
    """Something to be expected."""

    about: About
    brief: str
    """In a few words, for a line that has several."""
    sentence: str
    """In full, with what it is concluded from; free of control characters."""
    seconds: float | None = None
    """Until then; 0 where it is so already, None where it does not come about, or is not known."""
    unknown: str = ""
    """Why nothing can be said; "" when something can."""
    grave: bool = False
    """Whether somebody should see to it."""
    numbers: Mapping[str, float | str | None] = {}
    """What it was concluded from, by name."""


class Basis(NamedTuple):
    """What is known of a queue at a moment."""

    counts: Mapping[State, int]
    words: Mapping[State, str]
    """Its states, by the store's own words."""
    pace: Drain
    growth: Growth | None
    """Of the dead tasks."""
    died: float | None
    """When the one died that has been dead longest, epoch seconds UTC."""
    tokens: Sequence[Left] | str = ()
    kinds: Mapping[str, int] | None = None
    """How many wait of the kinds that have a bucket of their own."""
    undated: str = "no dead task says when it died"
    """Why `died` is not known, where it is not."""


def expected(
    known: Basis, limits: Thresholds, retention_days: float | None, now: float
) -> tuple[Forecast, ...]:
    """All that is to be expected; of the dead only where the store keeps any.

    `retention_days` is infinite where nothing is ever deleted, None where that is not known.
    """
    waiting = known.counts.get(State.PENDING, 0)
    found = [drained(waiting, known.pace, known.tokens, known.kinds)]
    if State.DEAD in known.words or not known.words:
        dead, word = known.counts.get(State.DEAD, 0), known.words.get(State.DEAD, "dead")
        found.append(filled(dead, limits.dlq, known.growth, word))
        if retention_days != inf:
            found.append(retired(dead, known.died, retention_days, now, word, known.undated))
    return tuple(found)


def drained(
    waiting: int,
    pace: Drain,
    tokens: Sequence[Left] | str = (),
    kinds: Mapping[str, int] | None = None,
) -> Forecast:
    """When nothing waits any more: at the pace of the last minutes, or at the rate of the token
    bucket that lets them through slowest, whichever takes longer.

    `kinds` is how many wait of the kinds that have a bucket of their own.
    """
    slow = _slowest(waiting, tokens, kinds) if waiting else (0.0, None)
    if isinstance(slow, str):
        return _unknown(About.DRAIN, "when nothing waits any more", slow)
    limit, name = slow
    numbers: dict[str, float | str | None] = {
        "waiting": waiting,
        "at_present_rate": pace.seconds,
        "at_bucket_rate": limit if name is not None and isfinite(limit) else None,
        "bucket": name,
    }
    bucket = "" if name is None else f"the bucket of {shown(name) if name else 'all kinds'}"

    def said(brief: str, sentence: str, seconds: float | None, grave: bool = False) -> Forecast:
        return Forecast(About.DRAIN, brief, sentence, seconds, "", grave, numbers)

    if not waiting:
        return said("nothing waits", "nothing waits", 0.0)
    if not isinstance(tokens, str) and any(left.paused for left in tokens):
        return said("paused", "paused: what waits does so until the queue goes on", None)
    if limit == inf:
        return said("never empty", f"never empty: {bucket} lets nothing through", None, True)
    if pace.course is Trend.STALLED:
        return said("stalled", "stalled: tasks are due, and none is done", None, True)
    alone = f"; {bucket} alone takes {roughly(limit)}" if bucket else ""
    if pace.course is Trend.UNKNOWN and not bucket:
        why = "it was not watched for long enough"
        return _unknown(About.DRAIN, "when nothing waits any more", why, numbers)
    slower = pace.seconds is not None and limit > pace.seconds
    # What a bucket lets through so seldom looks steady, and yet has an end.
    unseen = pace.course is Trend.STEADY and limit >= waiting * TREND / SELDOM
    if pace.course is Trend.UNKNOWN or slower or unseen:
        words = f"{emptied(limit)}: {bucket} lets no more through"
        return said(f"empty in {roughly(limit)} by its bucket", words, limit)
    if pace.seconds is None:
        grows = pace.course is Trend.GROWS
        how = "what waits grows" if grows else "what waits neither grows nor drains"
        brief = "never empty: grows" if grows else "never empty: steady"
        return said(brief, f"{how} at the present rate{alone}", None, grows)
    words = f"empty in {roughly(pace.seconds)} at the present rate{alone}"
    return said(f"empty in {roughly(pace.seconds)}", words, pace.seconds)


def _slowest(
    waiting: int, tokens: Sequence[Left] | str, kinds: Mapping[str, int] | None
) -> tuple[float, str | None] | str:
    """Seconds that the slowest bucket takes, and its name, None without any; or why that is not
    known."""
    if isinstance(tokens, str):
        return f"the buckets cannot be read: {shown(tokens)}"
    longest: tuple[float, str | None] = (0.0, None)
    for left in tokens:
        if left.per_hour is None:
            continue
        amount = waiting if left.name == WHOLE else None if kinds is None else kinds.get(left.name)
        if amount is None:
            return f"how many wait of {shown(left.name)} is not counted"
        seconds = spending_seconds(amount, left.tokens, left.per_hour)
        if seconds > longest[0]:
            longest = seconds, left.name
    return longest


def filled(dead: int, limit: int, growth: Growth | None, word: str = "dlq") -> Forecast:
    """When there are more dead tasks than `limit`, which is where somebody should look."""
    name = shown(word)
    numbers: dict[str, float | str | None] = {
        "dead": dead,
        "limit": limit,
        "grown": None if growth is None else growth.tasks,
        "in_seconds": None if growth is None else growth.seconds,
    }
    if dead > limit:
        words = f"{name} has {dead:,}, over its threshold of {limit:,}"
        brief = f"{name} over {limit:,}"
        return Forecast(About.DEAD, brief, words, 0.0, "", True, numbers)
    if growth is None or growth.seconds < LATELY:
        why = "it was not watched for a minute yet"
        return _unknown(About.DEAD, f"when {name} passes {limit:,}", why, numbers)
    span = roughly(growth.seconds)
    if growth.tasks <= 0:
        words = f"{name} does not pass {limit:,}: it has not grown in {span}"
        return Forecast(About.DEAD, f"{name} does not grow", words, None, "", False, numbers)
    seconds = (limit + 1 - dead) * growth.seconds / growth.tasks
    when = roughly(seconds)
    words = f"{name} passes {limit:,} in {when}: it has {dead:,}, +{growth.tasks:,} in {span}"
    brief = f"{name} over {limit:,} in {when}"
    return Forecast(About.DEAD, brief, words, seconds, "", True, numbers)


def retired(
    dead: int,
    died: float | None,
    days: float | None,
    now: float,
    word: str = "dlq",
    undated: str = "no dead task says when it died",
) -> Forecast:
    """When retention deletes the task that has been dead longest, for good: with the first run of
    a worker from then on."""
    name = shown(word)
    what = f"when retention deletes the oldest of {name}"
    numbers: dict[str, float | str | None] = {"died": died, "retention_days": days}
    if not dead:
        words = f"retention deletes nothing: {name} is empty"
        return Forecast(About.RETENTION, "nothing to delete", words, None, "", False, numbers)
    if days is None:
        return _unknown(About.RETENTION, what, "no configuration is known here", numbers)
    if died is None:
        return _unknown(About.RETENTION, what, undated, numbers)
    seconds = max(0.0, died + days * DAY - now)
    kept = f"{days:g} days"
    if not seconds:
        words = f"the next run deletes the oldest of {name} for good: it is dead for over {kept}"
        brief = "next run deletes oldest"
        return Forecast(About.RETENTION, brief, words, 0.0, "", True, numbers)
    when = roughly(seconds)
    words = f"retention deletes the oldest of {name} for good in {when}, {kept} after it died"
    brief = f"oldest deleted in {when}"
    return Forecast(About.RETENTION, brief, words, seconds, "", seconds < DAY, numbers)


def _unknown(
    about: About, what: str, why: str, numbers: Mapping[str, float | str | None] | None = None
) -> Forecast:
    brief = {About.DRAIN: "empty: ?", About.DEAD: "dead: ?"}.get(about, "oldest deleted: ?")
    return Forecast(about, brief, f"not known {what}: {why}", None, why, False, numbers or {})


def agreed(pace: Drain, forecasts: Sequence[Forecast]) -> Drain:
    """The drain as the forecast has it: a rate limit that is slower than the pace decides."""
    empty = next((each.seconds for each in forecasts if each.about is About.DRAIN), None)
    decided = pace.course in (Trend.EMPTY, Trend.GROWS, Trend.STALLED)
    return pace if decided or not empty else Drain(Trend.DRAINS, empty)


def as_row(forecasts: Sequence[Forecast]) -> dict[str, object]:
    """The same for programs: durations in seconds, times in epoch seconds UTC."""
    return {
        str(each.about): {
            "seconds": each.seconds,
            "words": each.sentence,
            "unknown": each.unknown or None,
            **each.numbers,
        }
        for each in forecasts
    }
