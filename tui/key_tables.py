"""The keys of all screens, also of those that are not open: for help, palette and mouse."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from tui.groups.screen import CLUSTER_ROWS, GROUP_ROWS
from tui.locks.list_screen import ROWS as LOCKS_ROWS
from tui.log.actions import ROWS as LOG_ROWS
from tui.operations.controls_screen import ROWS as CONTROL_ROWS
from tui.operations.running_screen import ROWS as RUNNING_ROWS
from tui.operations.schedules_screen import ROWS as SCHEDULES_ROWS
from tui.operations.screen import ROWS as OPERATIONS_ROWS
from tui.operations.workers_screen import ROWS as WORKERS_ROWS
from tui.overview.keys import ROWS as OVERVIEW_ROWS
from tui.queue.keys import ROWS as QUEUE_ROWS
from tui.queue.search_screen import ROWS as SEARCH_ROWS
from tui.screens.key_rows import KeyRow
from tui.task.screen import ROWS as TASK_ROWS
from tui.text import keys
from tui.text.keys import Key
from tui.transports.screen import FAILURE_ROWS
from tui.transports.screen import ROWS as TRANSPORT_ROWS

TABLES: Mapping[str, Sequence[KeyRow[Any, Any]]] = {
    keys.OVERVIEW: OVERVIEW_ROWS,
    keys.LIST: QUEUE_ROWS,
    keys.LOG: LOG_ROWS,
    keys.TASK: TASK_ROWS,
    keys.CLUSTERS: CLUSTER_ROWS,
    keys.CONTROLS: CONTROL_ROWS,
    keys.SCHEDULES: SCHEDULES_ROWS,
    keys.GROUPS: GROUP_ROWS,
    keys.LOCKS: LOCKS_ROWS,
    keys.TRANSPORTS: TRANSPORT_ROWS,
    keys.FAILURES: FAILURE_ROWS,
    keys.WORKERS: WORKERS_ROWS,
    keys.OPERATIONS: OPERATIONS_ROWS,
    keys.RUNNING_OPERATION: RUNNING_ROWS,
    keys.SEARCH: SEARCH_ROWS,
}
"""The screens with key rows of their own."""

KEYS: tuple[Key, ...] = (
    *(row.key for rows in TABLES.values() for row in rows),
    *(key._replace(screens=key.screens - {keys.SHARED}) for key in keys.KEYS),
)
"""A key of several screens can be in it more than once; the words that only key rows share have no
screen."""


def keys_on(screen: str, without: Collection[str] = ()) -> Iterator[Key]:
    """The keys of a screen, except the actions in `without`."""
    if screen not in TABLES:
        yield from keys.keys_on(screen, without)
    else:
        yield from (row.key for row in TABLES[screen] if row.key.action not in without)
