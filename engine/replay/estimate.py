"""Runs of a queue: how far apart they are, and whether a replay's rate can be kept by them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from engine.monitor.throughput import RUNS
from engine.policy import lasting
from engine.replay.settings import FASTEST, ReplayPace


class Working(NamedTuple):
    """Who works a queue, as far as is known."""

    held: bool | None
    """Whether somebody has the queue's lock now; None where there is no lock to tell that."""
    apart: float | None
    """Seconds between two runs, as the log shows them; None: it shows too few."""
    quiet: float | None = None
    """Seconds since the last run began, as the log shows; None: it shows none."""

    @property
    def over(self) -> bool:
        """Whether whoever worked here seems to have left: several runs did not come."""
        return self.quiet is not None and self.quiet > max(LEFT, RUNS * (self.apart or 0.0))


TIMER = 20.0
"""Seconds between two tasks from which on it looks like a timer that runs one at a time: a worker
that stays takes the next one when it is done with the last."""

LEFT = 60.0
"""Seconds without a run, at least, before a worker is taken to have left."""

NOBODY = "nobody works this queue now: what is sent waits for the next worker"
NOT_KNOWN = "whether anybody works this queue is not known here: what is sent may wait for a worker"


def runs_apart(began: Iterable[float]) -> float | None:
    """Seconds between two runs, from when tasks were begun; None when too few were."""
    times = sorted(began)
    gaps = sorted(after - before for before, after in pairwise(times))
    # Among the shorter ones, as a run that finds nothing due is in no log.
    return gaps[len(gaps) // 4] if len(times) >= RUNS else None


class ReplayEstimate(NamedTuple):
    """What a replay will take."""

    sending: float
    """Seconds until all of it is sent."""
    runs: int | None
    """How many runs of a timer it takes; None where a worker stays, or nobody knows."""
    working: float | None
    """Seconds until the timer has run all of it; None where that is not known."""
    sentences: tuple[str, ...]
    """In words, the telling one first."""


def forecast(count: int, pace: ReplayPace, working: Working) -> ReplayEstimate:
    """How long so many tasks take at a pace, and whether it can be kept.

    The waits for the outcomes of canaries come on top.
    """
    sending = 0.0 if pace.rate is None else count / pace.rate
    said = [_speed(count, pace.rate, sending)]
    runs = after = None
    slow = working.apart is None or working.apart >= TIMER or working.over
    if not working.held and slow:
        if working.apart is None or working.over:
            said.insert(0, NOBODY if working.held is False else NOT_KNOWN)
        else:
            runs, after = count, count * working.apart
            every = lasting(working.apart)
            words = f"only a timer works this queue, one task each {every}"
            if working.apart * (pace.rate or FASTEST) > 1:
                words += ": the rate cannot be kept"
            takes = f"it takes {runs:,} run{'s' * (runs != 1)}, {lasting(after)}"
            said.insert(0, f"{words}; {takes}")
    waits = [str(size) for size in pace.canary if size]
    if waits:
        said.append(f"first {', then '.join(waits)}; the outcomes of each are waited for")
    return ReplayEstimate(sending, runs, after, tuple(said))


def _speed(count: int, rate: float | None, seconds: float) -> str:
    if rate is None:
        return f"all {count:,} at once"
    per = f"{rate:g}/s" if rate >= 1 else f"one each {lasting(1 / rate)}"
    return f"at {per}: {count:,} in {lasting(seconds)}"
