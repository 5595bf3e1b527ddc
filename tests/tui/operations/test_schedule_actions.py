"""The line in which an operator types what an edit of a schedule changes."""

from __future__ import annotations

import pytest

from tests.tables import each
from tui.operations.schedule_actions import parse_edit


@each(("text", "changes"), [
    ("pattern=0 9 * * *", {"pattern": "0 9 * * *"}),
    (" every=1h30m , limit=none", {"every": "1h30m", "limit": "none"}),
    ("pattern=0 1,13 * * 1,2, tz=UTC", {"pattern": "0 1,13 * * 1,2", "tz": "UTC"}),
    ("end=2027-01-01 06:00Z", {"end": "2027-01-01 06:00Z"}),
])  # fmt: skip
def test_changes_are_typed_in_one_line(text: str, changes: dict[str, str]) -> None:
    """A comma of a pattern is none between two changes."""
    assert parse_edit(text) == changes


@each("text", ["", "0 9 * * *", "pattern", "odd=1", "x, every=1h", "every=1h, a=2"])
def test_another_line_is_refused(text: str) -> None:
    """The names that are expected are named."""
    with pytest.raises(ValueError, match="NAME one of pattern, every, tz, limit, end"):
        parse_edit(text)
