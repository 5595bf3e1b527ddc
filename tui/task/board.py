"""All parts of a task at once, in panes, for screens that have the room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.text.figures import format_bytes
from engine.text.safe import safe_line
from tui.task import parts_lines
from tui.task import task_lines as view
from tui.task.parts_lines import Opened
from tui.task.task_lines import TaskDetails
from tui.text.frames import BOX_FRAME_CELLS, Frame
from tui.text.task_list import short_id
from tui.widgets.board import Board, Panel

FILES_LINES = 50
"""From so many lines on the facts of the files have a pane."""

LOG_SHARE = 5
"""The log has at most one in so many lines."""


IN_OTHER_PANES = ("state", "dead since")
"""Fields that the other panes show."""


def panels(
    details: TaskDetails, opened: Sequence[Opened], now: float, width: int, height: int
) -> Mapping[str, Panel]:
    """The content of each pane, for a board of that size."""
    half, task = width // 2 - BOX_FRAME_CELLS, details.task
    chip = ((f" {details.state_word.upper()} ", "chip"),)
    findings, log = details.findings, view.log_lines(details, width - BOX_FRAME_CELLS)
    many = len(findings.log.lines) if findings.log is not None else 0
    limit = "" if details.max_runs is None else f" of {details.max_runs:,}"
    size = next((part.size for part in details.parts if part.where == task.payload), None)
    payload = parts_lines.payload_lines(opened, now, half) if opened else []
    files = parts_lines.file_lines(details.parts, now, half) if height >= FILES_LINES else []
    without = IN_OTHER_PANES + (("attempts",) if findings.attempts else ())
    room = max(3, height // LOG_SHARE)
    first = Frame(short_id(task.id), amount=safe_line(task.kind), right=chip)
    return {
        "waits": Panel(first, view.head_lines(details, now, width - BOX_FRAME_CELLS)),
        "facts": Panel(Frame("Task"), view.fact_lines(details, now, half, without)),
        "timeline": Panel(Frame("Timeline"), view.timeline_lines(details, now, half)),
        "error": Panel(Frame("Last error"), view.error_lines(details, now, half)),
        "attempts": Panel(
            Frame("Attempts", amount=f"{len(findings.attempts):,}{limit}"),
            view.attempt_lines(details, now, half) if findings.attempts else [],
        ),
        "payload": Panel(
            Frame("Payload", amount="" if size is None else format_bytes(size)),
            payload[:height],
        ),
        "files": Panel(Frame("Files", amount=f"{len(details.parts):,}"), files),
        "mentions": Panel(
            Frame("Log", "t", amount=f"{many:,}"), view.last_lines(log, room) if many else []
        ),
    }


class TaskBoard(Board):
    """Why it waits above, two columns, the log below."""

    ABOVE, BELOW = ("waits",), ("mentions",)
    LEFT = ("facts", "timeline")
    RIGHT = ("error", "attempts", "files", "payload")
    FILLS = frozenset({"timeline", "payload"})
    FOCUSED = "waits"
