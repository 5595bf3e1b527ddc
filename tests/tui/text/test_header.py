"""The line of tabs and its counts."""

from __future__ import annotations

from typing import Any

from engine.text.safe import state_name
from tests.console_operator import words
from tests.tables import each
from tui.text.header import tab_line, trail_line
from tui.text.styles import bracket_chips

FEW, SIX = ("pending", "work", "problems"), ("pending", "work", "held", "dlq", "trash", "problems")


@each(("tabs", "labels"), [
    ((["pending", "dlq"], [None, None], 1, True, 80), ["pending ?", "[DLQ ?]"]),
    ((["pending"], [1204], 0, False, 80), ["pending 1,204+"]),
    ((["pending", "held"], [5, 0], 0, True, 80, {0: "2 failed"}), ["[pending 5 (2 failed)]"]),
    ((SIX, [123456, 12, 0, 98765, 0, 7], 0, True, 60),
     ["[pending 123,456]", "DLQ 98,765", "problems 7"]),
    ((FEW, [12, 0, 2], 0, True, 60, {}, (2,)), ["[pending 12]", "work 0", "problems 2+"]),
    ((FEW, [12, 0, 0], 0, True, 60, {}, (2,)), ["[pending 12]", "work 0", "problems ?"]),
])  # fmt: skip
def test_tabs_show_counts(tabs: Any, labels: list[str]) -> None:
    """An unknown count is `?`, an unfinished one `+`; empty tabs make room for those with tasks."""
    line = words([bracket_chips(tab_line(*tabs))])
    assert all(label in line for label in labels) and "trash" not in line


@each("current", range(5))
def test_tabs_are_never_cut(current: int) -> None:
    """Where tabs do not fit, whole ones are omitted, and never the one that is shown."""
    names = ["pending", "work", "held", "dlq", "problems"]
    line = words([bracket_chips(tab_line(names, [12345] * 5, current, True, 40))])
    assert f"[{state_name(names[current])} 12,345]" in line
    assert line.count("12,345") == line.count("12")


@each(("step", "shown"), [
    ("/srv/d1/flowing (1/4)", "flowing (1/4)"), ("flowing (1/4)", "flowing (1/4)"),
    ("/srv/d1/flowing", "flowing"), ("log", "log"),
])  # fmt: skip
def test_a_narrow_trail_is_the_name_of_its_last_step(step: str, shown: str) -> None:
    """Of a path it is the last part; the number of the place is no path."""
    assert words([trail_line("mx1", "", ["overview", step], 40)]).strip() == shown
