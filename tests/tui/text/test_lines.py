"""Texts and lines take exactly the cells that they are given."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from engine.text.safe import safe_line
from tests.tables import each
from tui.text.lines import (
    Line,
    cells_of,
    fact_lines,
    fit_text,
    fit_text_end,
    fold_long_lines,
    fold_text,
    width_of,
)


@given(st.text())
def test_a_text_takes_the_cells_that_the_terminal_library_counts(text: str) -> None:
    """For any text, the answer without the library is that of the library."""
    assert cells_of(text) == cell_len(text)


@each("width", [-3, 0, 1])
def test_text_is_folded_at_any_width(width: int) -> None:
    """A terminal narrower than a margin gets one character a line, and the folding ends."""
    assert fold_text("ab c", width) == ["a", "b", "c"]


@each(("rows", "expected"), [
    (2, ["  none", " why  a reason t…"]),
    (3, ["  none", " why  a reason to", "      wrap a lon…"]),
    (9, ["  none", " why  a reason to", "      wrap a long", "      line"]),
])  # fmt: skip
def test_a_long_line_is_folded_where_rows_are_free(rows: int, expected: list[str]) -> None:
    """Below the beginning of its last run; without a free row, or in the last one, it is cut."""
    lines: list[Line] = [
        (("  none", "muted"),),
        ((" why  ", "muted"), ("a reason to wrap a long line", "")),
    ]
    folded = fold_long_lines(lines, 17, rows)
    assert ["".join(text for text, _ in line).rstrip() for line in folded] == expected
    assert max(map(width_of, folded)) <= 17


@each(("text", "end", "expected"), [
    ("why  empty in 30m", "  ", ["why  empty in", "     30m"]),  # a column may end in blanks
    ("why  empty in 3m", "  ", ["why  empty in 3m"]),
    ("why  /srv/volumes/of-the-mail/data", "", ["why  /srv/volumes/", "     of-the-mail/…"]),
])  # fmt: skip
def test_a_folded_text_loses_no_cell_to_blanks(text: str, end: str, expected: list[str]) -> None:
    """Blanks at the end of a line are no text, and a path that is split gets none inside."""
    line: Line = ((text[:5], "muted"), (text[5:], ""), (end, " "))
    folded = fold_long_lines([line], len(expected[0]), 2)
    assert ["".join(text for text, _ in line).rstrip() for line in folded] == expected


FOREIGN = st.text(
    st.characters(exclude_categories=["Cs"]) | st.sampled_from("\x1b\x9b\u202e\x00\n\r\t[]漢😀")
)


@given(text=FOREIGN, width=st.integers(0, 60))
def test_a_text_is_fitted_to_the_cell(text: str, width: int) -> None:
    """Any text is made exactly as wide as its column, from either end."""
    safe = safe_line(text)
    assert cell_len(fit_text(safe, width)) == width
    assert cell_len(fit_text_end(safe, width)) == width


@given(text=FOREIGN, width=st.integers(8, 60))
def test_folding_loses_no_word(text: str, width: int) -> None:
    """A text that is folded keeps all but its spaces, and no piece is too wide."""
    safe = safe_line(text)
    pieces = fold_text(safe, width)
    assert "".join(pieces).replace(" ", "") == safe.replace(" ", "")
    assert all(cell_len(piece) <= width for piece in pieces)


def test_a_long_name_of_a_fact_is_whole() -> None:
    """A name that needs more cells than usual gets them, and all values stay in one column."""
    rows = [("due", "now"), ("requeued from", "4fXk"), ("last attempt", "09:42:08Z")]
    lines = ["".join(text for text, _ in line) for line in fact_lines(rows, 80, 11)]
    assert [line.split()[-1] for line in lines] == [value for _, value in rows]
    assert len({line.index(value) for line, (_, value) in zip(lines, rows, strict=True)}) == 1
    assert all(name in line for line, (name, _) in zip(lines, rows, strict=True))
