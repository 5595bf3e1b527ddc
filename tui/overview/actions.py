"""Keys of the overview: open what is under the cursor, other rows and ranges, copies and export."""

from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

from textual import work

from engine.model import State
from engine.monitor.alerts import Where
from engine.store import Unavailable
from tui.operations.worker_screen import show_worker_plan
from tui.overview import alert_lines as alert_view
from tui.overview import place_lines as view
from tui.overview import snapshot
from tui.overview.focus import FocusedPanes
from tui.overview.panes import AGES
from tui.screens.base import QUIT_AGAIN, Copy
from tui.screens.page import MESSAGE_SECONDS, ROW_HAS_LEFT
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.times import format_clock

if TYPE_CHECKING:
    from tui.text.export import ExportTable, RowSink


SEEN_SECONDS = 1.0
"""Seconds after which the operator has seen that another place came under the cursor by itself."""


class OverviewLinks(FocusedPanes):
    """Keys that open what is under the cursor, and the screens and plans of its place."""

    def _refuses(self, *, needs_row: bool = True) -> bool:
        """Refuse a key, with the reason, for a place that the operator cannot have seen under the
        cursor yet, and if it `needs_row`, for a row that has left.
        """
        why = ROW_HAS_LEFT if needs_row and self._pane_set.has_left(self._pane) else ""
        if 0 <= self.context.clock() - self._place_changed_at < SEEN_SECONDS:
            why = why or f"{self._selected_place.name} came under the cursor: press again"
        self._place_changed_at = float("-inf")
        if why:
            self.say(why)
        return bool(why)

    def action_open(self) -> None:
        """Open what the row under the cursor is about, or the tasks of the cell."""
        if self._refuses():
            return
        if self._pane == AGES:
            self._open_cell()
        elif (target := self._target) is not None:
            self.go(target)

    def _open_cell(self) -> None:
        table = self._table
        if table is None or self._age_table.count is None:
            self.say("no cell to open")
            return
        words = self._age_table.filter
        self.go(
            Target(keys.LIST, place=self._selected_place.number, state=table.state, filter=words)
        )

    def action_screen(self, digit: str) -> None:
        """Open the screen with that digit for the place under the cursor."""
        self.go(SCREEN_TARGETS[digit]._replace(place=self._selected_place.number))

    def action_unlock(self) -> None:
        """Open the lock screen of the place whose alert shows this key, or of the one here."""
        if self._frozen is not None:
            self.say(f"frozen at {format_clock(self._frozen.at)}: p goes live, then U")
            return
        if self._refuses(needs_row=False):
            return
        session = self._place_to_unlock
        if refusal := session.place.why_no_unlock(self.context.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=session.number))

    @property
    def _place_to_unlock(self) -> PlaceSession:
        """The place under the cursor if its lock has an alert, else that of the most urgent alert
        about a lock: the line of the alert shows the key."""
        names = [alert.target.place for alert in self._alerts if alert.target.where is Where.LOCK]
        selected = self._selected_place
        if not names or selected.place.name in names:
            return selected
        return next(
            (session for session in self._sessions if session.place.name == names[0]), selected
        )

    def action_controls(self) -> None:
        """Open the controls of the place under the cursor."""
        if not self._refuses():
            self.go(Target(keys.CONTROLS, place=self._selected_place.number))

    def action_clusters(self) -> None:
        """Open the error clusters of the place."""
        if not self._refuses():
            self.go(Target(keys.CLUSTERS, place=self._selected_place.number, state=State.DEAD))

    def action_groups(self) -> None:
        """Open the groups of tasks of the place, for verbs on dead ones if there are any."""
        if not self._refuses():
            dead = self._selected_place.inspector.latest.counts.get(State.DEAD)
            state = State.DEAD if dead else State.PENDING
            self.go(Target(keys.GROUPS, place=self._selected_place.number, state=state))

    def can_start_worker(self, session: PlaceSession) -> bool:
        """True if a worker of a place can be started from here."""
        return bool(session.place.worker_command) and not self.context.arming.read_only

    def action_worker(self) -> None:
        """Open the plan to start a worker of the place, or to stop the one started here."""
        if self._frozen is not None:
            self.say(f"frozen at {format_clock(self._frozen.at)}: p goes live, then W")
        elif not self._refuses(needs_row=False):
            show_worker_plan(self, self._selected_place, self.context)


class OverviewActions(OverviewLinks):
    """Modes, ranges, rows, copies and export."""

    _quit_asked_at = float("-inf")
    """When Ctrl-c found nothing to cancel, in seconds of the event loop."""

    def cancels(self) -> bool:
        """Return to live or stop a scan; with nothing to cancel, True the second time."""
        latest = self._selected_place.inspector.latest
        if self._frozen is not None or not (latest.is_complete or latest.is_stopped):
            self.action_back()
            return False
        before, self._quit_asked_at = self._quit_asked_at, asyncio.get_running_loop().time()
        if self._quit_asked_at - before < MESSAGE_SECONDS:
            return True
        self.say(QUIT_AGAIN)
        return False

    def action_back(self) -> None:
        """Return to live; otherwise stop the first scan of the place under the cursor."""
        if self._frozen is not None:
            self._go_live()
            return
        latest = self._selected_place.inspector.latest
        if latest.is_complete or latest.is_stopped:
            self.say("nothing to stop; q quits")
        else:
            self._selected_place.inspector.stop_first_scan()

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(self.context.arming.toggle())
        self.paint()

    def action_graph_range(self) -> None:
        """Show the next range of the graph."""
        self._graph_pane.next_range()
        self._reads.request(self._selected_place.number)
        self.paint()

    def action_rows_by(self) -> None:
        """Show the age table by the next field or state that has data."""
        self._next_age_rows()

    @work(exclusive=True, group="rows by")
    async def _next_age_rows(self) -> None:
        if self._table is None or self._frozen is not None:
            return
        try:
            if await self._reads.next_rows(self._selected_place):
                self.paint()
            else:
                self.say("no other field has data")
        except Unavailable:
            return  # closed

    def action_reread(self) -> None:
        """Scan all places again."""
        if self._frozen is not None:
            self.say("frozen: p goes live, then r")
            return
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await asyncio.gather(*(session.inspector.scan_now() for session in self._sessions))
        self._reads.request(self._selected_place.number)
        self.say("all places scanned again")

    def copies(self) -> tuple[Copy, ...]:
        """The place under the cursor, its line, and the command that prints all places."""
        session, now = self._selected_place, self._shown_at
        queue = self._snapshot_of(session, view.SPARKLINE_CELLS).queue
        _, (line,) = view.place_table([queue], now, 100)
        alert, names = self._alert, [n.place.name for n in self._sessions]
        return (
            Copy("i", "place", session.place.name),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            *(
                (Copy("a", "alert", alert_view.alert_text(alert, now)),)
                if alert is not None
                else ()
            ),
            Copy(
                "c",
                "command",
                shlex.join(["spooldeck", "overview", *self._at_words, *names]),
            ),
        )

    def export_table(self) -> ExportTable | None:
        """Export: one row per place."""
        from tui.text.export import ExportTable

        now, real = self._shown_at, self.context.clock()
        snapshots = [self._snapshot_of(session, view.SPARKLINE_CELLS) for session in self._sessions]
        values = [view.place_values(moment.queue, now) for moment in snapshots]
        if self._frozen is not None:
            past = [snapshot.recorded_values(moment, now, real) for moment in snapshots]
            values = [row | more for row, more in zip(values, past, strict=True)]

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        return ExportTable("overview", tuple(values[0]), hand)
