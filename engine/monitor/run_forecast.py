"""The one arithmetic of forecasts: when the last of some runs starts, with its sum in words.

A task asks it for the tasks that are claimed before it, a queue for all that wait, a plan for those
that it adds: `158 x 5s at 720/h`. A run needs a token of each rate limit of its kind, and a turn of
the workers. A run that fails and comes due again before the end needs both again. The caller passes
the counts and the clock in."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from math import ceil, inf

from engine.locks.token_buckets import ALL_KINDS, BucketState, count_with_tokens
from engine.model import State
from engine.monitor.latency import KindFigures
from engine.monitor.throughput import MIN_RATE_SECONDS, RATE_WINDOW_SECONDS, FlowHistory
from engine.schedules import format_seconds
from engine.text.figures import format_rate
from engine.text.safe import safe_line
from engine.text.times import format_deadline
from engine.values import NamedTuple

BUSY_SECONDS = 5.0
"""A task that is due for so long while others are first shows that the workers are busy, so that
the measured rate is all that they can do: they scan again after this time at the latest."""

MAX_RETRIED_SHARE = 0.9
"""Highest share of runs that are taken to be tried again; all of them would need no end."""

_MAX_ROUNDS = 6
"""Times that the tasks first are counted again because more of them come due until then."""


class Pace(NamedTuple):
    """How fast a place starts tasks: its rate limits, and what was measured in the last minutes."""

    buckets: Sequence[BucketState] | str = ()
    """Its rate limits, or why they cannot be read."""
    kinds: Mapping[str, KindFigures] = {}
    """Figures of the runs of each kind, as far as known."""
    per_second: float | None = None
    """Runs that ended per second, over at most the last minute; None: unknown."""
    is_busy: bool = False
    """True if due tasks waited all that time: then the workers cannot do more."""
    slots: int = 1
    """Tasks that were seen running at the same time in the last minute, at least 1."""
    own_slots: Mapping[str, int] = {}
    """Most tasks of a kind that run at the same time; a kind that is missing may use all slots."""
    timer_seconds: float | None = None
    """Seconds between two runs of a timer that starts one task each; None: a worker stays."""
    timer_at: float = 0.0
    """When the timer runs next, epoch seconds UTC."""
    max_runs: int | None = None
    """Runs after which a task is given up; None: unknown, or no number."""
    obstacle: str = ""
    """Why no task starts however long it waits; "" if nothing prevents it."""


def measure_pace(
    flow: FlowHistory,
    figures: Iterable[KindFigures],
    buckets: Sequence[BucketState] | str,
    now: float,
    waited: float = 0.0,
) -> Pace:
    """Measure the pace of a place. `waited` are the seconds for which a task is due while others
    are first: the workers were busy so long, and their rate then is all that they can do."""
    over = min(RATE_WINDOW_SECONDS, max(BUSY_SECONDS, waited))
    rates, died, ended = flow.rates(now, over), flow.growth(State.DEAD, now, over), None
    if rates is not None and died is not None and died.seconds >= MIN_RATE_SECONDS:
        ended = rates.outward + max(0, died.tasks) / died.seconds
    kinds = {one.kind: one for one in figures}
    slots = max(1, flow.most_active(now))
    return Pace(buckets, kinds, ended, is_busy=waited >= BUSY_SECONDS, slots=slots)


class RunForecast(NamedTuple):
    """When the last of some runs starts."""

    seconds: float | None
    """Seconds from now; None if unknown, infinite for never."""
    terms: str = ""
    """How it was computed, `158 x 5s at 720/h`; "" if nothing is first."""
    unknown: str = ""
    """Why it is unknown; "" if it is known."""
    bucket: str | None = None
    """The rate limit that decides; None: another thing does."""


def forecast_runs(
    runs: Mapping[str, int],
    pace: Pace,
    now: float,
    last: Collection[str] | None = None,
    *,
    with_retries: bool = True,
) -> RunForecast:
    """Forecast when the last of `runs` (numbers by kind) starts, or the last one of the kinds
    `last`: their rate limits alone delay it. With `with_retries`, runs that fail are tried again
    before it, if their backoff ends by then."""
    if pace.obstacle:
        return RunForecast(None, unknown=pace.obstacle)
    if isinstance(pace.buckets, str):
        why = f"rate limits cannot be read: {safe_line(pace.buckets)}"
        return RunForecast(None, unknown=why)
    kinds = runs.keys() if last is None else last
    parts = [
        *token_waits(runs, pace, now, kinds, with_retries=with_retries),
        _turn_wait(runs, pace, now, kinds, pace.buckets, with_retries=with_retries),
    ]
    unknown = next((part for part in parts if part.seconds is None), None)
    return unknown or max(parts, key=lambda part: part.seconds or 0.0)


def token_waits(
    runs: Mapping[str, int],
    pace: Pace,
    now: float,
    last: Collection[str],
    *,
    with_retries: bool = True,
) -> Iterator[RunForecast]:
    """The wait for the token of the last run of some kinds, for each rate limit that delays it."""
    limits = {each.name: each for each in pace.buckets if isinstance(each, BucketState)}
    for bucket in (limits[name] for name in dict.fromkeys((ALL_KINDS, *last)) if name in limits):
        own: Mapping[str, int] = {bucket.name: runs.get(bucket.name, 0)}
        if bucket.name == ALL_KINDS:
            own = _with_own_tokens(runs, bucket, limits, last)
        number, name = sum(own.values()), bucket.name
        lacking = number - bucket.tokens
        if not number:
            continue
        if bucket.paused:
            yield RunForecast(None, unknown="paused until an operator resumes it", bucket=name)
        elif lacking <= 0 or bucket.per_hour is None:
            continue
        elif not bucket.per_hour:
            yield RunForecast(inf, unknown="rate limit is 0", bucket=name)
        else:
            period = 3600 / bucket.per_hour
            retries = _count_retries(own, pace, lacking, period) if with_retries else 0
            first = now + period if bucket.next is None else max(now, bucket.next)
            seconds = first - now + (lacking + retries - 1) * period
            rate = f"{bucket.per_hour:,}/h"
            yield RunForecast(seconds, _terms(lacking, retries, period, rate), bucket=name)


def _with_own_tokens(
    runs: Mapping[str, int],
    shared: BucketState,
    limits: Mapping[str, BucketState],
    last: Collection[str],
) -> Mapping[str, int]:
    """The runs that spend tokens of the limit of all kinds before the last one of the kinds `last`:
    of another kind with a limit, only as many as that lets run until then."""
    if not shared.per_hour:
        return runs
    others, spent = limits.keys() & runs.keys() - set(last), runs
    for _ in range(_MAX_ROUNDS):
        seconds = max(0, sum(spent.values()) - shared.tokens) * 3600 / shared.per_hour
        allowed = {
            kind: limits[kind].tokens + int(seconds * (limits[kind].per_hour or 0) / 3600)
            for kind in others
        }
        spent = {kind: min(number, allowed.get(kind, number)) for kind, number in runs.items()}
    return spent


def _turn_wait(
    runs: Mapping[str, int],
    pace: Pace,
    now: float,
    kinds: Collection[str],
    buckets: Sequence[BucketState],
    *,
    with_retries: bool,
) -> RunForecast:
    """The wait for the turn of the last run. A task without a token holds up no other one."""
    if pace.timer_seconds is not None:
        number = sum(runs.values())
        seconds = max(0.0, pace.timer_at - now) + (number - 1) * pace.timer_seconds
        terms = _terms(number, 0, pace.timer_seconds, "one each run of the timer")
        return RunForecast(seconds, terms)
    waits = {kind: count_with_tokens(buckets, {kind: n}) for kind, n in runs.items()}
    tokens = {bucket.name: bucket.tokens for bucket in buckets}
    itself = next((kind for kind in kinds if waits.get(kind)), None)
    first = {kind: n - (kind == itself) for kind, n in waits.items() if n - (kind == itself)}
    number, speed = _find_speed(first, pace, kinds)
    number = min(number, tokens.get(ALL_KINDS, number))
    if number <= 0:
        return RunForecast(0.0)
    if not speed and (ALL_KINDS in tokens or all(kind in tokens for kind in first)):
        return RunForecast(0.0)  # their limits held the workers back, not these
    if speed is None:
        return RunForecast(None, unknown="rate of the queue not measured yet")
    if not speed:
        why = f"{number:,} first, none finished in the last minute"
        return RunForecast(None, unknown=why)
    retries = _count_retries(waits, pace, number, 1 / speed) if with_retries else 0
    rate = f"{number + retries:,} at {format_rate(speed)}"
    return RunForecast((number + retries) / speed, rate)


def _find_speed(
    first: Mapping[str, int], pace: Pace, kinds: Collection[str]
) -> tuple[int, float | None]:
    """How many of the runs `first` are done before the last one of `kinds`, and how many a second;
    None: unknown. If the kinds have slots of their own, those of the slowest one."""
    number = sum(first.values())
    figures = {kind: pace.kinds.get(kind, KindFigures(kind)) for kind in {*pace.kinds, *first}}
    known = {kind: it.run_p50 for kind, it in figures.items() if it.run_p50 is not None}
    known = {kind: max(seconds, MIN_RUN_SECONDS) for kind, seconds in known.items()}
    counted = sum(n for kind, n in first.items() if kind in known)
    if known and 2 * counted < number:
        return number, None
    if not counted or (pace.is_busy and not pace.per_second):
        return number, pace.per_second
    mean = sum(n * known.get(kind, 0.0) for kind, n in first.items()) / counted
    rates = {kind: figures[kind].per_second_now or 0.0 for kind in known}
    used = sum(rate * known[kind] for kind, rate in rates.items())
    slots = max(pace.slots, used)
    # Of busy slots, what the runs do not use is the time between two of them.
    between = (slots - used) / sum(rates.values()) if used and pace.is_busy else 0.0
    runs = {kind: known.get(kind, mean) + between for kind in first}
    own = {kind: min(slots, pace.own_slots.get(kind, slots)) for kind in {*first, *kinds}}
    last = [kind for kind in kinds if kind in first]
    if sum(own.values()) <= slots and (pace.is_busy or len(first) > 1):
        able = {kind: own[kind] / runs[kind] for kind in last}
        if pace.is_busy:
            able |= {kind: rates[kind] for kind in last if rates.get(kind)}
        waits = ((first[kind], max(able[kind], rates.get(kind, 0.0))) for kind in last)
        return max(waits, key=lambda each: each[0] / each[1], default=(0, None))
    work = {kind: n * runs[kind] for kind, n in first.items()}
    seconds = max([_shared_seconds(work, own, slots), *(work[kind] / own[kind] for kind in last)])
    until = {kind: min(n, round(own[kind] * seconds / runs[kind])) for kind, n in first.items()}
    number = sum(until.values())
    if not number:
        return 0, None
    return number, max(number / seconds, 0.0 if pace.is_busy else pace.per_second or 0.0)


def _shared_seconds(work: Mapping[str, float], own: Mapping[str, float], slots: float) -> float:
    """Seconds for which work (seconds of runs by kind) fills all slots. A kind that has more of it
    than its own slots can do until then takes only these from the others."""
    seconds = sum(work.values()) / slots
    for _ in range(_MAX_ROUNDS):
        more = {kind for kind in work if work[kind] > own[kind] * seconds}
        left = slots - sum(own[kind] for kind in more)
        if not more or left <= 0:
            break
        seconds = sum(work[kind] for kind in work if kind not in more) / left
    return seconds


MIN_RUN_SECONDS = 0.02
"""Shortest run that is assumed: logs have whole seconds, and a claim and its outcome take time."""


def _count_retries(runs: Mapping[str, int], pace: Pace, number: int, period: float) -> int:
    """How many of `number` runs, one each `period` seconds, are tried again before the last one.

    A task runs m = 1 + p + p^2 ... times, if a share p of the runs is tried again, up to the most
    runs. So q = 1 - 1 / m of all runs are retries; those of runs that start within a backoff b of
    the end come after it. The total T is number + q (T - b / period)."""
    total = max(1, sum(runs.values()))
    shares = [(pace.kinds[kind], n / total) for kind, n in runs.items() if kind in pace.kinds]
    p = min(MAX_RETRIED_SHARE, sum((one.retried_share or 0.0) * n for one, n in shares))
    backoff = sum((one.retry_p50 or 0.0) * n for one, n in shares)
    q = 1 - (1 - p) / (1 - (p**pace.max_runs if pace.max_runs else 0.0)) if p else 0.0
    before_end = number - backoff / period
    return round(q * before_end / (1 - q)) if before_end > 0 else 0


def _terms(number: int, retries: int, period: float, rate: str) -> str:
    again = f", {retries:,} of them retries" if retries else ""
    rounded = round(period, 1) if period >= 1 else float(f"{period:.2g}")
    return f"{number + retries:,} x {format_seconds(rounded)} at {rate}{again}"


def _token_from(kind: str, moment: float, pace: Pace, others: Mapping[str, int]) -> float:
    """When a task of a kind that comes due at a moment has a token. Others that are due then
    (numbers by kind) take each token of an empty bucket before."""
    empty = [each for each in pace.buckets if isinstance(each, BucketState) and each.tokens <= 0]
    for each in empty:
        takers = others if each.name == ALL_KINDS else each.name == kind and others.get(kind)
        if takers and each.per_hour and each.next is not None:
            period = 3600 / each.per_hour
            moment = max(moment, each.next + ceil((moment - each.next) / period) * period)
    return moment


class ExpectedStart(NamedTuple):
    """When a waiting task runs."""

    when: float | None
    """Epoch seconds UTC; None if unknown."""
    unknown: str = ""
    """Why it is unknown; "" if it is known."""
    terms: str = ""
    """As in `RunForecast`."""
    ahead: Mapping[str, int] = {}
    """The tasks that are claimed before it, by kind; also those that come due until then."""

    def sentence(self, now: float) -> str:
        """As text: `runs at about 14:31:39Z (in 35s): 7 x 5s at 720/h`."""
        if self.when is None:
            return f"start unknown: {safe_line(self.unknown)}"
        if self.when <= now:
            return "runs next"
        terms = f": {self.terms}" if self.terms else ""
        return f"runs at about {format_deadline(self.when, now)}{terms}"


def expected_start(
    kind: str,
    due: float,
    now: float,
    pace: Pace,
    count: Callable[[float], Mapping[str, int]],
    *,
    with_retries: bool = True,
    is_ordered: bool = True,
) -> ExpectedStart:
    """Forecast when a pending task runs: when it is due, and after the tasks that are claimed
    before it, of which `count` returns the numbers that are due at a time, by kind.

    `with_retries`: of these, those that fail come before it again. Without `is_ordered` it is not
    known which of them come before it: then only an end of the wait is known."""
    earliest = start = _token_from(kind, due, pace, count(due)) if due > now else now
    for _ in range(_MAX_ROUNDS):
        ahead = count(start)
        runs = {**ahead, kind: ahead.get(kind, 0) + 1}
        found = forecast_runs(runs, pace, now, {kind}, with_retries=with_retries)
        if found.seconds is None or found.seconds == inf:
            return ExpectedStart(None, found.unknown, ahead=ahead)
        later = max(earliest, now + found.seconds)
        terms = found.terms if later > earliest else ""
        if later <= start + 1.0:
            break
        start = later
    if not is_ordered and later > earliest + BUSY_SECONDS:
        which = f"{sum(ahead.values()):,} others, in an order not known"
        return ExpectedStart(None, f"{which}: by {format_deadline(later, now)}", ahead=ahead)
    return ExpectedStart(later, terms=terms, ahead=ahead)
