"""What is painted of a line that changed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tui.changes import NEAR, changes
from tui.present import Line, cut

WIDTH = 60
LINES = st.lists(
    st.tuples(st.text(alphabet="ab ▶▁…字", max_size=12), st.sampled_from(["", "bad", "dim"])),
    max_size=8,
).map(tuple)


def cells(line: Line) -> list[tuple[str, str]]:
    """What each cell of a line shows; the second half of a wide character shows nothing."""
    shown = []
    for text, look in cut(line, WIDTH):
        for char in text:
            shown += [(char, look)] + [("", look)] * (cell_len(char) - 1)
    return shown


@given(old=LINES, new=LINES)
def test_what_differs_is_painted(old: Line, new: Line) -> None:
    """Painting the spans over the old line gives the new one, and they never overlap."""
    screen, wanted = cells(old), cells(new)
    spans = changes(cut(old, WIDTH), cut(new, WIDTH), WIDTH)
    for at, length in spans:
        assert at >= 0 and length > 0 and at + length <= WIDTH
        screen[at : at + length] = wanted[at : at + length]
    assert screen == wanted
    for (at, length), (following, _) in pairwise(spans):
        assert following - (at + length) >= NEAR - 1


def test_what_is_the_same_costs_nothing() -> None:
    """A line that is made of other runs but shows the same is not painted."""
    assert changes((("ab", ""), ("c", "")), (("abc", ""),), 10) == []


def test_only_the_cells_that_changed() -> None:
    """Two numbers far apart are painted by themselves, two near ones together."""
    old: Line = ((" 12    7" + " " * 30 + "9", ""),)
    new: Line = ((" 13    8" + " " * 30 + "8", ""),)
    assert changes(old, new, 60) == [(2, 6), (38, 1)]
