"""What is said of a place that does not exist."""

from __future__ import annotations

import pytest

from engine.formats.known_formats import FORMATS, describe_missing


def test_a_format_that_no_command_makes_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of one that has such a command is offered to be made."""
    assert describe_missing("/x/q.db").endswith("(spooldeck zgb init /x/q.db makes it)")
    monkeypatch.setattr(FORMATS["zgb"], "init_command", "")
    assert describe_missing("/x/q.db") == "/x/q.db: no such file"
