"""Estimate how long a replay takes, and whether the workers' runs can keep its rate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from engine.monitor.run_forecast import Pace, forecast_runs
from engine.monitor.throughput import MIN_RUNS
from engine.replay.settings import MAX_RATE, ReplayPace
from engine.text.times import format_rough_duration
from engine.values import NamedTuple


class WorkerPresence(NamedTuple):
    """How a queue is worked, as far as known."""

    has_worker: bool | None
    """True if a worker runs now; of a queue with a lock, if a process holds it. None: unknown."""
    run_interval: float | None
    """Seconds between two runs according to the log; None: too few runs."""
    seconds_since_run: float | None = None
    """Seconds since the last run began according to the log; None: no run."""

    @property
    def has_stopped(self) -> bool:
        """True if several expected runs did not come: the worker seems to have stopped."""
        return self.seconds_since_run is not None and self.seconds_since_run > max(
            WORKER_GONE_SECONDS, MIN_RUNS * (self.run_interval or 0.0)
        )


TIMER_INTERVAL_SECONDS = 20.0
"""From this many seconds between two tasks on, assume a timer that runs one task at a time: a
permanent worker takes the next task immediately."""

WORKER_GONE_SECONDS = 60.0
"""Minimum seconds without a run before a worker counts as stopped."""

NO_WORKER = "no worker running: sent tasks wait for the next worker"
WORKER_UNKNOWN = "unknown whether a worker is running: sent tasks may wait for one"


def measure_run_interval(began: Iterable[float]) -> float | None:
    """Return the seconds between two runs from the times when tasks began; None if too few."""
    times = sorted(began)
    gaps = sorted(after - before for before, after in pairwise(times))
    # Use the lower quartile: a run without a due task leaves no log line.
    return gaps[len(gaps) // 4] if len(times) >= MIN_RUNS else None


class ReplayEstimate(NamedTuple):
    """Estimated duration of a replay."""

    sending: float
    """Seconds until all tasks are sent."""
    runs: int | None
    """Number of timer runs needed; None if a worker stays, or if not known."""
    working: float | None
    """Seconds until the timer has run all of them; None if not known."""
    sentences: tuple[str, ...]
    """Sentences, the most important first."""
    worker: str = ""
    """The sentence about missing or slow workers; "" if they keep the rate."""


def estimate_replay(count: int, pace: ReplayPace, working: WorkerPresence) -> ReplayEstimate:
    """Estimate how long `count` tasks take at a pace, and whether the workers can keep it. The
    waiting for canary outcomes is not included."""
    sending = 0.0 if pace.rate is None else count / pace.rate
    phrases = [_speed(count, pace.rate, sending)]
    runs = after = None
    slow = (
        working.run_interval is None
        or working.run_interval >= TIMER_INTERVAL_SECONDS
        or working.has_stopped
    )
    if not working.has_worker and slow:
        if working.run_interval is None or working.has_stopped:
            phrases.insert(0, NO_WORKER if working.has_worker is False else WORKER_UNKNOWN)
        else:
            timer = Pace(timer_seconds=working.run_interval, timer_at=working.run_interval)
            runs, after = count, forecast_runs({"": count}, timer, 0.0).seconds
            every = format_rough_duration(working.run_interval)
            words = f"worked only by a timer, one task every {every}"
            if working.run_interval * (pace.rate or MAX_RATE) > 1:
                words += ": too slow for this rate"
            takes = (
                f"it takes {runs:,} run{'s' * (runs != 1)}, {format_rough_duration(after or 0.0)}"
            )
            phrases.insert(0, f"{words}; {takes}")
    worker = phrases[0] if len(phrases) > 1 else ""
    waits = [str(size) for size in pace.canary if size]
    if waits:
        phrases.append(f"first {', then '.join(waits)}; waits for results after each step")
    return ReplayEstimate(sending, runs, after, tuple(phrases), worker)


def _speed(count: int, rate: float | None, seconds: float) -> str:
    if rate is None:
        return f"all {count:,} immediately"
    per = f"{rate:g}/s" if rate >= 1 else f"one every {format_rough_duration(1 / rate)}"
    return f"at {per}: {count:,} in {format_rough_duration(seconds)}"
