"""Token bucket in a file, shared by all replays of a spool at any rate."""

from __future__ import annotations

import os
from collections.abc import Callable

from engine.locks.token_buckets import TokenBuckets
from engine.replay.scheduler import MAX_TASKS_PER_STEP
from engine.replay.settings import bucket_rate
from engine.system import files
from engine.text.error_text import error_text
from engine.text.safe import safe_line

BUCKET_NAME = "replay"
"""Name of the bucket that all replays of a spool share."""

RETRY_SECONDS = 1.0
"""Seconds until a file that could not be read or written is tried again."""


class SharedTokens:
    """Token bucket in a file. Two replays at different rates together get at most the faster
    rate."""

    def __init__(self, path: str, root: str, clock: Callable[[], float]) -> None:
        """`root` is the folder below which no symbolic link is followed; without a path there is no
        bucket."""
        self._path, self._root, self._clock = path, root, clock
        self._now: tuple[float, TokenBuckets] | None = None
        self.problem = ""
        """Why no token can be taken; "" if it can."""

    def available(self, rate: float | None) -> tuple[int, float]:
        """Return the number of tokens at a rate (tasks per second, None: no limit), and if there
        are none, when the next one comes (epoch seconds UTC)."""
        bucket = self._bucket(rate)
        if bucket is None:
            return MAX_TASKS_PER_STEP, 0.0
        try:
            os.close(files.open_dir_path(os.path.dirname(self._path), self._root, make=True))
            (state,) = bucket.read_states()
            at = 0.0 if state.tokens > 0 else bucket.token_at(BUCKET_NAME)
        except OSError as error:
            self._failed(error)
            return 0, self._clock() + RETRY_SECONDS
        self.problem = ""
        return state.tokens, at

    def spend(self, rate: float | None, amount: int) -> int:
        """Spend up to `amount` tokens; return how many were spent."""
        bucket = self._bucket(rate)
        if bucket is None:
            return amount
        try:
            return next((paid for paid in range(amount) if not bucket.spend(BUCKET_NAME)), amount)
        except OSError as error:
            self._failed(error)
            return 0

    def _failed(self, error: OSError) -> None:
        self.problem = f"cannot take a token: {safe_line(self._path)}: {error_text(error)}"

    def _bucket(self, rate: float | None) -> TokenBuckets | None:
        if rate is None or not self._path:
            return None
        if self._now is None or self._now[0] != rate:
            rates = {BUCKET_NAME: bucket_rate(rate)}
            self._now = rate, TokenBuckets(self._path, rates, self._clock, self._root)
        return self._now[1]
