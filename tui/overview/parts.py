"""The parts of the overview, without Textual: what its keys act on, the pane with the cursor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Flag, auto
from typing import Protocol, TypeAlias

from engine.model import State
from engine.monitor.alerts import Alert, AlertKind, Where
from engine.monitor.recorder import Role
from tui.overview import alert_lines, side_panes
from tui.overview.freeze import Freeze
from tui.overview.place_lines import SPARKLINE_CELLS
from tui.overview.reads import OverviewReads, PlaceReads
from tui.overview.side_panes import LiveValues
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.key_rows import ScreenActions
from tui.screens.message import Message
from tui.screens.rows_parts import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import lock_step
from tui.text import keys
from tui.text.table import Choice

ALERTS, QUEUES, AGES = "alerts", "queues", "ages"


class Pane(Protocol):
    """A pane that can have the cursor; the age table has cells in place of rows."""

    @property
    def display(self) -> bool:
        """True if it is on screen."""

    @property
    def rows(self) -> Sequence[Choice]:
        """Its rows, also one that has left while the cursor is there."""

    @property
    def key(self) -> str:
        """Key of the row under the cursor; "" if none or it has left."""

    is_gone: bool
    """The row under the cursor has left: there is nothing to act on."""

    def activate(self, active: bool) -> None:
        """Show the cursor as active or inactive."""

    def move(self, how: str) -> object:
        """Move the cursor by a motion of the key table."""


class PaneFocus:
    """One of the panes has the cursor."""

    def __init__(self, panes: Mapping[str, Pane]) -> None:
        """`panes`: in the order of Tab."""
        self.panes = panes
        self.pane = QUEUES
        self.is_chosen = False
        """True once the operator has chosen a pane, or moved in one."""
        self.targets: dict[str, Mapping[str, Target]] = {}
        """Where Enter leads from each row, by the pane."""
        self._departed: dict[str, Target] = {}
        """Where it led from the last row that left under the cursor, by the pane."""

    def activate(self, pane: str) -> None:
        """Give the cursor to a pane."""
        self.pane = pane
        for name, part in self.panes.items():
            part.activate(name == pane)

    @property
    def has_left(self) -> bool:
        """True if the row under the cursor has left: there is nothing to act on."""
        return self.panes[self.pane].is_gone

    @property
    def target(self) -> Target | None:
        """Where Enter leads from the row under the cursor; None in the age table, and from a row
        that has left."""
        return self.targets.get(self.pane, {}).get(self.panes[self.pane].key)

    @property
    def place(self) -> int:
        """Number of the place of the row under the cursor, also of one that has left; without one,
        that of the queue under the cursor; 0 if there is none."""
        target = self._departed.get(self.pane) if self.has_left else self.target
        key = self.panes[QUEUES].key.partition("/")[0]
        return int(key or 0) if target is None else target.place

    def set_targets(self, pane: str, targets: Mapping[str, Target]) -> None:
        """Store where the rows of a pane lead; the target of a row that has left is kept."""
        before, part = self.targets.get(pane, {}), self.panes[pane]
        for row in part.rows if part.is_gone else ():
            if row.key in before and row.key not in targets:
                self._departed[pane] = before[row.key]
        self.targets[pane] = targets


SEEN_SECONDS = 1.0
"""Seconds after which the operator has seen that another row came under the cursor by itself."""

CursorRow: TypeAlias = tuple[PlaceSession, str, str, bool]
"""The place, pane and key of the row under the cursor, and whether the row has left."""


class Change(Flag):
    """What an action of the overview changed; no more is painted again."""

    NOTHING = 0
    EDGES = auto()
    """The lines above and below the panes."""
    PANES = auto()


class AgePane(Protocol):
    """The age table: its cells have the cursor."""

    @property
    def count(self) -> int | None:
        """The number under the cursor; None if there is none."""

    @property
    def filter(self) -> str:
        """The filter that selects the tasks of the cell."""

    @property
    def cell_text(self) -> str:
        """What the cell counts."""

    def shift(self, by: int) -> None:
        """Move to a younger or older age class."""


class OverviewParts:
    """All that the overview shows and its keys act on."""

    def __init__(
        self,
        sessions: Sequence[PlaceSession],
        context: ConsoleContext,
        screen: ScreenActions[Change],
        panes: Mapping[str, Pane],
        ages: AgePane,
    ) -> None:
        self.sessions, self.context, self.screen, self.ages = sessions, context, screen, ages
        self.clock = context.clock
        self.freeze = Freeze(sessions, self.clock)
        self.reads = OverviewReads(self.clock)
        self.focus = PaneFocus(panes)
        self.graph = GraphPane()
        self.message = Message(self.clock)
        self.snapshots: tuple[PlaceSnapshot, ...] = ()
        self.live_values = LiveValues()
        """While frozen, those of the freeze."""
        self.alerts: tuple[Alert, ...] = ()
        """The most urgent first."""
        self._changed_at = float("-inf")
        """When another row came under the cursor by itself, in epoch seconds UTC."""
        self._has_place_changed = False
        """It is of another place."""
        self.reported: set[str] = set()
        """Results of recordings that were said."""

    # What is shown

    def look(self) -> None:
        """Take what is known of all places, at the time shown."""
        cells, now = 2 * SPARKLINE_CELLS, self.freeze.shown_at
        self.snapshots = tuple(self.freeze.snapshot_of(session, cells) for session in self.sessions)
        if self.freeze.time is None:
            self.live_values = side_panes.live_values(self.sessions, self.snapshots, now)
        alerts = [alert for moment in self.snapshots for alert in moment.alerts]
        self.alerts = alert_lines.sort_alerts(alerts)

    @property
    def selected(self) -> PlaceSession:
        """The place under the cursor."""
        return self.sessions[max(0, self.focus.place - 1)]

    @property
    def table(self) -> PlaceReads | None:
        """What was read of the place under the cursor."""
        return self.reads.of(self.selected)

    @property
    def all_reads(self) -> Sequence[tuple[PlaceSession, PlaceReads]]:
        """The places that were read, and what was read."""
        reads = ((session, self.reads.of(session)) for session in self.sessions)
        return [(session, read) for session, read in reads if read is not None]

    @property
    def alert(self) -> Alert | None:
        """The alert under the cursor of the alerts."""
        key = self.focus.panes[ALERTS].key
        return next((alert for alert in self.alerts if alert_lines.alert_key(alert) == key), None)

    def can_focus(self, pane: str) -> bool:
        """True if a pane is on screen and has rows."""
        part = self.focus.panes[pane]
        has_cells = pane == AGES and self.table is not None and self.freeze.time is None
        return part.display and bool(has_cells or part.rows)

    def can_start_worker(self, session: PlaceSession, alert: Alert | None = None) -> bool:
        """True if a worker of a place can be started from here, and can write; as the step after
        an `alert` about a full disk: once there is room, if none runs."""
        can_start = bool(session.place.worker_command) and not self.context.arming.read_only
        is_once_free = alert is not None and alert.kind is AlertKind.FULL
        return can_start and (
            not session.runs_worker if is_once_free else session.full_disk is None
        )

    def alert_step(self, alert: Alert) -> tuple[str, str, str]:
        """The key of the next step for an alert, a word for it, and what it does."""
        session = next(one for one in self.sessions if one.place.name == alert.target.place)
        read_only = self.context.arming.read_only
        return alert_lines.next_step(
            alert,
            lock_step(session, read_only=read_only),
            can_start=self.can_start_worker(session, alert),
            read_only=read_only,
        )

    @property
    def place_to_unlock(self) -> PlaceSession:
        """The place under the cursor if its lock has an alert, else that of the most urgent alert
        about a lock: the line of the alert shows the key."""
        names = [alert.target.place for alert in self.alerts if alert.target.where is Where.LOCK]
        selected = self.selected
        if not names or selected.place.name in names:
            return selected
        return next((one for one in self.sessions if one.place.name == names[0]), selected)

    @property
    def cell_target(self) -> Target | None:
        """The tasks of the cell under the cursor of the age table; None without a cell."""
        if (table := self.table) is None or self.ages.count is None:
            return None
        return Target(keys.LIST, self.selected.number, table.state, self.ages.filter)

    @property
    def groups_target(self) -> Target:
        """The groups of tasks of the place, for verbs on dead ones if there are any."""
        dead = self.selected.inspector.latest.counts.get(State.DEAD)
        return Target(keys.GROUPS, state=State.DEAD if dead else State.PENDING)

    # What changes

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message in place of the next step for some seconds."""
        self.message.say(text, style)
        return Change.EDGES

    def report_recording(self) -> None:
        """Say once the result of a recording by another process."""
        for recording in (session.recording for session in self.sessions):
            words = recording.message if recording.role is Role.RECORDS else ""
            if words and words not in self.reported:
                self.reported.add(words)
                self.say(words)

    @property
    def cursor_row(self) -> CursorRow:
        """What is under the cursor."""
        focus = self.focus
        return self.selected, focus.pane, focus.panes[focus.pane].key, focus.has_left

    def note_row(self, before: CursorRow) -> None:
        """Note whether another row came under the cursor by itself; the first one of all does not
        count, nor the first alert of the place under the cursor."""
        place, pane, key, had_left = before
        is_other = self.focus.panes[pane].key not in ("", key) and pane == self.focus.pane
        if self.selected is not place:
            self._changed_at, self._has_place_changed = self.clock(), True
        elif is_other and (key or had_left):
            self._changed_at, self._has_place_changed = self.clock(), False

    def choose(self) -> None:
        """The operator moves the cursor: what comes under it is seen."""
        self.focus.is_chosen, self._changed_at = True, float("-inf")

    def why_unseen(self, *, needs_row: bool = True, opens_row: bool = False) -> str:
        """Why a key is not for what is under the cursor: the operator cannot have seen its place
        there yet, or the row if the key `opens_row`; or, if it `needs_row`, the row has left. ""
        else, and the next time."""
        why = ROW_HAS_LEFT if needs_row and self.focus.has_left else ""
        is_new = opens_row or self._has_place_changed
        if is_new and 0 <= self.clock() - self._changed_at < SEEN_SECONDS:
            came = self.selected.name if self._has_place_changed else "another row"
            why = why or f"{came} came under the cursor: press again"
        self._changed_at = float("-inf")
        return why
