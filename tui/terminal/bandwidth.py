"""Count bytes written to the terminal, and set the seconds between two repaints without a key.

On a local terminal and on a fast link the screen repaints each second. A slow link is SSH on which
output had to wait. It has a budget in bytes per second, at most half of what the terminal takes
while output waits: while no key is pressed and the budget is exceeded, the screen repaints every
2 s, then every 5 s, then every 10 s, and the header shows it. Answers to keys are never delayed,
nor is a running operation.

Side panes go first: on a slow link each is repainted only every 5 s, one after the other, and none
over the budget or for 2 s after a key, so that the answer has nothing to wait for."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping

from engine.values import NamedTuple

SLOW_LINK_BUDGET = 8000.0
"""Bytes per second over a slow link while no key is pressed."""
SLOW_WAIT_SECONDS = 0.2
"""A link is slow if output waits so long before the terminal takes it."""
SLOW_LINK_SECONDS = 60.0
"""Seconds for which a link counts as slow after output had to wait."""
LINK_SHARE = 0.5
"""Share of what a slow link takes that repaints without a key may use: the rest is for answers."""
LINK_SAMPLES, MAX_LINK_SAMPLES = 4, 10
"""Seconds to measure before the speed of the link is known, and at most so many of which it is the
mean: those with a wait, and the one before, whose frame filled the buffers of kernel and sshd."""
MIN_LINK_RATE, STOPPED_SECONDS = 500.0, 30.0
"""Bytes per second of the slowest link, and seconds without any that are a stop: a shorter one
looks like a slow link."""
SSH_VARIABLES = ("SSH_CONNECTION", "SSH_TTY")
"""Environment variables that sshd sets; one of them is enough."""
PERIODS_SECONDS = (1.0, 2.0, 5.0, 10.0)
PANE_FACTOR = 5.0
"""On a slow link a side pane is repainted once in so many periods."""
FASTER_SHARE = 0.8
"""A faster period is used again if it would need at most this share of the budget."""
IDLE_SAMPLES = 10
ANSWER_SECONDS = 2.0
"""Seconds after a key in which output may still belong to its answer."""
RATE_SAMPLES = 5
"""Seconds over which the shown rate is averaged."""
SAMPLE_SECONDS = 1.0
MAX_SAMPLE_SECONDS = 3.0
"""A longer gap between two measurements means that the console was stopped: not an idle second."""


class LinkLimit(NamedTuple):
    """The budget of a link to the terminal, in bytes per second, and whether it always applies."""

    budget: float = math.inf
    only_if_slow: bool = False


def limit_for(environ: Mapping[str, str], asked: float = 0.0) -> LinkLimit:
    """The limit `asked` for, else one for a slow link over SSH, and none for a local terminal."""
    if asked:
        return LinkLimit(asked)
    over_ssh = any(environ.get(name) for name in SSH_VARIABLES)
    return LinkLimit(SLOW_LINK_BUDGET, only_if_slow=True) if over_ssh else LinkLimit()


class OutputWait(NamedTuple):
    """Seconds for which output waited until the terminal took it."""

    now: float = 0.0
    """0 if no byte is waiting."""
    longest: float = 0.0
    """Since it was last asked for."""


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
        limit: LinkLimit = LinkLimit(),  # noqa: B008 - a constant
        is_operating: Callable[[], bool] = lambda: False,
        waited: Callable[[], OutputWait] = OutputWait,
    ) -> None:
        """`written` returns all bytes so far; `clock` is monotonic, in seconds. While
        `is_operating`, the screen repaints each second."""
        self._written, self._clock = written, clock
        self._limit, self._is_operating, self._waited = limit, is_operating, waited
        self._slow_until = -math.inf
        self._link_samples: deque[BandwidthSample] = deque(maxlen=MAX_LINK_SAMPLES)
        """What the terminal took while output waited."""
        self._is_blocked = self._has_waited = False
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
        has_rested = self._before - self._last_key >= ANSWER_SECONDS
        at_rest = has_rested and second.seconds < MAX_SAMPLE_SECONDS
        self._before, self._size = now, size
        self._turns += 1
        wait, before = self._waited(), [*self._samples][-1:]
        self._samples.append(second)
        self._is_blocked = wait.now >= SLOW_WAIT_SECONDS
        if wait.longest >= SLOW_WAIT_SECONDS:
            self._slow_until = now + SLOW_LINK_SECONDS
            self._note_wait(second, [] if self._has_waited else before)
        if wait.longest >= STOPPED_SECONDS:
            self._link_samples.clear()
        self._has_waited = wait.longest >= SLOW_WAIT_SECONDS
        if at_rest:
            self._idle_samples.append(second)
        if self._is_operating():
            self._idle_samples.clear()  # always painted at 1 Hz
        elif len(self._idle_samples) >= self._needed_samples:
            self._adjust_period()

    def _note_wait(self, second: BandwidthSample, before: list[BandwidthSample]) -> None:
        """Measure the link by a second with a wait, and by the one `before` the first wait; not by
        those for which the console was stopped."""
        seconds = (*(each for each in before if each.size), second)
        self._link_samples.extend(each for each in seconds if each.seconds < MAX_SAMPLE_SECONDS)

    @property
    def _needed_samples(self) -> int:
        """The first step is made soon: on a full link an answer waits for seconds."""
        return RATE_SAMPLES if self._period == PERIODS_SECONDS[0] else IDLE_SAMPLES

    def _adjust_period(self) -> None:
        period = choose_period(self._period, sample_rate(self._idle_samples), self._budget)
        if period != self._period:
            self._period = period
            self._idle_samples.clear()  # measured at another period

    @property
    def _budget(self) -> float:
        if not self._limit.only_if_slow:
            return self._limit.budget
        if self._clock() >= self._slow_until:
            self._link_samples.clear()
            return math.inf
        known = len(self._link_samples) >= LINK_SAMPLES
        link = max(MIN_LINK_RATE, sample_rate(self._link_samples)) if known else math.inf
        return min(self._limit.budget, LINK_SHARE * link)

    @property
    def period(self) -> float:
        """Seconds between two repaints without a key."""
        return PERIODS_SECONDS[0] if self._is_operating() else self._period

    @property
    def pane_seconds(self) -> float:
        """Seconds between two repaints of a side pane; 0 on a fast link, `inf` while the answer to
        a key is on its way, or the last seconds took more than the budget."""
        if not self._limit.only_if_slow or self._clock() >= self._slow_until:
            return 0.0
        is_over = sample_rate(self._samples) > self._budget
        waits = is_over or self.is_answering or self._is_blocked
        return math.inf if waits else PANE_FACTOR * self.period

    @property
    def is_answering(self) -> bool:
        """True while the operator may still be reading the answer to a key."""
        return self._clock() - self._last_key < ANSWER_SECONDS

    @property
    def skips_repaint(self) -> bool:
        """True if this second has no repaint, unless a key asks for one: it is between two periods,
        or a frame would wait behind earlier output."""
        return self._is_blocked or self._turns % round(self.period / SAMPLE_SECONDS) != 0

    def describe_rate(self) -> str:
        """Current rate and, if longer than usual, the period: `0.7kB/s, refresh 5s`."""
        slow = f", refresh {self.period:.0f}s" if self.period > PERIODS_SECONDS[0] else ""
        rate = sample_rate(self._samples)
        return (f"{rate / 1000:.0f}kB/s" if rate >= 9950 else f"{rate / 1000:.1f}kB/s") + slow


def sample_rate(seconds: deque[BandwidthSample]) -> float:
    """Bytes per second; 0 before the first measurement."""
    return sum(s.size for s in seconds) / (sum(s.seconds for s in seconds) or 1.0)
