"""Which candidate is next: in the order given, those of an unwanted kind passed by.

A kind that is not wanted now (one of it is running, no token, no handler) may be wanted a moment
later; its candidates keep their places, and passing them by costs the same for one as for many.
"""

from collections import deque
from collections.abc import Iterable

from engine.store import Wants


class PendingLine:
    """Candidates, a queue for each kind; how many are left is its length."""

    def __init__(self, candidates: Iterable[tuple[str, int]]) -> None:
        """Takes names with their inodes, in order."""
        self._kinds: dict[str, deque[tuple[int, tuple[str, int]]]] = {}
        for numbered in enumerate(candidates):
            self._kinds.setdefault(kind_of(numbered[1][0]), deque()).append(numbered)

    def __len__(self) -> int:
        return sum(map(len, self._kinds.values()))

    def next(self, wants: Wants) -> tuple[str, int] | None:
        """The first candidate of a kind that is wanted; None when there is none."""
        first: deque[tuple[int, tuple[str, int]]] | None = None
        for kind, queue in self._kinds.items():
            if queue and (first is None or queue[0] < first[0]) and wants(kind, ""):
                first = queue
        return None if first is None else first.popleft()[1]


def kind_of(name: str) -> str:
    """The kind that a file name says: `<stamp>-<kind>-<token>.task`; the file itself decides."""
    return name.partition("-")[2].rpartition("-")[0]
