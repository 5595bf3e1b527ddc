"""Finding an Exim and asking its settings, without one."""

from __future__ import annotations

import pytest

from engine.formats.exim import programs


@pytest.mark.parametrize(
    ("line", "is_roots"),
    [
        (b"0 644", True),
        (b"0 664", False),
        (b"0 602", False),
        (b"1000 644", False),
        (b"Welcome back", None),
        (b"0 xyz", None),
        (b"Welcome", None),
        (b"\xff \xfe", None),
        (b"", None),
    ],
)
def test_only_a_line_of_stat_says_who_may_write(line: bytes, is_roots: bool | None) -> None:
    """What a shell prints at login is no answer, and no failure."""
    assert programs._is_roots_alone(line) is is_roots
