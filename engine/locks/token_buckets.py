"""Token buckets that all processes share: spent in a file before anything is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import inf
from typing import NamedTuple

from engine import policy
from engine.policy import HOUR, Bucket, Rate
from engine.system import files

WHOLE = ""
"""The name of the bucket that every kind draws on."""

_LIMIT = 1 << 20
"""Bytes of the file that are read; a bucket's line takes some 40."""


class Left(NamedTuple):
    """What one bucket holds now."""

    name: str
    """The kind that draws on it; `WHOLE` for all."""
    tokens: int
    burst: int
    """How many it holds at most."""
    next: float | None
    """When one more comes, epoch seconds UTC; None when it is full, or none ever comes."""
    per_hour: int | None = None
    """How many come an hour; None where nobody said."""
    paused: bool = False
    """Whether none is spent until somebody has the queue go on."""


def next_of(buckets: Sequence[Left], kind: str) -> float:
    """When each of these buckets that a kind draws on holds a token, epoch seconds UTC: 0.0 for
    now, infinite for never."""
    empty = [each for each in buckets if each.name in (WHOLE, kind) and each.tokens <= 0]
    return max((inf if each.next is None else each.next for each in empty), default=0.0)


class Buckets:
    """The buckets of one queue: one for all attempts together, one for each kind that has a rate.

    The file holds a line `NAME UNITS STAMP` for each: 1/3600 tokens, and the epoch second of the
    last refill; its flock guards it. It is not synced: a power cut may bring back some tokens. A
    bucket that is new, or whose line is damaged, holds one token: no waiting, and no burst.
    """

    def __init__(
        self, path: str, rates: Mapping[str, Rate], clock: Callable[[], float], root: str = ""
    ) -> None:
        """`root` is the data folder below which no symbolic link is followed."""
        if any(c.isspace() for name in rates for c in name):
            raise ValueError(f"names of buckets hold no white space: {', '.join(rates)}")
        self._folder, self._name = os.path.split(path)
        self._root = root
        self._rates = rates
        self._clock = clock

    def ready(self, kind: str) -> bool:
        """Whether each bucket that this kind draws on holds a token; none is taken.

        Raises:
            OSError: the file is there and cannot be read.
        """
        names = self._names(kind)
        lines = self._look(names)
        now = self._clock()
        if _turned_back(lines, now):
            # Left as it is, the file would refill nothing until the clock has caught up again.
            with self._locked() as fd:
                lines = _parse(os.pread(fd, _LIMIT, 0))
                now = self._clock()
                _write(fd, lines | self._refilled(names, lines, now))
        return all(bucket.tokens > 0 for bucket in self._refilled(names, lines, now).values())

    def spend(self, kind: str) -> bool:
        """Take a token from each bucket that this kind draws on; False, none taken, if one lacks.

        Raises:
            OSError: it cannot be written down, so nothing may be done.
        """
        names = self._names(kind)
        if not names:
            return True
        with self._locked() as fd:
            lines = _parse(os.pread(fd, _LIMIT, 0))
            now = self._clock()
            refilled = self._refilled(names, lines, now)
            left = {name: policy.spend(bucket) for name, bucket in refilled.items()}
            taken = {name: bucket for name, bucket in left.items() if bucket is not None}
            if len(taken) == len(names):
                _write(fd, lines | taken)
                return True
            if _turned_back(lines, now):
                _write(fd, lines | refilled)
            return False

    def token_at(self, kind: str) -> float:
        """When (epoch seconds) each bucket that this kind draws on holds a token, if nobody spends.

        Raises:
            OSError: the file is there and cannot be read.
        """
        names = self._names(kind)
        buckets = self._refilled(names, self._look(names), self._clock())
        moments = (policy.next_token(bucket, self._rates[name]) for name, bucket in buckets.items())
        return max(moments, default=0.0)

    def left(self) -> tuple[Left, ...]:
        """What each bucket holds now, in the order of the rates; none is taken.

        Raises:
            OSError: the file is there and cannot be read.
        """
        names = list(self._rates)
        buckets = self._refilled(names, self._look(names), self._clock())
        return tuple(_left(name, bucket, self._rates[name]) for name, bucket in buckets.items())

    def _names(self, kind: str) -> list[str]:
        return [name for name in dict.fromkeys((WHOLE, kind)) if name in self._rates]

    def _refilled(
        self, names: list[str], lines: Mapping[str, Bucket], now: float
    ) -> dict[str, Bucket]:
        new = Bucket(HOUR, int(now))
        return {n: policy.refill(lines.get(n, new), self._rates[n], now) for n in names}

    def _look(self, names: list[str]) -> dict[str, Bucket]:
        """The lines of these buckets, without waiting for anybody: `spend` asks again."""
        if not names:
            return {}
        try:
            with self._here() as here, _closing(files.open_plain(self._name, here)) as fd:
                lines = _parse(os.pread(fd, _LIMIT, 0))
        except FileNotFoundError:
            return {}
        return {name: lines[name] for name in names if name in lines}

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file, made if need be, with its flock; not one that was removed while we waited."""
        while True:
            with (
                self._here() as here,
                _closing(files.open_shared(self._name, here, os.O_RDWR)) as fd,
                files.Flock(fd),
            ):
                if _still_there(self._name, here, fd):
                    yield fd
                    return

    def _here(self) -> AbstractContextManager[int]:
        return _closing(files.reach(self._folder or ".", self._root))


def _left(name: str, bucket: Bucket, rate: Rate) -> Left:
    full = bucket.tokens >= rate.burst or rate.per_hour <= 0
    # What is whole already is left out of account: then the next one is what it waits for.
    more = policy.next_token(Bucket(bucket.units % HOUR, bucket.stamp), rate)
    return Left(name, bucket.tokens, rate.burst, None if full else more, rate.per_hour)


@contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _still_there(name: str, dir_fd: int, fd: int) -> bool:
    try:
        there = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(fd), there)


def _turned_back(lines: Mapping[str, Bucket], now: float) -> bool:
    """Whether the clock is behind the last refill."""
    return any(bucket.stamp > now for bucket in lines.values())


def _parse(data: bytes) -> dict[str, Bucket]:
    """The lines that are whole; of two for one bucket the first."""
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
