"""Bytes written to the terminal, and the seconds from one repaint without a key to the next.

On a local terminal the screen repaints each second. Over SSH there is a budget in bytes a second:
while no key is pressed and the budget is exceeded, the screen repaints every 2 s, then every 5 s,
and the header says so. Answers to keys are never delayed, nor is a running operation.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

SSH_BUDGET = 8000.0
"""Bytes a second over SSH, while no key is pressed."""
SSH_VARIABLES = ("SSH_CONNECTION", "SSH_TTY")
"""Environment variables that sshd sets; one of them is enough."""
PACES = (1.0, 2.0, 5.0)
"""Seconds between two paintings that nobody asked for."""
ROOM = 0.8
"""Of the budget: what a faster pace would need, at most, before it is taken up again."""
RESTED = 10
"""Seconds at rest from which a pace is judged."""
ANSWERED = 2.0
"""Seconds after a key for which what is painted may still be its answer."""
LATELY = 5
"""Seconds that the rate is told of."""
TURN = 1.0
"""Seconds from one look to the next."""
LAPSE = 3.0
"""Seconds without a look after which the console had stopped: what was painted then is no rest."""


def budget_for(environ: Mapping[str, str], asked: float = 0.0) -> float:
    """Bytes a second that the terminal may get: as `asked`, else unlimited unless over SSH."""
    over_ssh = any(environ.get(name) for name in SSH_VARIABLES)
    return asked or (SSH_BUDGET if over_ssh else math.inf)


def pace(period: float, rate: float, budget: float) -> float:
    """Seconds between two repaints, after `rate` bytes a second at rest with `period`."""
    at = PACES.index(period)
    if rate > budget:
        at = min(at + 1, len(PACES) - 1)
    elif at and rate * period / PACES[at - 1] < ROOM * budget:
        at -= 1
    return PACES[at]


class Second(NamedTuple):
    """What was written from one look to the next."""

    seconds: float
    size: int


class BandwidthBudget:
    """Measures what is written, once a second, and sets the pace by it."""

    def __init__(
        self,
        written: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
        budget: float = math.inf,
        is_operating: Callable[[], bool] = lambda: False,
    ) -> None:
        """`written` counts bytes since the beginning; `clock` is monotonic, in seconds.

        `budget` is in bytes a second. While `is_operating`, the screen repaints each second.
        """
        self._written, self._clock = written, clock
        self._budget, self._is_operating = budget, is_operating
        self._before, self._size = clock(), written()
        self._hand = self._before  # the first screen is an answer, too
        self._lately: deque[Second] = deque(maxlen=LATELY)
        self._rest: deque[Second] = deque(maxlen=RESTED)
        self._turns = 0
        self._period = PACES[0]

    def hand(self) -> None:
        """A key was pressed, or the terminal changed its size."""
        self._hand = self._clock()

    def look(self) -> None:
        """Take note of what was written since the last look; to be called each second."""
        now, size = self._clock(), self._written()
        second = Second(now - self._before, size - self._size)
        at_rest = self._before - self._hand >= ANSWERED and second.seconds < LAPSE
        self._before, self._size = now, size
        self._turns += 1
        self._lately.append(second)
        if at_rest:
            self._rest.append(second)
        if self._is_operating():
            self._rest.clear()  # written at 1 Hz whatever the pace is
        elif len(self._rest) == RESTED:
            self._judge()

    def _judge(self) -> None:
        period = pace(self._period, rate(self._rest), self._budget)
        if period != self._period:
            self._period = period
            self._rest.clear()  # they were written at another pace

    @property
    def period(self) -> float:
        """Seconds between two repaints without a key."""
        return PACES[0] if self._is_operating() else self._period

    @property
    def answering(self) -> bool:
        """Whether what is shown may still be the answer to a key, just being read."""
        return self._clock() - self._hand < ANSWERED

    @property
    def still(self) -> bool:
        """Whether this second passes without a painting that nobody asked for."""
        return self._turns % round(self.period / TURN) != 0

    def words(self) -> str:
        """The rate of the last seconds and, when it is not the usual one, the pace: `0.7kB/s`."""
        slow = f" each {self.period:.0f}s" if self.period > PACES[0] else ""
        return f"{_kilo(rate(self._lately))}{slow}"


def rate(seconds: deque[Second]) -> float:
    """Bytes a second; 0 before the first look."""
    return sum(s.size for s in seconds) / (sum(s.seconds for s in seconds) or 1.0)


def _kilo(rate: float) -> str:
    return f"{rate / 1000:.0f}kB/s" if rate >= 9950 else f"{rate / 1000:.1f}kB/s"
