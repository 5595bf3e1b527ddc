"""The parts of the list of locks and its keys, without an app: which place a key acts on."""

from __future__ import annotations

import pytest

from tests.console_places import Clock, a_memory, a_place, a_stuck_lock
from tests.tui.asked_screen import AskedRowsScreen
from tui.locks.list_screen import ROWS, LocksParts
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, hints_of, press
from tui.screens.rows_parts import ROW_HAS_LEFT, RowCursor
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys


def locks(screen: AskedRowsScreen, *names: str, read_only: bool = False) -> LocksParts:
    """The locks of places in memory; the first one gets the cursor."""
    clock = Clock()
    context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=len(names))
    places = [a_place(a_memory([]), name=name, lock=a_stuck_lock) for name in names]
    none = a_place(a_memory([]), lock=None)
    sessions = [PlaceSession(place, clock, number=at) for at, place in enumerate(places, 1)]
    return LocksParts((sessions or [PlaceSession(none, clock)])[0], context, screen, sessions)


@pytest.mark.parametrize("key", ["enter", "U", "W"])
def test_a_key_without_a_lock_says_so(key: str) -> None:
    """Where no place has a lock, and on a row that left, its hint is grey and nothing opens."""
    screen = AskedRowsScreen()
    parts = locks(screen)
    press(ROWS, key, parts, parts.say)
    assert parts.message.text == "no place has a lock"
    screen.cursor = RowCursor(has_left=True)
    press(ROWS, key, parts, parts.say)
    assert parts.message.text == ROW_HAS_LEFT
    grey = {hint.shown for hint in hints_of(ROWS, parts) if hint.is_refused}
    assert grey == {"Enter", "U", "W"}
    assert screen.targets == []


def test_a_key_acts_on_the_place_under_the_cursor() -> None:
    """Before the rows are painted it is the open place, which may have no row."""
    screen = AskedRowsScreen()
    parts = locks(screen, "one", "two")
    press(ROWS, "5", parts, parts.say)
    parts.aim, screen.cursor = "3", RowCursor("2")
    press(ROWS, "5", parts, parts.say)
    assert screen.targets == [Target(keys.LOCKS, place=1), Target(keys.LOCKS, place=2)]
    assert parts.selected_session.number == 2  # r scans it
    press(ROWS, "enter", parts, parts.say)
    assert parts.message.text == "no recovery command for this place's lock"


def test_the_graph_has_a_key_where_it_has_room() -> None:
    """Without room no key changes its range; a console that changes nothing starts no worker."""
    screen = AskedRowsScreen()
    parts = locks(screen, "one", read_only=True)
    assert {"graph_range", "worker"} <= absent_actions(ROWS, parts)
    screen.is_large = True
    assert "graph_range" not in absent_actions(ROWS, parts)
    press(ROWS, "z", parts, parts.say)
    assert (parts.graph.range, [*screen.questions]) == ("1h", ["graph"])
