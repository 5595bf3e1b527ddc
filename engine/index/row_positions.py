"""Find the row at a position of a sorted list, and the position of a name, without counting rows.

The names of a list are grouped in blocks of some hundred: the first name of each block, and its
size. The row at a position is found by summing sizes and skipping less than one block; an insert or
delete changes one number. The index stores the blocks beside its rows, in the same transactions.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

BLOCK_ROWS = 512
"""Rows of a block after a split; it is split again at twice as many.

A window then skips at most 1,023 entries of a covering index (50 us), and a list of a million rows
has at most 2,000 blocks to sum (1 ms).
"""

Split = Callable[[str, int], tuple[str, int] | None]
"""Takes a block's first name and a number of rows; returns the name so many rows later, and the
number of rows before it in the block; None if no name there can begin a block."""


class Block(NamedTuple):
    """Consecutive names: the first one, and their number."""

    first: str
    size: int


class RowPositions:
    """The blocks of one list; the first block begins at the empty name."""

    def __init__(self, total: int = 0) -> None:
        """`total` rows exist; the next `take_changes` splits them."""
        self._firsts, self._sizes = [""], [total]
        self._touched = {""}
        self.total = total

    def add(self, name: str, count: int) -> None:
        """Add `count` rows with this name; a negative number removes rows."""
        self._add(bisect_right(self._firsts, name) - 1, count)

    def add_sorted(self, names: Sequence[str]) -> None:
        """Add a row for each of these names, which are sorted."""
        start = 0
        while start < len(names):
            at = bisect_right(self._firsts, names[start]) - 1
            is_last = at + 1 == len(self._firsts)
            end = len(names) if is_last else bisect_left(names, self._firsts[at + 1], start)
            self._add(at, end - start)
            start = end

    def _add(self, at: int, count: int) -> None:
        self._sizes[at] += count
        self._touched.add(self._firsts[at])
        self.total += count

    def take_changes(self, split: Split) -> Iterator[Block]:
        """Yield the blocks to store: those that changed since the last call, large ones split.

        A block of size 0 is to be deleted.
        """
        touched, self._touched = self._touched, set()
        for first in touched:
            at = bisect_right(self._firsts, first) - 1
            while self._sizes[at] >= 2 * BLOCK_ROWS and (
                cut := split(self._firsts[at], BLOCK_ROWS)
            ):
                name, before = cut
                self._firsts.insert(at + 1, name)
                self._sizes.insert(at + 1, self._sizes[at] - before)
                self._sizes[at] = before
                yield Block(self._firsts[at], before)
                at += 1
            yield Block(self._firsts[at], self._sizes[at])
            if not self._sizes[at] and at:
                del self._firsts[at], self._sizes[at]
