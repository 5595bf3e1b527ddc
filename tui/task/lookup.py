"""What can be found out about one task besides itself: in the logs, in its files, in the queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.index import filter_language
from engine.index.schema import Query
from engine.live.inspector import Inspector
from engine.logs import merged_log, task_events
from engine.model import Part, Task
from engine.store import StoreError

if TYPE_CHECKING:  # how mails are taken apart is loaded with the first of them, not with the list
    from tui.task.lines import LogFindings
    from tui.task.parts_lines import Opened

MENTIONED = 500
"""Lines of the logs that are shown of one task; more than any that ends has."""

SLACK = 60.0
"""Seconds by which the clock that a task's birth was told by may have been ahead of the log's."""


def told(paths: Sequence[str], task: Task) -> LogFindings:
    """What the logs tell of a task. Blocks."""
    from tui.task.lines import LogFindings

    since = task.created - SLACK if task.created > 0 else None
    try:
        log = merged_log.mentions(paths, task.id, MENTIONED, since)
    except OSError as error:
        return LogFindings(merged_log.Mentions(), error.strerror or str(error))
    history = task_events.history(task_events.read(log.lines), task.id)
    return LogFindings(log, "", history, task_events.attempts(history))


async def alike(inspector: Inspector, task: Task, mark: str) -> int:
    """How many others in its state have an error of that fingerprint.

    Raises:
        Unavailable: there is no telling now.
    """
    query = Query(task.state, filter_language.parse(f"cluster={mark}"))
    return max(0, await inspector.count(query) - 1)


async def opened(inspector: Inspector, task: Task) -> tuple[Opened, ...]:
    """All its parts, read as far as they may be.

    Raises:
        Gone: it is not there any more as it was seen.
        Unavailable: its store cannot be reached.
    """
    return tuple([await _open(inspector, task, part) for part in await inspector.parts(task)])


async def _open(inspector: Inspector, task: Task, part: Part) -> Opened:
    from tui.task.parts_lines import Opened

    if part.refused:
        return Opened(part)
    try:
        return Opened(part, await inspector.read(task, part.name))
    except StoreError as error:
        return Opened(part, refused=str(error))
