"""The limits of one answer of a peer: bytes, lines, and one deadline for all of it.

A timeout of a socket bounds each recv(2): a peer that sends a byte now and then, or never ends its
answer, would keep us for ever or take all memory."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable


class AnswerTooLong(OSError):
    """The answer has more bytes or lines than any true one."""


class AnswerLimit:
    """What is left of one answer. Its time begins with the first wait for it."""

    def __init__(
        self,
        seconds: float,
        max_bytes: int,
        max_lines: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`seconds` for the whole answer; each line costs memory beyond its bytes."""
        self._clock = clock
        self._seconds, self._max_bytes, self._max_lines = seconds, max_bytes, max_lines
        self._bytes = self._lines = 0
        self._ends_at: float | None = None

    def arm(self, sock: socket.socket) -> None:
        """Set the timeout of a socket to the time left. Raises `TimeoutError` if none is."""
        now = self._clock()
        if self._ends_at is None:
            self._ends_at = now + self._seconds
        if now >= self._ends_at:
            raise TimeoutError(f"no whole answer within {self._seconds:g} s")
        sock.settimeout(self._ends_at - now)

    def begin_next(self) -> None:
        """Count the next answer of several requests from zero; the time goes on."""
        self._bytes = self._lines = 0

    def count(self, data: bytes | memoryview) -> None:
        """Count bytes that were received. Raises `AnswerTooLong`: they are too many."""
        self._bytes += len(data)
        self._lines += bytes(data).count(b"\n")
        if self._bytes > self._max_bytes:
            raise AnswerTooLong(f"an answer of more than {self._max_bytes >> 10:,} KiB")
        if self._lines > self._max_lines:
            raise AnswerTooLong(f"an answer of more than {self._max_lines:,} lines")
