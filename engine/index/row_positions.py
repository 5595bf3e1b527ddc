"""Which place a name has among a million in order, known without counting them.

The names of a list are kept as blocks of some hundred: where each begins, and how many it holds.
So the row at any place is found by summing sizes and skipping less than a block, and one that comes
or goes changes one number. The index stores the blocks beside its rows, in the same transactions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

BLOCK = 512
"""Rows in a block that has just been split; it is split again at twice as many.

A window then skips at most 1,023 entries of a covering index (50 us), and a list of a million has
at most 2,000 blocks to sum (1 ms).
"""

Split = Callable[[str, int], tuple[str, int] | None]
"""A block's first name and a number of rows -> the name so many rows on, and how many come before
it in the block; None when no name there can begin a block."""


class Block(NamedTuple):
    """Some consecutive names: from `first` on, `size` of them."""

    first: str
    size: int


class Ranks:
    """The blocks of one list; the first begins at the empty name."""

    def __init__(self, fences: Sequence[tuple[str, int]] = ()) -> None:
        """Of a list that holds names already: some of them, with how many come before each.

        The last of these is no name, but how many there are.
        """
        befores = [0, *(before for _, before in fences)]
        self._firsts = ["", *(name for name, _ in fences[:-1])]
        self._sizes = [after - before for before, after in pairwise(befores)] or [0]
        self._touched = set(self._firsts)
        self.total = befores[-1]

    def add(self, name: str, count: int) -> None:
        """So many more rows of this name; fewer, when negative."""
        at = bisect_right(self._firsts, name) - 1
        self._sizes[at] += count
        self._touched.add(self._firsts[at])
        self.total += count

    def changes(self, split: Split) -> Iterator[Block]:
        """What to store: the blocks that changed since the last time, those too large split.

        A block with no rows is to be forgotten.
        """
        touched, self._touched = self._touched, set()
        for first in touched:
            at = bisect_right(self._firsts, first) - 1
            while self._sizes[at] >= 2 * BLOCK and (cut := split(self._firsts[at], BLOCK)):
                name, before = cut
                self._firsts.insert(at + 1, name)
                self._sizes.insert(at + 1, self._sizes[at] - before)
                self._sizes[at] = before
                yield Block(self._firsts[at], before)
                at += 1
            yield Block(self._firsts[at], self._sizes[at])
            if not self._sizes[at] and at:
                del self._firsts[at], self._sizes[at]
