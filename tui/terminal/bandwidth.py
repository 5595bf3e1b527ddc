"""Count bytes written to the terminal, and set the seconds between two repaints without a key.

On a local terminal the screen repaints each second. Over SSH there is a budget in bytes per second:
while no key is pressed and the budget is exceeded, the screen repaints every 2 s, then every 5 s,
and the header shows it. Answers to keys are never delayed, nor is a running operation.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

SSH_BUDGET = 8000.0
"""Bytes per second over SSH while no key is pressed."""
SSH_VARIABLES = ("SSH_CONNECTION", "SSH_TTY")
"""Environment variables that sshd sets; one of them is enough."""
PERIODS_SECONDS = (1.0, 2.0, 5.0)
"""Seconds between two repaints without a key."""
FASTER_SHARE = 0.8
"""A faster period is used again if it would need at most this share of the budget."""
IDLE_SAMPLES = 10
"""Idle seconds measured before the period is changed."""
ANSWER_SECONDS = 2.0
"""Seconds after a key in which output may still belong to its answer."""
RATE_SAMPLES = 5
"""Seconds over which the shown rate is averaged."""
SAMPLE_SECONDS = 1.0
"""Seconds between two measurements."""
MAX_SAMPLE_SECONDS = 3.0
"""A longer gap between two measurements means that the console was stopped: not an idle second."""


def budget_for(environ: Mapping[str, str], asked: float = 0.0) -> float:
    """Budget in bytes per second: `asked` if set, else limited only over SSH."""
    over_ssh = any(environ.get(name) for name in SSH_VARIABLES)
    return asked or (SSH_BUDGET if over_ssh else math.inf)


def choose_period(period: float, rate: float, budget: float) -> float:
    """New seconds between repaints, after `rate` bytes per second while idle at `period`."""
    at = PERIODS_SECONDS.index(period)
    if rate > budget:
        at = min(at + 1, len(PERIODS_SECONDS) - 1)
    elif at and rate * period / PERIODS_SECONDS[at - 1] < FASTER_SHARE * budget:
        at -= 1
    return PERIODS_SECONDS[at]


class BandwidthSample(NamedTuple):
    """Bytes written between two measurements."""

    seconds: float
    size: int


class BandwidthBudget:
    """Measures the written bytes once a second and adjusts the repaint period."""

    def __init__(
        self,
        written: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        budget: float = math.inf,
        is_operating: Callable[[], bool] = lambda: False,
    ) -> None:
        """`written` returns all bytes so far; `clock` is monotonic, in seconds.

        `budget` is in bytes per second. While `is_operating`, the screen repaints each second.
        """
        self._written, self._clock = written, clock
        self._budget, self._is_operating = budget, is_operating
        self._before, self._size = clock(), written()
        self._last_key = self._before  # the first screen counts as an answer
        self._samples: deque[BandwidthSample] = deque(maxlen=RATE_SAMPLES)
        self._idle_samples: deque[BandwidthSample] = deque(maxlen=IDLE_SAMPLES)
        self._turns = 0
        self._period = PERIODS_SECONDS[0]

    def note_key(self) -> None:
        """A key was pressed, or the terminal changed its size."""
        self._last_key = self._clock()

    def measure(self) -> None:
        """Measure the bytes since the last call; call it each second."""
        now, size = self._clock(), self._written()
        second = BandwidthSample(now - self._before, size - self._size)
        at_rest = (
            self._before - self._last_key >= ANSWER_SECONDS and second.seconds < MAX_SAMPLE_SECONDS
        )
        self._before, self._size = now, size
        self._turns += 1
        self._samples.append(second)
        if at_rest:
            self._idle_samples.append(second)
        if self._is_operating():
            self._idle_samples.clear()  # always painted at 1 Hz
        elif len(self._idle_samples) == IDLE_SAMPLES:
            self._adjust_period()

    def _adjust_period(self) -> None:
        period = choose_period(self._period, sample_rate(self._idle_samples), self._budget)
        if period != self._period:
            self._period = period
            self._idle_samples.clear()  # measured at another period

    @property
    def period(self) -> float:
        """Seconds between two repaints without a key."""
        return PERIODS_SECONDS[0] if self._is_operating() else self._period

    @property
    def is_answering(self) -> bool:
        """True while the operator may still be reading the answer to a key."""
        return self._clock() - self._last_key < ANSWER_SECONDS

    @property
    def skips_repaint(self) -> bool:
        """True if this second passes without a repaint, unless a key asks for one."""
        return self._turns % round(self.period / SAMPLE_SECONDS) != 0

    def describe_rate(self) -> str:
        """Current rate and, if longer than usual, the period: `0.7kB/s each 5s`."""
        slow = f" each {self.period:.0f}s" if self.period > PERIODS_SECONDS[0] else ""
        return f"{_format_rate(sample_rate(self._samples))}{slow}"


def sample_rate(seconds: deque[BandwidthSample]) -> float:
    """Bytes per second; 0 before the first measurement."""
    return sum(s.size for s in seconds) / (sum(s.seconds for s in seconds) or 1.0)


def _format_rate(rate: float) -> str:
    return f"{rate / 1000:.0f}kB/s" if rate >= 9950 else f"{rate / 1000:.1f}kB/s"
