"""The screens of a place's tasks in groups: by a common value, and failed ones by their error.

They show their parts (`tui.groups.parts`), and pass keys to their rows (`tui.groups.keys`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from textual.app import ComposeResult

from engine.index.schema import Query
from engine.operations.execute import Report
from tui.groups.error_clusters import ErrorClusters
from tui.groups.keys import CLUSTER_ROWS, GROUP_ROWS
from tui.groups.parts import Change, GroupParts, RowCursor
from tui.groups.task_groups import TaskGroups
from tui.plan.open_plan import open_plan
from tui.plan.planning import VerbRequest
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import hints_of
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.screens.list_panes import ListPanes
from tui.screens.two_panes import frame_panes
from tui.session.place_session import PlaceSession
from tui.text import keys, task_row
from tui.text.export import ExportTable, RowSink
from tui.text.frames import frame_border
from tui.text.hints import next_line
from tui.text.lines import Line

COPIED_CELLS = 160
"""Width of a copied row."""


class GroupedScreen(KeyedScreen):
    """One row for each group, and details of the one under the cursor."""

    parts: GroupParts[Any]

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.session, self.context, self.panes = session, context, ListPanes()
        self.aim = ""
        """Key of the group on which the cursor is put when it appears."""

    def compose(self) -> ComposeResult:
        """Rows above details."""
        yield from self.panes.compose()

    def on_mount(self) -> None:
        """Focus the rows, start reading; lay everything out again each second."""
        self.panes.focus(details=False)
        self.run("groups", self.parts.follow)
        self.set_interval(1.0, self._tick)

    def on_resize(self) -> None:
        """Lay out for the current size, once the parts have theirs."""
        frame_panes(self, frame_border(*self.size))
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        """Repaint when the screen is on top again."""
        self.paint()

    def _tick(self) -> None:
        if self.is_current and not self.context.skips_repaint():
            self.paint()

    def on_picker_cursor_moved(self) -> None:
        """Show the group under the cursor, and read its tasks."""
        self.paint()
        self.run("tasks", self.parts.read_tasks)

    # What the parts ask for (`GroupScreenActions`)

    @property
    def cursor(self) -> RowCursor:
        """See `GroupScreenActions`."""
        return RowCursor(self.panes.rows.key, self.panes.rows.is_gone)

    def move(self, how: str) -> Change:
        """See `GroupScreenActions`."""
        # A cursor that moved has its own event.
        return Change.NOTHING if self.panes.move(how) else Change.ROWS

    def switch_pane(self) -> Change:
        """See `GroupScreenActions`."""
        self.panes.focus(details=not self.panes.in_details)
        return Change.ROWS

    def plan(self, asked: VerbRequest) -> None:
        """See `GroupScreenActions`."""
        open_plan(self, self.session, self.context, asked, task=None, applied=self._plan_applied)

    def _plan_applied(self, report: Report) -> None:
        self.show_change(self.parts.plan_applied(report))

    def action_move(self, how: str) -> None:
        """Move as the key of that name does."""
        self.show_change(self.move(how))

    def focus_pane(self, widget: object) -> None:
        """Give the keys that move to a clicked pane."""
        self.panes.focus(details=widget is self.panes.details)
        self.paint()

    # Painting

    def paint(self) -> None:
        """Show the current data; unchanged lines are not repainted."""
        self.show_change(Change.ROWS)

    def show_change(self, change: Change) -> None:
        """Paint what has changed."""
        if not change or not self.is_paintable or not self.size.width:
            return
        parts, panes = self.parts, self.panes
        if Change.ROWS in change:
            width, shows = panes.width(self.size), parts.grouping
            rows = shows.rows(parts.groups, width)
            panes.show_rows(rows)
            if self.aim in [row.key for row in rows.rows]:
                panes.rows.select_key(self.aim)
                self.aim = ""
            panes.details.show(parts.details(width))
            frame = shows.rows_frame(parts.groups, is_known=parts.is_known)
            panes.show_frames(frame, shows.details_frame(parts.selected), self.size)
        width = self.size.width
        trail = (self.session.name, parts.state_word, self.KIND)
        panes.edges.top.update_line(self.context, trail)
        panes.edges.show_message(parts.message, self._next_step, width)
        panes.edges.show_hints(hints_of(self.ROWS, parts), width)

    def _next_step(self) -> Line:
        selected, width = self.parts.selected, self.size.width
        if selected is None:
            return next_line("Esc", "back to the tasks", "nothing", width)
        return self.parts.grouping.next_step(selected, self.parts.state_word, width)

    def copies(self) -> tuple[Copy, ...]:
        """The group under the cursor."""
        parts, selected = self.parts, self.parts.selected
        if selected is None:
            return ()
        key, (values,) = parts.grouping.key_of(selected), parts.grouping.values_of([selected])
        rows = parts.grouping.rows(parts.groups, COPIED_CELLS).rows
        line = next(row.line for row in rows if row.key == key)
        return (
            Copy("i", "name", key),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(values).strip()),
        )

    def export_table(self) -> ExportTable | None:
        """Export: all groups."""
        values = self.parts.grouping.values_of(self.parts.groups)

        async def hand(take: RowSink) -> int:
            await asyncio.to_thread(take, values, len(values), len(values))
            return len(values)

        columns = tuple(values[0]) if values else ()
        return ExportTable(f"{self.parts.grouping.noun}s", columns, hand) if values else None


class GroupsScreen(GroupedScreen):
    """The tasks by queue, kind, group or destination, and by rings of queues."""

    KIND = keys.GROUPS
    ROWS = GROUP_ROWS
    BINDINGS = row_bindings(GROUP_ROWS)

    def __init__(self, session: PlaceSession, context: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__(session, context)
        self.parts = GroupParts(
            session, context, self, query, TaskGroups(session, context.clock, query)
        )


class ClustersScreen(GroupedScreen):
    """The error clusters, and whether they still happen."""

    KIND = keys.CLUSTERS
    ROWS = CLUSTER_ROWS
    BINDINGS = row_bindings(CLUSTER_ROWS)

    def __init__(self, session: PlaceSession, context: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__(session, context)
        clock = context.clock
        clusters = ErrorClusters(
            session, clock, query, lambda: not self.parts.verb_refusal("retry")
        )
        self.parts = GroupParts(session, context, self, query, clusters)
