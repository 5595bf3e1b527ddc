"""Find the row at a position of a sorted list, and the position of a name, without counting rows.

The names of a list are grouped in blocks of some hundred: the first name of each block, and its
size. The row at a position is found by summing sizes and skipping less than one block; an insert or
delete changes one number. The index stores the blocks beside its rows, in the same transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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

    def __init__(self, fences: Sequence[tuple[str, int]] = ()) -> None:
        """`fences` describe an existing list: some names, each with the number of rows before it.

        The last entry holds no name, but the total number of rows.
        """
        befores = [0, *(before for _, before in fences)]
        self._firsts = ["", *(name for name, _ in fences[:-1])]
        self._sizes = [after - before for before, after in pairwise(befores)] or [0]
        self._touched = set(self._firsts)
        self.total = befores[-1]

    def add(self, name: str, count: int) -> None:
        """Add `count` rows with this name; a negative number removes rows."""
        at = bisect_right(self._firsts, name) - 1
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
