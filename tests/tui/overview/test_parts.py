"""The parts of the overview and its keys, without an app: focus, places, refusals, freezing."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from engine.model import State
from engine.monitor.alerts import Alert, AlertKind, Goal, Level, Where
from engine.monitor.forecast import Forecast, ForecastTopic
from tests.console_operator import words
from tests.console_places import NOW, Clock, a_memory, a_place, some_tasks
from tests.tui.asked_screen import AskedScreen
from tui.overview import painters
from tui.overview.alert_lines import alert_key
from tui.overview.keys import ROWS
from tui.overview.panes import PaneTurns
from tui.overview.parts import AGES, ALERTS, QUEUES, SEEN_SECONDS, Change, OverviewParts
from tui.overview.place_lines import PlaceLine, QueuePart, part_lines
from tui.overview.reads import PlaceReads
from tui.overview.snapshot import forecast_lines
from tui.screens.console_context import Arming, ConsoleContext
from tui.screens.key_rows import absent_actions, press
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.session import index_queries
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.table import Choice


def test_on_a_slow_link_one_side_pane_is_painted_after_the_other() -> None:
    """The one that is behind most, once it is due, and the one with the cursor each time; all once
    the link is fast, and those with another size. Its title has the time."""
    turns, names = PaneTurns(), ("ages", "kinds", "graph")

    def painted(seconds: float, now: float) -> list[str]:
        turns.begin(seconds, now, "queues")
        return [name for name in names if turns.takes(name, now)]

    assert painted(0.0, 10.0) == [*names]
    assert painted(5.0, 11.0) == painted(5.0, 14.0) == []
    assert [painted(5.0, now) for now in (15.0, 16.0, 17.0, 18.0)] == [[n] for n in names] + [[]]
    assert painted(math.inf, 99.0) == []
    turns.begin(5.0, 22.0, "graph")
    assert [name for name in names if turns.takes(name, 22.0)] == ["ages", "graph"]
    assert turns.stamp(Frame("Kinds"), 61.0).right == ((" 00:01:01Z", "warn"),)
    turns.resize(["kinds"])
    assert [name for name in names if turns.takes(name, 23.0)] == ["ages", "kinds", "graph"]
    assert painted(0.0, 24.0) == [*names] and turns.stamp(Frame("Kinds"), 24.0).right == ()


class Rows:
    """A pane that is not on any screen."""

    is_gone, display, is_active = False, True, True

    def __init__(self, *names: str) -> None:
        self.rows: Sequence[Choice] = [Choice(name, ()) for name in names]
        self.key = names[0] if names else ""

    def activate(self, active: bool) -> None:
        """Note it."""
        self.is_active = active

    def move(self, how: str) -> None:
        """Go to the last row."""
        self.key = self.rows[-1].key


class Cells(Rows):
    """An age table with one cell."""

    count: int | None = 3
    filter, cell_text = "kind=mail_send", "mail_send, all ages"
    shifts: tuple[int, ...] = ()

    def shift(self, by: int) -> None:
        """Note it."""
        self.shifts += (by,)


class Overview:
    """The parts of an overview of two places, and who presses its keys."""

    def __init__(self, sessions: Sequence[PlaceSession], clock: Clock, *, read_only: bool) -> None:
        self.clock, self.screen, self.ages = clock, AskedScreen[Change](), Cells()
        self.others = Rows()
        self.panes = {ALERTS: Rows(), QUEUES: Rows("1", "2"), AGES: self.ages}
        self.panes["clusters"] = self.others
        context = ConsoleContext("mx1", Arming(clock, read_only), clock, places=2)
        self.parts = OverviewParts(sessions, context, self.screen, self.panes, self.ages)
        self.parts.focus.activate(QUEUES)
        self.parts.focus.set_targets(QUEUES, {n: Target(keys.LIST, int(n)) for n in "12"})
        self.parts.look()

    def press(self, *pressed: str) -> Change:
        """Press keys; what the last one changed."""
        change = Change.NOTHING
        for key in pressed:
            change = press(ROWS, key, self.parts, self.parts.say)
        return change

    async def counts_ages(self) -> None:
        """Read the age table of the first place."""
        (one, _) = self.parts.sessions
        ages = await index_queries.query_ages(one, State.PENDING, "kind")
        self.parts.reads._place_reads[1] = PlaceReads(State.PENDING, ages, 1, when=self.clock())

    @property
    def message(self) -> str:
        """What was said last."""
        return self.parts.message.text


@asynccontextmanager
async def an_overview(*, read_only: bool = False) -> AsyncIterator[Overview]:
    """Two places in memory, the second without tasks."""
    clock = Clock()
    places = (a_place(a_memory(some_tasks()), name="one"), a_place(a_memory([]), name="two"))
    sessions = [PlaceSession(place, clock, number=n) for n, place in enumerate(places, 1)]
    for session in sessions:
        await session.inspector.start()
        await session.inspector.scan_now()
    try:
        yield Overview(sessions, clock, read_only=read_only)
    finally:
        for session in sessions:
            await session.inspector.close()


def absent(overview: Overview) -> set[str]:
    """The actions that are not offered."""
    return absent_actions(ROWS, overview.parts)


async def test_tab_goes_to_panes_with_rows() -> None:
    """Panes without rows or off the screen are passed over, and the age table if frozen."""
    async with an_overview() as overview:
        focus, others = overview.parts.focus, overview.others
        assert overview.press("tab") is Change.PANES
        assert (focus.pane, focus.is_chosen) == (QUEUES, True)
        others.rows, others.display = [Choice("a", ())], False
        overview.press("tab")
        assert focus.pane == QUEUES
        others.display = True
        overview.press("shift+tab")
        assert focus.pane == "clusters"
        assert [name for name, pane in overview.panes.items() if pane.is_active] == ["clusters"]
        await overview.counts_ages()
        focus.activate(QUEUES)
        overview.press("tab")
        assert focus.pane == AGES
        assert overview.press("l", "h") is Change.NOTHING
        assert overview.ages.shifts == (1, -1)
        overview.press("p")
        assert not overview.parts.can_focus(AGES)


async def test_keys_act_on_the_place_under_the_cursor() -> None:
    """Each key leads to the place of the row, `b` to the state that has tasks. Enter on a cell
    lists the tasks that it counts; without a cell it says so. U leads to the lock of the place
    under the cursor if it has an alert, else to the most urgent one."""
    async with an_overview() as overview:
        overview.parts.focus.activate(AGES)
        overview.press("enter")
        assert overview.message == "no cell to open"
        await overview.counts_ages()
        overview.press("enter")
        assert overview.screen.targets.pop() == Target(
            keys.LIST, 1, State.PENDING, overview.ages.filter
        )

        overview.parts.focus.activate(QUEUES)
        overview.press("enter", "c", "b", "4")
        assert overview.press("j") is Change.NOTHING
        overview.press("b", "7", "u")
        assert overview.screen.targets == [
            Target(keys.LIST, 1),
            Target(keys.CLUSTERS, 1, State.DEAD),
            Target(keys.GROUPS, 1, State.DEAD),
            Target(keys.LIST, 1, State.DEAD),
            Target(keys.GROUPS, 2, State.PENDING),
            Target(keys.LOG, 2),
            Target(keys.OPERATIONS),
        ]

        parts = overview.parts
        goals = [Goal(session.place.name, Where.LOCK) for session in parts.sessions]
        one, two = (Alert(Level.CRIT, AlertKind.STUCK, "stuck", None, goal) for goal in goals)
        for alerts, number in (((two,), 2), ((two, one), 1)):
            overview.panes[QUEUES].key = "1"
            parts.alerts = alerts
            assert parts.place_to_unlock.number == number
        overview.panes[ALERTS].key = alert_key(two)
        assert parts.alert is two


async def test_a_row_that_has_left_keeps_its_place() -> None:
    """No key acts on it, and the place under the cursor is still its place."""
    async with an_overview() as overview:
        focus, others = overview.parts.focus, overview.others
        others.rows, others.key = [Choice("2 F-1", ())], "2 F-1"
        focus.set_targets("clusters", {"2 F-1": Target(keys.LIST, 2)})
        focus.activate("clusters")
        others.key, others.is_gone = "", True
        focus.set_targets("clusters", {})
        assert overview.parts.selected.number == 2
        for key in ("enter", "c", "b", "C"):
            overview.parts.message.clear()
            overview.press(key)
            assert overview.message == ROW_HAS_LEFT
        assert overview.screen.targets == []


async def test_a_row_that_came_by_itself_must_be_seen() -> None:
    """The first key within a second is refused, unless the operator has moved: of another place,
    and Enter also of the same one, which may have another alert there. The first row of all is
    seen."""
    async with an_overview() as overview:
        alerts = overview.panes[ALERTS]
        alerts.rows = [Choice(name, ()) for name in ("stuck", "old", "new", "urgent")]
        place = {
            name: Target(keys.LOCK, 2 if name == "new" else 1)
            for name in ("stuck", "old", "new", "urgent")
        }
        overview.parts.focus.set_targets(ALERTS, place)
        overview.parts.focus.activate(ALERTS)

        def comes(key: str) -> None:
            before = overview.parts.cursor_row
            alerts.key = key
            overview.parts.note_row(before)

        for pressed in ("c", "enter", "U", "W", "b", "C"):
            other_row = [("stuck", "old", "another row")] if pressed == "enter" else []
            for first, then, came in (*other_row, ("old", "new", "two")):
                comes(first)
                overview.clock.now += SEEN_SECONDS
                comes(then)
                overview.press(pressed)
                assert overview.message == f"{came} came under the cursor: press again"
                assert overview.screen.targets == []
        overview.press("c")
        comes("urgent")
        overview.clock.now += SEEN_SECONDS
        overview.press("c")
        comes("old")
        overview.press("j", "c")
        assert len(overview.screen.targets) == 3
        alerts.key = ""
        comes("old")
        overview.press("c")
        assert len(overview.screen.targets) == 4


async def test_while_frozen_keys_that_need_live_data_are_grey() -> None:
    """They say at which time the screen is frozen; p is then the key for live, and Esc too."""
    async with an_overview() as overview:
        assert overview.press("p") is Change.PANES
        grey = {hint.shown for hint in painters.hints(overview.parts) if hint.is_refused}
        assert grey == {"x", "r", "/", "W"} | ({"U"} if "unlock" not in absent(overview) else set())
        overview.press("W")
        assert overview.message == "frozen at 09:42:08Z: p goes live, then W"
        assert "live" in {hint.text for hint in painters.hints(overview.parts)}
        overview.press("comma")
        assert overview.message == "still reading the recording"
        await overview.screen.answer()
        assert overview.press("escape") is Change.PANES
        assert (overview.parts.freeze.time, overview.message) == (None, "live")


async def test_a_console_that_only_reads_offers_no_writing_key() -> None:
    """Arming, the worker and the lock are not offered."""
    async with an_overview(read_only=True) as overview:
        assert absent(overview) >= {"arm", "unlock", "worker", "controls"}
    async with an_overview() as overview:
        assert "arm" not in absent(overview)


def test_queues_of_a_server_with_long_names_differ_at_80_columns() -> None:
    """Their common beginning is cut where a name has no room, so no two rows are the same."""
    counts = {State.PENDING: 1}
    names = ("federation-delivery", "federation-health-check", "mail")
    parts = tuple(QueuePart(name, counts, None, None) for name in names)
    for some, shown in ((parts[:2], "…delivery …health-…"), (parts, "federati… federati… mail")):
        place = PlaceLine(1, "redis.sock", complete=True, parts=some)
        lines = [line for _, line in part_lines([place], 0, NOW, 80)]
        assert [words([line]).split()[0] for line in lines] == shown.split()


def test_a_long_forecast_is_folded_in_the_outlook() -> None:
    """The end of a sentence with a reason goes below its beginning; a brief one has one line."""
    why = "time until retention deletes the oldest of DLQ unknown: death times are not recorded"
    forecast = Forecast(ForecastTopic.RETENTION, "?", why, unknown=why)
    lines = words(forecast_lines([forecast], 60, 2)).splitlines()
    assert " ".join(" ".join(lines).split()) == f"forecast {why}"
    assert lines[1].startswith(" " * 11) and len(lines) == 2
