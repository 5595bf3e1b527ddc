"""The tokens that all replays of a spool share, whatever rate each of them goes at."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.locks.token_buckets import Buckets
from engine.replay.scheduler import MOST
from engine.replay.settings import bucket_rate
from engine.system import files
from engine.text.safe import shown

BUCKET = "replay"
"""The name of the bucket that all replays of a spool draw on."""

RETRY = 1.0
"""Seconds after which a file that could not be read or written is tried again."""


class SharedTokens:
    """A token bucket in a file. Two that go at different rates get no more than the faster may."""

    def __init__(self, path: str, root: str, clock: Callable[[], float]) -> None:
        """`root` is the folder below which no symbolic link is followed; no path: no bucket."""
        self._path, self._root, self._clock = path, root, clock
        self._now: tuple[float, Buckets] | None = None
        self.problem = ""
        """Why no token can be had; "" when they can."""

    def left(self, rate: float | None) -> tuple[int, float]:
        """How many are there at a rate (tasks a second, None: no limit), and else when one comes
        (epoch seconds UTC)."""
        bucket = self._bucket(rate)
        if bucket is None:
            return MOST, 0.0
        try:
            os.close(files.reach(os.path.dirname(self._path), self._root, make=True))
            (left,) = bucket.left()
            at = 0.0 if left.tokens > 0 else bucket.token_at(BUCKET)
        except OSError as error:
            self._failed(error)
            return 0, self._clock() + RETRY
        self.problem = ""
        return left.tokens, at

    def pay(self, rate: float | None, amount: int) -> int:
        """Spend one for each of so many tasks; for how many there were tokens."""
        bucket = self._bucket(rate)
        if bucket is None:
            return amount
        try:
            return next((paid for paid in range(amount) if not bucket.spend(BUCKET)), amount)
        except OSError as error:
            self._failed(error)
            return 0

    def _failed(self, error: OSError) -> None:
        self.problem = f"no token can be had: {shown(self._path)}: {error.strerror}"

    def _bucket(self, rate: float | None) -> Buckets | None:
        if rate is None or not self._path:
            return None
        if self._now is None or self._now[0] != rate:
            rates = {BUCKET: bucket_rate(rate)}
            self._now = rate, Buckets(self._path, rates, self._clock, self._root)
        return self._now[1]
