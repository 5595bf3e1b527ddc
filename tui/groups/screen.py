"""The screens of a place's tasks in groups: by a common value, and failed ones by their error.

They show their parts (`tui.groups.parts`), and pass keys to their rows (`tui.groups.keys`).
"""

from __future__ import annotations

from typing import Any

from engine.index.schema import Query
from tui.groups.error_clusters import ErrorClusters
from tui.groups.keys import CLUSTER_ROWS, GROUP_ROWS
from tui.groups.parts import GroupParts
from tui.groups.task_groups import TaskGroups
from tui.plan.open_plan import plan_rows
from tui.plan.planning import VerbRequest
from tui.screens.console_context import ConsoleContext
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.session.place_session import PlaceSession
from tui.text import keys


class GroupsScreen(RowsScreen):
    """The tasks by queue, kind, group or destination, and by rings of queues."""

    KIND = keys.GROUPS
    ROWS = GROUP_ROWS
    BINDINGS = row_bindings(GROUP_ROWS)
    parts: GroupParts[Any]

    def __init__(self, session: PlaceSession, context: ConsoleContext, query: Query) -> None:
        """`query` is the state and filter of the task list."""
        super().__init__()
        self.panes, groups = ListPanes(), TaskGroups(session, context.clock, query)
        self.parts = GroupParts(session, context, self, query, groups)

    def plan(self, asked: VerbRequest) -> None:
        """See `GroupScreenActions`."""
        plan_rows(self, self.parts, asked)


class ClustersScreen(RowsScreen):
    """The error clusters, and whether they still happen."""

    KIND = keys.CLUSTERS
    ROWS = CLUSTER_ROWS
    BINDINGS = row_bindings(CLUSTER_ROWS)
    parts: GroupParts[Any]

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, query: Query, aim: str = ""
    ) -> None:
        """`query` is the state and filter of the task list; `aim` gets the cursor."""
        super().__init__()
        self.panes, clock = ListPanes(), context.clock
        clusters = ErrorClusters(session, clock, query, lambda: not parts.verb_refusal("retry"))
        # The clusters ask these parts, once there are keys.
        self.parts = parts = GroupParts(session, context, self, query, clusters, aim=aim)

    def plan(self, asked: VerbRequest) -> None:
        """See `GroupScreenActions`."""
        plan_rows(self, self.parts, asked)
