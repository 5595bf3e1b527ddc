"""Throughput of a queue over the last ten minutes: rates, backlog trend and time to empty.

The console adds one sample of its counts per second; the caller passes the clock in. There is no
data from before the first sample."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import pairwise
from math import inf
from operator import attrgetter

from engine.model import State
from engine.text.times import format_duration, format_rough_duration
from engine.values import NamedTuple

HISTORY_SECONDS = 600.0

RATE_WINDOW_SECONDS = 60.0

TREND_WINDOW_SECONDS = 120.0
"""Window of the backlog trend in seconds; long, because traffic comes in bursts."""

MIN_RATE_SECONDS = 3.0
"""Minimum seconds of history for rates: one task in the first second would look like a burst."""

MIN_FLOW = 0.05
"""Tasks per second below which a rate is shown as 0.0."""

MIN_TREND_SECONDS = 10.0

MIN_MISSED_TASKS = 5
"""If so many tasks or more would have left at the last minute's rate since the last one that did,
that rate is no longer the present one: in random traffic this is rare."""

ROUNDING = 1e-9
"""Tasks per second: the same number of tasks in and out differ by less."""

_OFTEN = 0.5
"""Minimum seconds between two samples."""


class Rates(NamedTuple):
    """Tasks per second."""

    inward: float
    outward: float


class Trend(StrEnum):
    """Trend of a backlog."""

    DRAINING = "draining"
    GROWING = "growing"
    EMPTY = "empty"
    IDLE = "idle"
    """Tasks wait, and in the last minute next to none came or left."""
    STALLED = "stalled"
    """Due tasks wait, none runs."""
    UNKNOWN = "unknown"


class Drain(NamedTuple):
    """Trend of the backlog and time until it is empty."""

    trend: Trend
    seconds: float | None = None
    """Seconds until empty at the present rate; None unless it drains."""
    unknown: str = ""
    """Why there is no present rate: `no worker`; "" if not known, or there is one."""
    is_least: bool = False
    """It takes so long without new tasks; how many come was not watched long enough."""

    @property
    def text(self) -> str:
        """Text for a narrow column: `30m`, `30m+` (at least), `growing`, `STALLED`, `?`; `-`:
        backlog empty."""
        if self.seconds is not None:
            return format_rough_duration(self.seconds) + "+" * self.is_least
        return _WORDS.get(self.trend, self.trend.value)


_WORDS = {Trend.EMPTY: "-", Trend.UNKNOWN: "?", Trend.IDLE: "?", Trend.STALLED: "STALLED"}


def seconds_known(now: float, began: float, most: float) -> float:
    """The seconds over which events of the last `most` seconds are a rate, if they are known since
    `began`, which is infinite if that is not known: an hour of a log of 7 minutes has 7."""
    return most if began == inf else min(most, max(MIN_TREND_SECONDS, now - began))


MISSING_WORKER = "no worker"
"""Why the drain of a queue is unknown, although some left it before."""


class Growth(NamedTuple):
    """Growth in tasks, and the seconds it took."""

    tasks: int
    seconds: float


class FlowSeries(NamedTuple):
    """The course of a queue in equal steps of time, the latest last; None where it is unknown."""

    inward: tuple[float | None, ...] = ()
    """Tasks added per second."""
    outward: tuple[float | None, ...] = ()
    """Tasks removed per second."""
    dead: tuple[float | None, ...] = ()
    """Tasks that died per second. As recorded, and of what was recorded: growth of the dead-letter
    queue, and failed tasks that were removed; a smaller one counts as 0."""
    backlog: tuple[float | None, ...] = ()
    """Mean number of pending tasks."""
    most: float | None = None
    """Largest number of pending tasks in the whole span."""


class Sample(NamedTuple):
    """Counts of a queue at one moment."""

    when: float
    """Epoch seconds UTC."""
    added: float
    """Tasks added since the history began; below 0 before it."""
    removed: float
    """Tasks that were finished or removed since then."""
    counts: Mapping[State, int]
    failed: int | None = 0
    """Tasks that failed and were removed since then; None: unknown."""
    died: int | None = None
    """Tasks that came into the dead-letter queue since then; None: unknown."""

    @property
    def waiting(self) -> int:
        """Backlog: pending tasks."""
        return self.counts.get(State.PENDING, 0)


MAX_GAP_SECONDS = 30.0
"""With more seconds between the end of a recording and the beginning of what continues it, no rate
is computed over that gap: what came and left in it is not known."""


def count_unfinished(counts: Mapping[State, int]) -> int:
    """The number of tasks in all states but DONE."""
    return sum(number for state, number in counts.items() if state is not State.DONE)


class FlowHistory:
    """History of one queue, at most one sample per half second."""

    def __init__(self, *, has_flow: bool = True, own_worker: int | None = None) -> None:
        """`has_flow`: tasks added and removed are counted; a recording has only the states.
        `own_worker`: as in `note_worker_state`, of one that runs already."""
        self._has_flow = has_flow
        self.last_ran: float | None = None
        """When a task was last seen to begin or to be done, epoch seconds UTC; None: never."""
        self._samples: list[Sample] = []
        self._earlier: Sequence[Sample] = ()
        self._gap_ended = -inf
        """When the first sample after a long gap was taken."""
        self._started = -inf
        """When a worker was started here, or tasks could leave again after a stop."""
        self._is_stopped = False
        self._own_worker = own_worker
        self._last_totals = (0, 0)
        self._failed: int | None = None
        """The last total of failed tasks that were removed."""
        self._died: int | None = None
        self._died_since = 0
        self._failed_removed = 0
        """Those since the history began."""
        self._returned = 0
        """Tasks that are no longer DONE, but neither removed nor done again yet."""
        self._means: dict[tuple[float, int], float | None] = {}  # of complete cells
        self._drain: tuple[float, float, Drain] = 0.0, 0.0, Drain(Trend.UNKNOWN)

    def add(
        self,
        now: float,
        added: int,
        removed: int,
        counts: Mapping[State, int],
        failed: int | None = 0,
        *,
        died: int | None = None,
    ) -> None:
        """Add the counts at `now`, from a complete scan only. `failed`: the failed ones among those
        that left, where they are in no state; `died`: those that came into the dead-letter queue;
        None: unknown.

        `added`, `removed`, `failed` and `died` only grow; if one is lower than before, its counter
        restarted at 0. A task leaves once: when it is DONE, or when it is removed and was not. If
        the clock was set back, the history is emptied: its times would repeat."""
        before = self._samples[-1] if self._samples else None
        if before is not None and now < before.when:
            self._samples, before, self.last_ran = [], None, None
            self._gap_ended = self._started = -inf
            self._means.clear()
        came, left = 0.0, 0.0
        shared_counts = before.counts if before and before.counts == counts else dict(counts)
        if before is not None:
            if now - before.when < _OFTEN:
                return
            finished = counts.get(State.DONE, 0) - before.counts.get(State.DONE, 0)
            ended = _more(self._last_totals[1], removed) + finished - self._returned
            self._returned = max(0, -ended)
            active = counts.get(State.ACTIVE, 0) - before.counts.get(State.ACTIVE, 0)
            if active > 0 or finished > 0:
                self.last_ran = now
            came = before.added + _more(self._last_totals[0], added)
            left = before.removed + max(0, ended)
            if failed is not None and self._failed is not None:
                self._failed_removed += _more(self._failed, failed)
        failures, deaths = None if failed is None else self._failed_removed, self._died_total(died)
        sample = Sample(now, came, left, shared_counts, failed=failures, died=deaths)
        self._last_totals, self._failed = (added, removed), failed
        self._samples.append(sample)
        self._join()
        old = bisect_left(self._samples, now - HISTORY_SECONDS, key=attrgetter("when"))
        # Keep one older sample: it has the counts at the start of the span.
        if old > 60:
            del self._samples[: old - 1]
            self._means.clear()  # once a minute: most cells are no longer shown

    @property
    def rates_begin(self) -> float:
        """The start of the time that output and trend are of, epoch seconds UTC: the later
        of the end of a gap and the end of a stop. No sample before it is in them."""
        return max(self._gap_ended, self._started)

    def note_worker_state(
        self, now: float, *, is_stopped: bool, own_worker: int | None = None
    ) -> None:
        """Note whether it is known that no task can leave, and the PID of a worker that was started
        here. Output and trend begin again with each such worker, and after a stop."""
        has_ended = self._is_stopped and not is_stopped
        if has_ended or own_worker not in (None, self._own_worker):
            self._started = now
        self._is_stopped, self._own_worker = is_stopped, own_worker

    def _died_total(self, died: int | None) -> int | None:
        before, self._died = self._died, died
        if died is not None and before is not None:
            self._died_since += _more(before, died)
        return None if died is None else self._died_since

    def precede(self, earlier: Sequence[Sample], recorded: FlowHistory) -> None:
        """Put recorded samples before the history: a console that was just opened knows the last
        ten minutes, as far as something recorded them. A stop at their end lasts until a note."""
        self._earlier, self._started = earlier, max(self._started, recorded.rates_begin)
        self._is_stopped |= recorded._is_stopped
        self._join()

    def _join(self) -> None:
        if not self._earlier or not self._samples:
            return
        first, earlier, self._earlier = self._samples[0], self._earlier, ()
        known = [one for one in earlier if one.when < first.when]
        if not known:
            return
        last = known[-1]
        if first.when - last.when > MAX_GAP_SECONDS:
            self._gap_ended = first.when
        grown = count_unfinished(first.counts) - count_unfinished(last.counts)
        added, removed = last.added + max(0, grown), last.removed + max(0, -grown)
        self._samples[:0] = [
            one._replace(added=one.added - added, removed=one.removed - removed) for one in known
        ]
        self._means.clear()

    def _since(self, start: float, begin: float | None = None) -> list[Sample]:
        """Return the samples from the last one at or before `start` on, but none before `begin`,
        which is `rates_begin` if not given; always the latest sample."""
        begin = self.rates_begin if begin is None else begin
        first = bisect_right(self._samples, start, key=attrgetter("when")) - 1
        first = max(first, bisect_left(self._samples, begin, key=attrgetter("when")), 0)
        return self._samples[first:] or self._samples[-1:]

    def _fresh(self, now: float, over: float) -> bool:
        return bool(self._samples) and now - self._samples[-1].when <= over

    def rates(self, now: float, over: float = RATE_WINDOW_SECONDS) -> Rates | None:
        """Return tasks added and removed per second over a window; None until there is enough
        data. Tasks come without a worker: only those removed are of the time since its start."""
        if not self._fresh(now, over):
            return None
        return self._rates(self._since(now - over, self._gap_ended)[0], self._since(now - over)[0])

    def _rates(self, came: Sample, left: Sample) -> Rates | None:
        last = self._samples[-1]
        seconds = last.when - left.when
        if seconds < (MIN_RATE_SECONDS if left is came else MIN_TREND_SECONDS):
            return None
        inward = (last.added - came.added) / (last.when - came.when)
        return Rates(inward, (last.removed - left.removed) / seconds)

    def drain(self, now: float) -> Drain:
        """Estimate the time until the backlog is empty from its slope. It grows if there are more
        pending tasks than a minute ago, and more came than left. The answer is kept for the same
        second of `now` until a sample is added: several parts of a screen ask for it."""
        asked = (self._samples[-1].when if self._samples else 0.0, float(int(now)))
        if self._drain[:2] != asked:
            self._drain = *asked, self._estimate_drain(now)
        return self._drain[2]

    def _estimate_drain(self, now: float) -> Drain:
        samples = self._since(now - TREND_WINDOW_SECONDS)
        if not self._fresh(now, TREND_WINDOW_SECONDS):
            return Drain(Trend.UNKNOWN)
        waiting = samples[-1].waiting
        if not waiting:
            return Drain(Trend.EMPTY)
        seconds = samples[-1].when - samples[0].when
        if seconds < MIN_TREND_SECONDS:
            age = now - self._started
            is_new = age <= TREND_WINDOW_SECONDS and self._started >= self._gap_ended
            why = f"rates since {format_duration(age)} ago" if is_new else ""
            return Drain(Trend.UNKNOWN, unknown=why)
        slope = 0.0
        if samples[0].counts is not samples[-1].counts:  # `add` shares those that stayed the same
            slope = _slope([(s.when - samples[0].when, s.waiting) for s in samples])
        is_flat = abs(slope) * seconds < 1  # less than one task in all that time is noise
        if not self._has_flow:
            inward, outward, is_idle = 0.0, max(0.0, -slope), is_flat
        else:
            first = self._since(now - RATE_WINDOW_SECONDS)[0]  # both rates of the same time
            rates = self._rates(first, first)
            grown = self.growth(State.DEAD, now, RATE_WINDOW_SECONDS)
            if rates is None or grown is None:
                return Drain(Trend.UNKNOWN)
            inward, outward = rates.inward, rates.outward + max(0, grown.tasks) / grown.seconds
            is_idle = max(inward, outward) < MIN_FLOW
        if is_idle:
            return Drain(Trend.IDLE)
        pending, more = self.growth(State.PENDING, now, RATE_WINDOW_SECONDS), inward - outward
        if (more > ROUNDING or (slope > 0 and not is_flat)) and (not pending or pending.tasks > 0):
            return Drain(Trend.GROWING)
        silence = self._seconds_without_output(now)
        if silence >= MIN_TREND_SECONDS and outward * silence >= MIN_MISSED_TASKS:
            return Drain(Trend.IDLE, unknown=f"none left for {format_duration(silence)}")
        shrinks = -more if is_flat else -slope
        if shrinks <= ROUNDING:
            return Drain(Trend.UNKNOWN, unknown="backlog neither grows nor shrinks")
        return Drain(Trend.DRAINING, waiting / shrinks)

    def _seconds_without_output(self, now: float) -> float:
        """Seconds since a task was last seen to leave or to die; 0 if that is not counted, or
        shorter than two of the pauses before: counts may be read seldom, and tasks end together."""
        samples = self._since(now - RATE_WINDOW_SECONDS)
        ends = [late.when for early, late in pairwise(samples) if _output(early) != _output(late)]
        if len(ends) < 2 or not self._has_flow:
            return 0.0
        silence = now - ends[-1]
        return silence if silence > 2 * max(b - a for a, b in pairwise(ends)) else 0.0

    def most_active(self, now: float) -> int:
        """Return the most tasks that ran at the same time in the last minute, as far as seen."""
        samples = self._since(now - RATE_WINDOW_SECONDS)
        return max((one.counts.get(State.ACTIVE, 0) for one in samples), default=0)

    def is_without_output(self, now: float) -> bool:
        """True if no task left in `TREND_WINDOW_SECONDS` and all of that time was watched."""
        over = TREND_WINDOW_SECONDS
        samples = self._since(now - over)
        watched = self._fresh(now, over) and samples[-1].when - samples[0].when >= over - _OFTEN
        return watched and samples[-1].removed == samples[0].removed

    def sparkline(self, now: float, cells: int) -> tuple[float | None, ...]:
        """Return the mean backlog in each of `cells` parts of the last ten minutes, the latest
        last. None if there is no sample. Cells begin at whole multiples of their length, so that
        only the last one changes from second to second."""
        length = HISTORY_SECONDS / cells
        last = int(now // length)
        return tuple(self._mean(length, cell) for cell in range(last - cells + 1, last + 1))

    def _mean(self, length: float, cell: int) -> float | None:
        if (length, cell) in self._means:
            return self._means[length, cell]
        edges = cell * length, (cell + 1) * length
        start, end = (bisect_left(self._samples, edge, key=attrgetter("when")) for edge in edges)
        waiting = [sample.waiting for sample in self._samples[start:end]]
        mean = sum(waiting) / len(waiting) if waiting else None
        if end < len(self._samples):  # a later sample exists: the cell is complete
            self._means[length, cell] = mean
        return mean

    def series(self, now: float, seconds: float, steps: int) -> FlowSeries:
        """Return the course of the last `seconds` in `steps` equal parts.

        Parts begin at whole multiples of their length, so that only the last one changes from
        second to second. Rates are over a part, or over the minute before its end if that is
        longer: below one task in a part they would be a row of peaks."""
        length = seconds / steps
        last = int(now // length)
        times = [sample.when for sample in self._samples]
        edges = [bisect_left(times, cell * length) for cell in range(last - steps + 1, last + 2)]
        parts = [self._part(times, start, end) for start, end in pairwise(edges)]
        waiting = [one.waiting for one in self._samples[edges[0] : edges[-1]]]
        inward, outward, dead, backlog = zip(*parts, strict=True)
        return FlowSeries(inward, outward, dead, backlog, max(waiting, default=None))

    def _part(self, times: Sequence[float], start: int, end: int) -> tuple[float | None, ...]:
        inside = self._samples[start:end]
        if not inside:
            return None, None, None, None
        last, backlog = inside[-1], sum(one.waiting for one in inside) / len(inside)
        minute_before = bisect_right(times, last.when - RATE_WINDOW_SECONDS) - 1
        first = max(0, min(start - 1, minute_before))
        cuts = [bisect_left(times, begin) for begin in (self._gap_ended, self.rates_begin)]
        came, left = (self._samples[max(first, cut) if cut < end else first] for cut in cuts)
        seconds = last.when - left.when
        return (
            (last.added - came.added) / (last.when - came.when) if came is not last else None,
            (last.removed - left.removed) / seconds if seconds else None,
            _died(left, last) if seconds else None,
            backlog,
        )

    def died(self, now: float) -> float | None:
        """Return the tasks that died per second in the last minute; None if unknown."""
        samples = self._since(now - RATE_WINDOW_SECONDS)
        if not self._fresh(now, RATE_WINDOW_SECONDS) or len(samples) < 2:
            return None
        return _died(samples[0], samples[-1])

    def growth(self, state: State, now: float, over: float = HISTORY_SECONDS) -> Growth | None:
        """Return the growth of a state with the seconds that were measured; of a backlog since a
        stop ended."""
        # Counts at both ends of a gap are known; their difference is no rate of the last minute.
        whole = -inf if state is State.DEAD else self._started
        samples = self._since(now - over, whole if over > RATE_WINDOW_SECONDS else None)
        if not self._fresh(now, over) or len(samples) < 2:
            return None
        first, last = samples[0], samples[-1]
        tasks = last.counts.get(state, 0) - first.counts.get(state, 0)
        return Growth(tasks, last.when - first.when)


def _output(sample: Sample) -> tuple[float, float]:
    dead = sample.counts.get(State.DEAD, 0) if sample.died is None else sample.died
    return sample.removed, dead


def _died(first: Sample, last: Sample) -> float | None:
    """Tasks that died per second from one sample to another, also those that were removed then."""
    if first.failed is None or last.failed is None:
        return None
    grown = last.counts.get(State.DEAD, 0) - first.counts.get(State.DEAD, 0)
    if first.died is not None and last.died is not None:
        grown = last.died - first.died  # some may have been replayed meanwhile
    return (max(0, grown) + last.failed - first.failed) / (last.when - first.when)


def _more(before: int, now: int) -> int:
    return now - before if now >= before else now


def _slope(points: list[tuple[float, int]]) -> float:
    amount = len(points)
    mean_x = sum(x for x, _ in points) / amount
    mean_y = sum(y for _, y in points) / amount
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


MIN_RUNS = 3
"""Minimum number of runs for an interval between them."""

RUN_WINDOW_SECONDS = 600.0
"""Seconds before the last run over which the time between runs is measured."""


class RunTimes(NamedTuple):
    """Worker runs found in log and metrics."""

    last: float | None = None
    """Last run, epoch seconds UTC; None if unknown."""
    interval: float | None = None
    """Longest interval between two runs in seconds; None if fewer than `RUNS` are known."""


def measure_runs(times: Iterable[float]) -> RunTimes:
    """Return the last run and the longest interval, from the times at which tasks or runs
    started."""
    known = sorted(times)
    last = known[-1] if known else None
    recent = [when for when in known if last is not None and when >= last - RUN_WINDOW_SECONDS]
    gaps = [after - before for before, after in pairwise(recent)]
    return RunTimes(last, max(gaps) if len(recent) >= MIN_RUNS else None)
