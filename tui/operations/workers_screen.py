"""Screen of the workers of all places: who works on what, for how long, and what frees it.

It shows its parts (`tui.operations.workers_parts`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tui.operations.worker_action import show_worker_plan
from tui.operations.workers_parts import WorkersParts
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker, is_read_only
from tui.screens.keyed_screen import row_bindings
from tui.screens.rows_parts import Change
from tui.screens.rows_screen import ListPanes, RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import frame_border
from tui.widgets.line_widgets import Lines

MIN_KIND_LINES = 24
"""Height of the screen in lines from which the table of kinds is shown."""

make = RowMaker[WorkersParts, Change](keys.WORKERS, Change.NOTHING)
own, key = make.own, make.key


def _why_no_task(parts: WorkersParts) -> str:
    starts = False
    if (selected := parts.selected) is not None:
        row, session = selected
        if row.task:
            return ""
        starts = row.pid is None and bool(session.place.worker_command)
    return parts.no_row_reason("no task here" + (": W starts a worker" if starts else ""))


def _open_task(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    row, _ = parts.selected
    parts.screen.go(Target(keys.TASK, place=row.number, id=row.task))
    return Change.NOTHING


def _why_no_unlock(parts: WorkersParts) -> str:
    if (selected := parts.selected) is None:
        return parts.no_row_reason("no worker here")
    return selected[1].place.why_no_unlock(is_read_only(parts))


def _unlock(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    parts.screen.go(Target(keys.LOCK, place=parts.selected[1].number))
    return Change.NOTHING


def _why_no_place(parts: WorkersParts) -> str:
    return "" if parts.selected else parts.no_row_reason("no place here")


def _worker(parts: WorkersParts) -> Change:
    assert parts.selected is not None  # else it is refused
    _, session = parts.selected
    parts.screen.open(lambda screen: show_worker_plan(screen, session, parts.context))
    return Change.NOTHING


ROWS: tuple[KeyRow[WorkersParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    own(
        "open | enter | Enter | task | View | the task of this worker",
        _open_task,
        refusal=_why_no_task,
    ),
    KeyRow(key("pane(1)"), lambda parts: parts.screen.switch_pane()),
    KeyRow(key("reread"), WorkersParts.reread),
    *make.views(),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(
        key("unlock"),
        _unlock,
        _why_no_unlock,
        is_absent=lambda parts: (
            is_read_only(parts) or all(one.place.lock is None for one in parts.sessions)
        ),
    ),
    make.arm(Change.EDGES),
    KeyRow(key("worker"), _worker, _why_no_place, is_absent=is_read_only),
    *make.ends(),
)
"""All keys in the order of their hints; pressing one is the Textual action `key` of the screen."""


class WorkersScreen(RowsScreen):
    """The workers, and below them the kinds of task."""

    KIND = keys.WORKERS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: WorkersParts

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        """`session` is the place that the cursor starts on, if no row needs a hand."""
        super().__init__()
        self.kinds = Lines(id="kinds", classes="pane")
        self.panes = ListPanes(page_keys_scroll=True, below_details=[self.kinds])
        self.parts = WorkersParts(session, context, self, sessions)

    def paint_panes(self) -> None:
        """Paint the kinds, too; the details once more if that changed their height."""
        size, details = self.size, self.panes.details
        self.parts.height, border = details.size.height, frame_border(*size)
        super().paint_panes()
        width = self.panes.details_width(size)
        frame, lines = self.parts.kinds(width, size.height // 3 - border)
        self.kinds.display = bool(lines) and size.height >= MIN_KIND_LINES
        self.kinds.styles.height = border + len(lines)
        self.kinds.show(lines)
        self.kinds.show_frame(frame)
        self.call_after_refresh(self._fill_room)

    def _fill_room(self) -> None:
        """Paint again if the details have another height than they were painted for."""
        if self.is_paintable and self.panes.details.size.height != self.parts.height:
            self.paint()
