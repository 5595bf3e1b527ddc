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
from tui.screens.list_panes import ListPanes
from tui.screens.rows_screen import RowsScreen
from tui.session.place_session import PlaceSession
from tui.text import keys


class GroupsScreen(RowsScreen):
    """The tasks by queue, kind, group or destination, and by rings of queues."""

    KIND = keys.GROUPS
    ROWS = GROUP_ROWS
    BINDINGS = row_bindings(GROUP_ROWS)
    PARTS: type[GroupParts[Any]] = TaskGroups
    parts: GroupParts[Any]

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, query: Query, aim: str = ""
    ) -> None:
        super().__init__()
        self.panes = ListPanes()
        self.parts = self.PARTS(session, context, self, query, aim)

    def plan(self, asked: VerbRequest) -> None:
        plan_rows(self, self.parts, asked)


class ClustersScreen(GroupsScreen):
    """The error clusters, and whether they still happen."""

    KIND = keys.CLUSTERS
    ROWS = CLUSTER_ROWS
    BINDINGS = row_bindings(CLUSTER_ROWS)
    PARTS = ErrorClusters
