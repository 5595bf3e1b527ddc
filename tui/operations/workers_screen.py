"""Screen of the workers of all places: who works on what, for how long, and what frees it."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.figures import format_count
from tui.operations import worker_lines as view
from tui.operations.worker_action import show_worker_plan
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow
from tui.screens.keyed_screen import row_bindings
from tui.screens.list_panes import ListPanes
from tui.screens.row_maker import RowMaker, is_read_only
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.rows_screen import RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, count_workers
from tui.text import keys
from tui.text.frames import Frame, frame_border
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows
from tui.widgets.line_widgets import Lines


class WorkersParts(RowsParts):
    """A row for each task in work, and for each place without a worker."""

    def __init__(
        self,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
        sessions: Sequence[PlaceSession],
    ) -> None:
        """`session` is the place that the cursor starts on, if no row needs a hand."""
        super().__init__(session, context, screen)
        self.sessions = sessions
        self.height = 0
        """Lines for the details: the logs get what is left of them."""
        self._rows: dict[str, WorkerRow] = {}
        self._has_destinations = False
        """True once a task had one: the column stays."""

    @property
    def selected(self) -> tuple[WorkerRow, PlaceSession] | None:
        """The row under the cursor and its place; None if it has left."""
        row = self._rows.get(self.screen.cursor.key)
        return None if row is None else (row, self.sessions[row.number - 1])

    @property
    def selected_session(self) -> PlaceSession:
        """Its place, or the one that was open before."""
        return self.selected[1] if self.selected else self.session

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return ("workers",)

    def rows(self, width: int) -> ShownRows:
        """The worst first; the cursor follows it, or the first worker of a place without one."""
        rows = all_worker_rows(self.sessions, self.context.clock())
        key, before, self._rows = self.screen.cursor.key, self.selected, view.keyed_rows(rows)
        if before and key not in self._rows and before[0].pid is None and not before[0].owner:
            self.aim = self._first_of(before[0].number)  # its first worker has come
        if rows:
            self.lead(self._first_of(rows[0].number if rows[0].is_stuck else self.session.number))
        self._has_destinations |= any(row.destination for row in rows)
        head, lines = view.worker_table(rows, width, has_destinations=self._has_destinations)
        return ShownRows(head, [Choice(*row) for row in zip(self._rows, lines, strict=True)])

    def _first_of(self, number: int) -> str:
        """The key of the first row of a place; "" if it has none."""
        return next((key for key, row in self._rows.items() if row.number == number), "")

    def details(self, width: int) -> list[Line]:
        if (selected := self.selected) is None:
            return []
        return view.detail_lines(*selected, self.context.clock(), width, self.height)

    def kinds(self, width: int, height: int) -> tuple[Frame, list[Line]]:
        """The kinds of task with rate, failures and latency, as many as so many lines hold."""
        kinds = view.place_kinds(self.sessions, self.context.clock())
        frame = Frame("Kinds", amount=f"{len(kinds)}", right=(("last 10m", "muted"),))
        several, shown = len({kind.place for kind in kinds}) > 1, kinds[: max(1, height - 1)]
        head, lines = view.kind_table(shown, width, places=several, sources=True)
        return frame, [head, *lines] if lines else []

    def rows_frame(self) -> Frame:
        workers = count_workers(self._rows.values())
        tasks = sum(bool(row.task) for row in self._rows.values())
        running: Line = ((f"running {format_count(tasks, 'task')}", "muted"),)
        return Frame("Workers", "3", f"{workers}" if workers else "none", running if tasks else ())

    def details_frame(self, below: int) -> Frame:
        if (selected := self.selected) is None:
            return Frame("no worker under the cursor")
        row, _ = selected
        who = f"PID {row.pid}" if row.pid is not None else row.owner
        return Frame(f"{who} on {row.name}" if who else row.name)

    def next_step(self, width: int) -> Line:
        if (selected := self.selected) is None:
            return next_line("", "move the cursor to a worker", "", width)
        row, session = selected
        acts_on = (row.owner or row.name) if row.pid is None else f"PID {row.pid}"
        return next_line(*view.next_step(row, session), acts_on, width)

    def copies(self) -> tuple[Copy, ...]:
        if (selected := self.selected) is None:
            return ()
        row, _ = selected
        pid = (Copy("p", "PID", f"{row.pid}"),) if row.pid is not None else ()
        task = (Copy("i", "task", row.task),) if row.task else ()
        command = Copy("c", "command", view.print_command(self.sessions))
        return (*task, *pid, Copy("l", "place", row.place), command)


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


class WorkersScreen(RowsScreen):
    """The workers, and below them the kinds of task."""

    KIND = keys.WORKERS
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: WorkersParts

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
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
