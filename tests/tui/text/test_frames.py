"""The words in the frames of panes."""

from __future__ import annotations

from tests.tables import each
from tui.text.frames import more_below


@each(("lines", "text"), [(0, ""), (1, "1 more: PgDn"), (1600, "1,600 more: PgDn")])
def test_lines_below_a_pane_have_their_number_and_key(lines: int, text: str) -> None:
    """A pane that is not shown whole has the number of its other lines, and the key to them."""
    assert "".join(run for run, _ in more_below(lines)) == text
