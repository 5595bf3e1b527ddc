"""Choose the next candidate in order, skipping kinds that are not wanted now.

A kind may be unwanted for a moment (one of it is running, no token, no handler). Its candidates
keep their places, and skipping many costs the same as skipping one.
"""

from collections import deque
from collections.abc import Iterable

from engine.store import ClaimFilter


class PendingLine:
    """Candidates in one queue for each kind; len() is the number left."""

    def __init__(self, candidates: Iterable[tuple[str, int]]) -> None:
        """`candidates` are names and inodes, in order."""
        self._kinds: dict[str, deque[tuple[int, tuple[str, int]]]] = {}
        for numbered in enumerate(candidates):
            self._kinds.setdefault(kind_of(numbered[1][0]), deque()).append(numbered)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def next(self, wants: ClaimFilter) -> tuple[str, int] | None:
        """Remove and return the first candidate of a wanted kind; None if missing."""
        first: deque[tuple[int, tuple[str, int]]] | None = None
        for kind, queue in self._kinds.items():
            if queue and (first is None or queue[0] < first[0]) and wants(kind, ""):
                first = queue
        return None if first is None else first.popleft()[1]


def kind_of(name: str) -> str:
    """Return the kind in a file name `<stamp>-<kind>-<token>.task`; the file's content decides."""
    return name.partition("-")[2].rpartition("-")[0]
