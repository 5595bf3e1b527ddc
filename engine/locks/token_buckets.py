"""Rate limits shared by all processes: token buckets in a file, spent before a task starts."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf

from engine import policy
from engine.model import LockEvidence, Verdict
from engine.policy import UNITS_PER_TOKEN, Bucket, Rate
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.values import NamedTuple

ALL_KINDS = ""
"""Name of the bucket that applies to all kinds."""

_MAX_BYTES = 1 << 20
"""Bytes of the file that are read; a bucket's line has about 40."""


class BucketState(NamedTuple):
    """The present content of one bucket."""

    name: str
    """The kind to which it applies; `ALL_KINDS` for all."""
    tokens: int
    burst: int
    next: float | None
    """When the next token comes, epoch seconds UTC; None if it is full or none will come."""
    per_hour: int | None = None
    """Tokens per hour; None if unknown."""
    paused: bool = False
    """True if no tokens are spent until an operator resumes the queue."""


def is_queue_stopped(lock: LockEvidence | None, buckets: Sequence[BucketState] | str) -> bool:
    """True if lock or buckets show that no task can leave: stuck or stale, or paused. `buckets`
    may be the reason why they are unknown."""
    is_blocked = lock is not None and lock.verdict in (Verdict.STUCK, Verdict.STALE)
    return is_blocked or (not isinstance(buckets, str) and any(one.paused for one in buckets))


def next_token_at(buckets: Sequence[BucketState], kind: str) -> float:
    """Epoch seconds UTC when all buckets of a kind hold a token: 0.0 for now, infinite for
    never."""
    empty = [each for each in buckets if each.name in (ALL_KINDS, kind) and each.tokens <= 0]
    return max((inf if each.next is None else each.next for each in empty), default=0.0)


def keep_runnable(
    tasks: Mapping[str, int], kind: str, buckets: Sequence[BucketState] | str
) -> Mapping[str, int]:
    """Of the tasks that are older than one of `kind` (numbers by kind), keep those that can run
    first: workers skip the ones of another kind that has no token."""
    own = (each for each in buckets if isinstance(each, BucketState) and each.name != ALL_KINDS)
    held = {each.name: each.tokens for each in own}
    return {name: n if name == kind else min(n, held.get(name, n)) for name, n in tasks.items()}


def count_with_tokens(buckets: Sequence[BucketState], tasks: Mapping[str, int]) -> int:
    """How many of some tasks (numbers by kind) wait for no token of their kind."""
    tokens = {each.name: each.tokens for each in buckets}
    return sum(min(number, tokens.get(kind, number)) for kind, number in tasks.items())


class TokenBuckets:
    """The token buckets of one queue: one for all tasks together, one per rate-limited kind.

    The file has a line `NAME UNITS STAMP` for each: 1/3600 tokens, and the epoch second of the last
    refill. Its flock guards it. It is not fsynced: a power cut may bring back some tokens. A new
    bucket, or one with a damaged line, holds one token, so it causes neither a wait nor a burst.

    Raises, everywhere: OSError, if the file exists and cannot be read, or cannot be written: then
    no task may start."""

    def __init__(
        self, path: str, rates: Mapping[str, Rate], clock: Callable[[], float], root: str = ""
    ) -> None:
        """`root`: the data folder below which no symbolic link is followed."""
        if any(c.isspace() for name in rates for c in name):
            raise ValueError(f"names of buckets hold no white space: {', '.join(rates)}")
        self._folder, self._name = os.path.split(path)
        self._root = root
        self._rates = rates
        self._clock = clock

    def is_limited(self, kind: str) -> bool:
        """True if a task of this kind needs a token."""
        return bool(self._names(kind))

    def ready(self, kind: str) -> bool:
        """True if each bucket of this kind holds a token; takes none."""
        names = self._names(kind)
        lines = self._read_unlocked(names)
        now = self._clock()
        if _is_clock_behind(lines, now):
            # Unchanged, the file would refill nothing until the clock reaches its stamps again.
            with self._locked() as fd:
                lines = _parse(os.pread(fd, _MAX_BYTES, 0))
                now = self._clock()
                _write(fd, lines | self._refilled(names, lines, now))
        return all(bucket.tokens > 0 for bucket in self._refilled(names, lines, now).values())

    def spend(self, kind: str) -> bool:
        """Take a token from each bucket of this kind; False, and none taken, if one is empty."""
        names = self._names(kind)
        if not names:
            return True
        with self._locked() as fd:
            lines = _parse(os.pread(fd, _MAX_BYTES, 0))
            now = self._clock()
            refilled = self._refilled(names, lines, now)
            spent = {name: policy.spend_tokens(bucket) for name, bucket in refilled.items()}
            taken = {name: bucket for name, bucket in spent.items() if bucket is not None}
            if len(taken) == len(names):
                _write(fd, lines | taken)
                return True
            if _is_clock_behind(lines, now):
                _write(fd, lines | refilled)
            return False

    def token_at(self, kind: str) -> float:
        """Epoch seconds when each bucket of this kind will hold a token, if no token is spent."""
        names = self._names(kind)
        buckets = self._refilled(names, self._read_unlocked(names), self._clock())
        moments = (
            policy.next_token_time(bucket, self._rates[name]) for name, bucket in buckets.items()
        )
        return max(moments, default=0.0)

    def read_states(self) -> tuple[BucketState, ...]:
        """The content of each bucket, in the order of the rates; takes no token."""
        names = list(self._rates)
        buckets = self._refilled(names, self._read_unlocked(names), self._clock())
        return tuple(
            _bucket_state(name, bucket, self._rates[name]) for name, bucket in buckets.items()
        )

    def _names(self, kind: str) -> list[str]:
        return [name for name in dict.fromkeys((ALL_KINDS, kind)) if name in self._rates]

    def _refilled(
        self, names: list[str], lines: Mapping[str, Bucket], now: float
    ) -> dict[str, Bucket]:
        new = Bucket(UNITS_PER_TOKEN, int(now))
        return {n: policy.refill_bucket(lines.get(n, new), self._rates[n], now) for n in names}

    def _read_unlocked(self, names: list[str]) -> dict[str, Bucket]:
        """Read the lines of these buckets without the flock; `spend` reads again with it."""
        if not names:
            return {}
        try:
            with (
                self._open_folder() as folder_fd,
                closing_fd(files.open_plain(self._name, folder_fd)) as fd,
            ):
                lines = _parse(os.pread(fd, _MAX_BYTES, 0))
        except FileNotFoundError:
            return {}
        return {name: lines[name] for name in names if name in lines}

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file, creating it if needed, take its flock, and check that it was not
        replaced."""
        while True:
            with (
                self._open_folder() as folder_fd,
                closing_fd(files.open_shared(self._name, folder_fd, os.O_RDWR)) as fd,
                files.Flock(fd),
            ):
                if files.is_named(self._name, os.fstat(fd), folder_fd):
                    yield fd
                    return

    def _open_folder(self) -> AbstractContextManager[int]:
        return closing_fd(files.open_dir_path(self._folder or ".", self._root))


def _bucket_state(name: str, bucket: Bucket, rate: Rate) -> BucketState:
    full = bucket.tokens >= rate.burst or rate.per_hour <= 0
    # Ignore whole tokens, so that `next_token_time` computes when one more comes.
    more = policy.next_token_time(Bucket(bucket.units % UNITS_PER_TOKEN, bucket.stamp), rate)
    return BucketState(name, bucket.tokens, rate.burst, None if full else more, rate.per_hour)


def _is_clock_behind(lines: Mapping[str, Bucket], now: float) -> bool:
    return any(bucket.stamp > now for bucket in lines.values())


def _parse(data: bytes) -> dict[str, Bucket]:
    """Parse the valid lines; of two lines for one bucket the first counts."""
    buckets: dict[str, Bucket] = {}
    for line in data.decode("utf-8", "replace").split("\n"):
        parts = line.split(" ")
        if len(parts) == 3 and parts[0] not in buckets and all(map(_is_number, parts[1:])):
            buckets[parts[0]] = Bucket(int(parts[1]), int(parts[2]))
    return buckets


def _is_number(text: str) -> bool:
    return text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20


def _write(fd: int, buckets: Mapping[str, Bucket]) -> None:
    lines = [f"{name} {bucket.units} {bucket.stamp}\n" for name, bucket in buckets.items()]
    data = "".join(lines).encode()
    os.lseek(fd, 0, os.SEEK_SET)
    files.write_all(fd, data)
    files.ftruncate(fd, len(data))


def describe_bucket(bucket: BucketState) -> str:
    """The tokens of a rate limit and its rate: `0 of 5 tokens, 720/h`."""
    if bucket.paused:
        return "PAUSED"
    rate = "" if bucket.per_hour is None else f", {bucket.per_hour:,}/h"
    return f"{bucket.tokens:,} of {bucket.burst:,} tokens{rate}"
