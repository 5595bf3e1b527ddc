"""An agenda: what is due when, as a heap (heapq) of (time, key) with replace and cancel."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K", bound=tuple[object, ...] | int | str)

_MIN_STALE = 64
"""Below so many stale entries the heap is not built again."""


class Agenda(Generic[K]):
    """One time for each key, in seconds. A key is set, replaced or cancelled in O(log n).

    A replaced entry stays in the heap until it comes to the top, or until half the heap is stale.
    Keys of the same time come in their own order.
    """

    def __init__(self) -> None:
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, K]] = []

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: K, due: float) -> None:
        """Let a key be due at a time, instead of its earlier one."""
        if self._due.get(key) == due:
            return
        self._due[key] = due
        heapq.heappush(self._heap, (due, key))
        if len(self._heap) > 2 * len(self._due) + _MIN_STALE:
            self._heap = [(at, key) for key, at in self._due.items()]
            heapq.heapify(self._heap)

    def cancel(self, key: K) -> None:
        """Remove a key, if it is there."""
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """The earliest time; None if there is none."""
        heap, due = self._heap, self._due
        while heap and due.get(heap[0][1]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def pop_due(self, now: float) -> Iterator[K]:
        """Remove and yield the keys whose time has come, the earliest first."""
        heap, due = self._heap, self._due
        while heap and heap[0][0] <= now:
            at, key = heapq.heappop(heap)
            if due.get(key) == at:
                del due[key]
                yield key
                heap = self._heap  # the caller may have made it be built again
