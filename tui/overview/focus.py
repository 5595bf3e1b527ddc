"""Focus of the overview: its panes with a cursor, and what is under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from textual.widget import Widget

from engine.monitor.alerts import Alert
from tui.overview import alert_lines as alert_view
from tui.overview.division import OverviewFrame
from tui.overview.panes import AGES, QUEUES, OverviewPanes
from tui.overview.pausable import FreezableScreen
from tui.overview.reads import OverviewReads, PlaceReads
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.widgets.picker import Picker


class FocusedPanes(FreezableScreen):
    """One of the panes has the cursor."""

    def __init__(self, sessions: Sequence[PlaceSession], context: ConsoleContext) -> None:
        super().__init__(sessions, context)
        self._pane = QUEUES
        self._chosen_pane = False
        """True once the operator has chosen a pane, or moved in one."""
        self._place_changed_at = float("-inf")
        """When another place came under the cursor by itself, in epoch seconds UTC."""
        self._graph_pane = GraphPane()
        self._alerts: tuple[Alert, ...] = ()
        self._snapshots: tuple[PlaceSnapshot, ...] = ()
        self._reads = OverviewReads(context.clock)
        self._pane_set = OverviewPanes(sessions)
        self._alert_list, self._queue_list = self._pane_set.alerts, self._pane_set.queues
        self._age_table = self._pane_set.ages

    @property
    def _frame(self) -> OverviewFrame:
        return self._pane_set.frame

    @property
    def _target(self) -> Target | None:
        """Where Enter leads from the row under the cursor; None in the age table, and from a row
        that has left.
        """
        part = self._pane_set.focusable[self._pane]
        if not isinstance(part, Picker):
            return None
        return self._pane_set.targets.get(self._pane, {}).get(part.key)

    @property
    def _selected_place(self) -> PlaceSession:
        """The place under the cursor: of the row, also of one that has left, or in the list of
        queues.
        """
        target = self._target
        if self._pane_set.has_left(self._pane):
            target = self._pane_set.departed.get(self._pane)
        if target is not None:
            return self._sessions[target.place - 1]
        key = self._queue_list.key
        return self._sessions[int(key.partition("/")[0]) - 1] if key else self._sessions[0]

    @property
    def _table(self) -> PlaceReads | None:
        return self._reads.of(self._selected_place)

    @property
    def _alert(self) -> Alert | None:
        """The alert under the cursor."""
        key = self._alert_list.key
        return next((alert for alert in self._alerts if alert_view.alert_key(alert) == key), None)

    def _activate(self, pane: str) -> None:
        self._pane = pane
        for name, part in self._pane_set.focusable.items():
            part.activate(name == pane)
        self._pane_set.focusable[pane].focus()

    def _can_focus(self, pane: str) -> bool:
        """True if a pane is on screen and has rows."""
        part = self._pane_set.focusable[pane]
        has_rows = part.rows if isinstance(part, Picker) else self._table and not self._frozen
        return part.display and bool(has_rows)

    def focus_pane(self, widget: Widget) -> None:
        """Focus a pane that the operator chose, if it has rows."""
        self._chosen_pane, self._place_changed_at = True, float("-inf")
        name = widget.id or ""
        if name in self._pane_set.focusable and self._can_focus(name):
            self._activate(name)
        self.paint()

    def action_pane(self, by: int) -> None:
        """Go to the next part of the screen, or with -1 to the previous one."""
        panes = [pane for pane in self._pane_set.focusable if self._can_focus(pane)] or [QUEUES]
        at = panes.index(self._pane) if self._pane in panes else 0
        self.focus_pane(self._pane_set.focusable[panes[(at + by) % len(panes)]])

    def action_move(self, how: str) -> None:
        """Move the cursor in the focused part."""
        self._chosen_pane, self._place_changed_at = True, float("-inf")
        self._pane_set.focusable[self._pane].move(how)

    def action_age_cell(self, by: int) -> None:
        """Move to a younger or older age class."""
        if self._pane == AGES:
            self._age_table.shift(by)

    def on_picker_cursor_moved(self) -> None:
        """Another row is under the cursor: read its ages."""
        self._reads.read_due.set()

    def on_age_table_cell_changed(self) -> None:
        """Describe the new cell in the message line."""
        self._show_message_line()

    def _before_freeze(self) -> None:
        self._freeze_snapshots = {moment.queue.number: moment for moment in self._snapshots}
