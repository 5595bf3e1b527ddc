"""The parts of the transports' screens and their keys, without an app: what is refused, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.destinations.destination import Destination
from engine.destinations.watch import DestinationsReading
from engine.monitor.transport_health import Failure, MailHealth, TransportHealth
from engine.places.place import PlaceDestinations
from tests.console_places import Clock, a_memory, a_place
from tests.tables import each
from tests.tui.asked_screen import AskedRowsScreen
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import KeyRow, absent_actions, hints_of, press
from tui.screens.rows_parts import ROW_HAS_LEFT, Change, RowCursor, RowsParts
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.transports import screen as transport_keys
from tui.transports.parts import TransportParts
from tui.transports.screen import FAILURE_ROWS, FailureParts

PEER = "https://a.example"
ERRORS = (Failure(60.0, "421", line="421 later"), Failure(None, "421"))


def a_session(clock: Clock, *failures: Failure) -> PlaceSession:
    """A place that has read one transport, and one destination without tasks."""
    watched = PlaceDestinations(lambda: [], lambda *_: "", lambda: None)
    session = PlaceSession(a_place(a_memory([]), destinations=watched), clock)
    transport = TransportHealth("curl", None, ())._replace(failures=failures)
    session.readings = session.readings._replace(
        sending=MailHealth((transport,)),
        destinations=DestinationsReading((Destination(PEER, rev=1),), is_configured=True),
    )
    return session


def a_context(clock: Clock, *, read_only: bool = False) -> ConsoleContext:
    """The context of one console."""
    return ConsoleContext("mx1", Arming(clock, read_only), clock, places=1)


def pressed(rows: Sequence[KeyRow[Any, Change]], parts: RowsParts, key: str) -> str:
    """The message after a key."""
    parts.message.clear()
    press(rows, key, parts, parts.say)
    return parts.message.text


def refused(rows: Sequence[KeyRow[Any, Change]], parts: RowsParts) -> set[str]:
    """The grey hints."""
    return {hint.shown for hint in hints_of(rows, parts) if hint.is_refused}


def test_enter_opens_only_an_error_with_a_time() -> None:
    """Without a time, or without an error under the cursor, Enter is grey and says why."""
    clock, screen = Clock(), AskedRowsScreen()
    parts = FailureParts(a_session(clock, *ERRORS), a_context(clock), screen, "curl")
    assert pressed(FAILURE_ROWS, parts, "enter") == "no error selected"
    screen.cursor = RowCursor(has_left=True)
    assert pressed(FAILURE_ROWS, parts, "enter") == ROW_HAS_LEFT

    timed, timeless = [row.key for row in parts.rows(80).rows]
    screen.cursor = RowCursor(timeless)
    assert pressed(FAILURE_ROWS, parts, "enter") == "time of this error unknown"
    assert refused(FAILURE_ROWS, parts) == {"Enter"}
    assert screen.targets == []
    screen.cursor = RowCursor(timed)
    assert refused(FAILURE_ROWS, parts) == set()
    pressed(FAILURE_ROWS, parts, "enter")
    assert screen.targets == [Target(keys.LOG, at=60.0, line="421 later")]


NOT_OURS = "no transport here can be suspended or tested"


@each(("cursor", "refusals"), [
    (RowCursor(), {"enter": "nothing to open", "t": "no transport here"}),
    (RowCursor(has_left=True), {"enter": ROW_HAS_LEFT, "t": ROW_HAS_LEFT, "R": ROW_HAS_LEFT}),
    (RowCursor("curl"), {"enter": "no recorded errors", "S": NOT_OURS,
     "M": NOT_OURS, "O": "no destination here", "R": "no destination here"}),
    (RowCursor(PEER), {"R": "retry: no retry from dead here"}),
])  # fmt: skip
def test_a_refused_key_says_why(cursor: RowCursor, refusals: dict[str, str]) -> None:
    """For a row that left, a transport without errors, and what the place does not have."""
    clock, screen = Clock(), AskedRowsScreen()
    parts = TransportParts(a_session(clock), a_context(clock), screen, "")
    screen.cursor = cursor
    assert {key: pressed(transport_keys.ROWS, parts, key) for key in refusals} == refusals
    assert screen.targets == []


def test_the_keys_are_those_of_the_row_under_the_cursor() -> None:
    """A row has the keys that can act on it; a read-only console has none that change."""
    clock, screen = Clock(), AskedRowsScreen()
    parts = TransportParts(a_session(clock), a_context(clock), screen, "")
    mine = {"trial", "log", "probe", "plan('retry')", "suspend", "arm"}
    for key, absent in (("curl", {"probe", "plan('retry')"}), (PEER, {"trial", "log"})):
        screen.cursor = RowCursor(key)
        assert absent_actions(transport_keys.ROWS, parts) & mine == absent
    parts.context = a_context(clock, read_only=True)
    assert absent_actions(transport_keys.ROWS, parts) & mine == mine
