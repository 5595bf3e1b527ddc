"""Look up facts about one task: log lines, parts, tasks with the same error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.destinations.request_facts import request_facts
from engine.live.inspector import Inspector
from engine.logs import merged_log, task_events
from engine.model import Part, Task
from engine.store import StoreError
from engine.text.error_text import error_text

if TYPE_CHECKING:  # mail parsing is loaded with the first payload, not at start
    from engine.places.place import Place
    from tui.task.parts_lines import Opened
    from tui.task.task_lines import LogFindings

MAX_LOG_LINES = 500

CLOCK_SKEW_SECONDS = 60.0
"""Seconds by which a task's creation time may be ahead of the log's clock."""


def search_logs(paths: Sequence[str], task: Task) -> LogFindings:
    """Search the logs for a task. Blocks."""
    from tui.task.task_lines import LogFindings

    since = task.created - CLOCK_SKEW_SECONDS if task.created > 0 else None
    try:
        log = merged_log.find_mentions(paths, task.id, MAX_LOG_LINES, since)
    except OSError as error:
        return LogFindings(merged_log.Mentions(), error_text(error))
    history = task_events.task_history(task_events.read_events(log.lines), task.id)
    attempts = task_events.task_attempts(history)
    return LogFindings(log, history=history, attempts=attempts)


def read_outputs(place: Place, findings: LogFindings, task: Task) -> LogFindings:
    """Add what the handler of a task printed. Blocks."""
    try:
        return findings._replace(outputs=tuple(place.outputs(task.id)))
    except OSError as error:
        return findings._replace(output_problem=error_text(error))


async def read_parts(inspector: Inspector, task: Task) -> tuple[Opened, ...]:
    """Read all parts of a task that may be read. Raises Gone: the task changed or no longer exists;
    Unavailable: the store cannot be reached."""
    return tuple(
        [await _read_part(inspector, task, part) for part in await inspector.actions.parts(task)]
    )


async def read_request(
    inspector: Inspector, task: Task, parts: Sequence[Part], url_fields: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """URL (in one of these fields), method, size of a delivery's request; () without one."""
    for part in parts:
        opened = await _read_part(inspector, task, part)
        if opened.data and (facts := request_facts(opened.data, url_fields)):
            return facts
    return ()


async def _read_part(inspector: Inspector, task: Task, part: Part) -> Opened:
    from tui.task.parts_lines import Opened

    if part.refusal:
        return Opened(part)
    try:
        return Opened(part, await inspector.actions.read(task, part.name))
    except StoreError as error:
        return Opened(part, refused=str(error))
