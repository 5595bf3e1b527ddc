"""Focus of the overview: its panes with a cursor, and what is under the cursor."""

from __future__ import annotations

from collections.abc import Sequence

from engine.monitor.alerts import Alert
from tui.overview import alert_lines as alert_view
from tui.overview.age_widget import AgeTable
from tui.overview.division import OverviewFrame
from tui.overview.panes import OverviewPanes
from tui.overview.pausable import FreezableScreen
from tui.overview.reads import OverviewReads, PlaceReads
from tui.overview.snapshot import PlaceSnapshot
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane
from tui.session.place_session import PlaceSession
from tui.widgets.picker import Picker

ALERTS, QUEUES, AGES = "alerts", "queues", "ages"


class FocusedPanes(FreezableScreen):
    """One of the panes alerts, queues and ages has the cursor."""

    def __init__(self, lives: Sequence[PlaceSession], around: ConsoleContext) -> None:
        super().__init__(lives, around)
        self._pane = QUEUES
        self._chosen_pane = False
        """True once the operator has chosen a pane, or moved in one."""
        self._graph_pane = GraphPane()
        self._alerts: tuple[Alert, ...] = ()
        self._seen: tuple[PlaceSnapshot, ...] = ()
        self._reads = OverviewReads(around.clock)
        # A resolved alert must disappear, and no key acts on an alert.
        self._alert_list, self._queue_list = Picker(id=ALERTS, ghosts=False), Picker(id=QUEUES)
        self._age_table = AgeTable(id=AGES)
        panes_with_cursor = (self._alert_list, self._queue_list, self._age_table)
        self._pane_set = OverviewPanes(lives, *panes_with_cursor)

    @property
    def _frame(self) -> OverviewFrame:
        return self._pane_set.frame

    @property
    def _here(self) -> PlaceSession:
        """The place under the cursor: of the alert, or in the list of queues."""
        if self._pane == ALERTS and (alert := self._alert) is not None:
            named = (one for one in self._lives if one.place.name == alert.target.place)
            if (found := next(named, None)) is not None:
                return found
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
        for name, part in self._panes.items():
            part.activate(name == pane)
        self._panes[pane].focus()

    @property
    def _panes(self) -> dict[str, Picker | AgeTable]:
        return {ALERTS: self._alert_list, QUEUES: self._queue_list, AGES: self._age_table}

    def _step(self, by: int) -> None:
        self._chosen_pane = True
        there = [ALERTS] * bool(self._alerts and self._frame.alerts) + [QUEUES]
        there += [AGES] * bool(self._frame.ages and self._table and not self._frozen)
        at = there.index(self._pane) if self._pane in there else 0
        self._activate(there[(at + by) % len(there)])
        self.paint()

    def action_next_pane(self) -> None:
        """Go to the next part of the screen."""
        self._step(1)

    def action_previous_pane(self) -> None:
        """Go to the previous part."""
        self._step(-1)

    def action_move(self, how: str) -> None:
        """Move the cursor in the focused part."""
        self._chosen_pane = True
        self._panes[self._pane].move(how)

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
        if self._pane == AGES:
            self._activate(QUEUES)
