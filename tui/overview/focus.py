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
from tui.screens.page import ROW_HAS_LEFT
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.widgets.picker import Picker

SEEN_SECONDS = 1.0
"""Seconds after which the operator has seen that another place came under the cursor by itself."""


class FocusedPanes(FreezableScreen):
    """One of the panes has the cursor."""

    def __init__(self, lives: Sequence[PlaceSession], around: ConsoleContext) -> None:
        super().__init__(lives, around)
        self._pane = QUEUES
        self._chosen_pane = False
        """True once the operator has chosen a pane, or moved in one."""
        self._place_changed_at = float("-inf")
        """When another place came under the cursor by itself, in epoch seconds UTC."""
        self._graph_pane = GraphPane()
        self._alerts: tuple[Alert, ...] = ()
        self._seen: tuple[PlaceSnapshot, ...] = ()
        self._reads = OverviewReads(around.clock)
        self._pane_set = OverviewPanes(lives)
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
    def _has_left(self) -> bool:
        """True if the row under the cursor has left: there is nothing to act on."""
        part = self._pane_set.focusable[self._pane]
        return isinstance(part, Picker) and part.is_gone

    def _refuses(self) -> bool:
        """Refuse a key, with the reason, for a row that has left, or for a place that the operator
        cannot have seen under the cursor yet.
        """
        why = ROW_HAS_LEFT if self._has_left else ""
        if 0 <= self.around.clock() - self._place_changed_at < SEEN_SECONDS:
            why = why or f"{self._here.name} came under the cursor: press again"
        self._place_changed_at = float("-inf")
        if why:
            self.say(why)
        return bool(why)

    @property
    def _here(self) -> PlaceSession:
        """The place under the cursor: of the row, also of one that has left, or in the list of
        queues.
        """
        part = self._pane_set.focusable[self._pane]
        target = (
            self._pane_set.targets.get(self._pane, {}).get(part.last_key)
            if isinstance(part, Picker)
            else None
        )
        if target is not None:
            return self._lives[target.place - 1]
        key = self._queue_list.key
        return self._lives[int(key) - 1] if key else self._lives[0]

    @property
    def _table(self) -> PlaceReads | None:
        return self._reads.of(self._here)

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

    def _was_moved(self) -> None:
        """The operator moves the cursor: it does not follow the alerts, and its place is seen."""
        self._chosen_pane, self._place_changed_at = True, float("-inf")

    def focus_pane(self, widget: Widget) -> None:
        """Focus a clicked pane, if it has rows."""
        self._was_moved()
        name = widget.id or ""
        if name in self._pane_set.focusable and self._can_focus(name):
            self._activate(name)
            self.paint()

    def action_pane(self, by: int) -> None:
        """Go to the next part of the screen, or with -1 to the previous one."""
        self._was_moved()
        there = [pane for pane in self._pane_set.focusable if self._can_focus(pane)] or [QUEUES]
        at = there.index(self._pane) if self._pane in there else 0
        self._activate(there[(at + by) % len(there)])
        self.paint()

    def action_move(self, how: str) -> None:
        """Move the cursor in the focused part."""
        self._was_moved()
        self._pane_set.focusable[self._pane].move(how)

    def action_age_cell(self, by: int) -> None:
        """Move to a younger or older age class."""
        if self._pane == AGES:
            self._age_table.shift(by)

    def on_picker_cursor_moved(self) -> None:
        """Another row is under the cursor: read its ages."""
        self._reads.wanted.set()

    def on_age_table_cell_changed(self) -> None:
        """Describe the new cell in the message line."""
        self._show_message_line()

    def _before_freeze(self) -> None:
        self._held = {moment.queue.number: moment for moment in self._seen}
