"""The words in the frames of panes."""

from __future__ import annotations

from tests.tables import each
from tui.text.frames import more_below, share_lines


@each(("lines", "text"), [(0, ""), (1, "1 more: PgDn"), (1600, "1,600 more: PgDn")])
def test_lines_below_a_pane_have_their_number_and_key(lines: int, text: str) -> None:
    """A pane that is not shown whole has the number of its other lines, and the key to them."""
    assert "".join(run for run, _ in more_below(lines)) == text


def test_a_pane_takes_no_line_that_it_does_not_need() -> None:
    """One of two lines below a list leaves the third to it: no row is hidden above a blank line."""
    assert share_lines(9, {"rows": 7, "details": 2}) == {"rows": 7, "details": 2}
