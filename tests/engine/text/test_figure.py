"""A number is shown with what is not known of it."""

import pytest

from engine.text.figure import Figure


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        (Figure(1204), "1,204"),
        (Figure(0), "0"),
        (Figure(None), "?"),
        (Figure(1204, is_exact=False), "1,204+"),
        (Figure(0, is_exact=False), "?"),
    ],
)
def test_a_figure_shows_its_bound(figure: Figure, text: str) -> None:
    """A lower bound has `+`; 0 so far is not known to be none."""
    assert figure.text() == text
