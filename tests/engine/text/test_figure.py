"""A number is shown with what is not known of it."""

from __future__ import annotations

import pytest

from engine.text.figure import Figure

NOW = 1_795_167_728.0


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(1204), "1,204"),
        (Figure(0), "0"),
        (Figure(None), "?"),
        (Figure(1204, is_exact=False), "1,204+"),
        (Figure(0, is_exact=False), "?"),
        (Figure(7, as_of=NOW - 5), "7"),
        (Figure(7, as_of=NOW - 200), "7 (3m old)"),
        (Figure(7, is_exact=False, as_of=NOW - 60), "7+ (1m old)"),
    ],
)
def test_a_figure_shows_its_bound_and_its_age(figure: Figure, text: str) -> None:
    """A lower bound has `+`, an old number its age; 0 so far is not known to be none."""
    assert figure.text(NOW) == text
