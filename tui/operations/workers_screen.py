"""Screen of the workers of all places: who works on what, for how long, and what frees it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tui.operations import worker_lines as view
from tui.operations.worker_action import show_worker_plan
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, count_workers
from tui.terminal.render_cache import Box
from tui.text import keys
from tui.text.figures import format_count
from tui.text.frames import Frame, frame_border
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker

MIN_KIND_LINES = 24
"""Height of the screen in lines from which the table of kinds is shown."""


class KindsPane(Lines):
    """The kinds of task of some places, with rate, failures and latency."""

    def show_kinds(
        self, sessions: Sequence[PlaceSession], now: float, width: int, height: int
    ) -> None:
        """Show as many kinds as `height` lines hold, the frame included."""
        kinds = view.place_kinds(sessions, now)
        border = frame_border(*self.screen.size)
        room = max(1, height - border - 1)
        several = len({kind.place for kind in kinds}) > 1
        head, lines = view.kind_table(kinds[:room], width, places=several, sources=True)
        self.display = bool(lines) and self.screen.size.height >= MIN_KIND_LINES
        self.styles.height = border + 1 + len(lines)
        self.show([head, *lines])
        self.show_frame(Frame("Kinds", amount=f"{len(kinds)}", right=(("last 10m", "muted"),)))


class WorkersScreen(ListScreen):
    """A row for each task in work, and for each place without a worker."""

    KIND = keys.WORKERS
    BINDINGS = key_bindings(keys.WORKERS)
    PAGE_KEYS_SCROLL = True

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, sessions: Sequence[PlaceSession]
    ) -> None:
        """`session` is the place that the cursor starts on, if no row needs a hand."""
        super().__init__(session, context)
        self._sessions = sessions
        self._rows: dict[str, WorkerRow] = {}
        self._has_destinations = False
        """True once a task had one: the column stays."""
        self._kinds = KindsPane(id="kinds", classes="pane")
        self._has_moved = False
        """True once the operator has moved the cursor; before, it follows what needs a hand."""

    def trail(self) -> tuple[str, ...]:
        """The workers of all places."""
        return ("workers",)

    @property
    def _selected(self) -> tuple[WorkerRow, PlaceSession] | None:
        """The row under the cursor and its place; None if it has left."""
        row = self._rows.get(self.selected_key)
        return None if row is None else (row, self._sessions[row.number - 1])

    def lay_out(self, width: int) -> None:
        """The rows, the worker under the cursor, and the kinds."""
        now = self.context.clock()
        rows = all_worker_rows(self._sessions, now)
        before, self._rows = self._selected, view.keyed_rows(rows)
        self._has_destinations |= any(row.destination for row in rows)
        head, lines = view.worker_table(
            rows, self.rows_width, has_destinations=self._has_destinations
        )
        choices = [Choice(key, line) for key, line in zip(self._rows, lines, strict=True)]
        picker = self.query_one(Picker)
        picker.show_rows(choices, [head])
        if not self._has_moved and rows:
            number = rows[0].number if rows[0].is_stuck else self.session.number
            picker.select_key(self._first_of(number))
        elif picker.is_gone and before and before[0].pid is None and not before[0].owner:
            picker.select_key(self._first_of(before[0].number))  # its first worker has come
        selected = self._selected
        text = self.query_one(LongText)
        lines = list[Line]()
        if selected is not None:
            lines = view.detail_lines(*selected, now, self.text_width, text.size.height)
        text.show(lines)
        if not self._kinds.is_attached:
            self.query_one("#body", Box).mount(self._kinds)
        self._kinds.show_kinds(self._sessions, now, self.text_width, self.size.height // 3)
        self.call_after_refresh(self._fill_room, text.size.height)

    def _first_of(self, number: int) -> str:
        """The key of the first row of a place; "" if it has none."""
        return next((key for key, row in self._rows.items() if row.number == number), "")

    def _fill_room(self, height: int) -> None:
        """Paint again if the text has got another height than it was painted for."""
        if self.is_paintable and self.query_one(LongText).size.height != height:
            self.paint()

    def rows_frame(self) -> Frame:
        """The number of processes, and of the tasks that they run."""
        workers = count_workers(self._rows.values())
        tasks = sum(bool(row.task) for row in self._rows.values())
        running: Line = ((f"running {format_count(tasks, 'task')}", "muted"),)
        return Frame("Workers", "3", f"{workers}" if workers else "none", running if tasks else ())

    def text_frame(self) -> Frame:
        """The worker under the cursor."""
        if (selected := self._selected) is None:
            return Frame("no worker under the cursor")
        row, _ = selected
        who = f"PID {row.pid}" if row.pid is not None else row.owner
        return Frame(f"{who} on {row.name}" if who else row.name)

    def default_message(self) -> Line:
        """The next step for the row under the cursor, and what a key acts on."""
        if (selected := self._selected) is None:
            return next_line("", "move the cursor to a worker", "", self.size.width)
        row, session = selected
        acts_on = (row.owner or row.name) if row.pid is None else f"PID {row.pid}"
        return next_line(*view.next_step(row, session), acts_on, self.size.width)

    # Actions

    def action_move(self, how: str) -> None:
        """Move through the rows, or scroll the details."""
        self._has_moved = True
        super().action_move(how)

    def without(self) -> Collection[str]:
        """Actions that are hidden now."""
        hidden = {"worker", "unlock", "arm"} if self.context.arming.read_only else set()
        has_lock = any(session.place.lock is not None for session in self._sessions)
        return {*super().without(), *hidden, *([] if has_lock else ["unlock"])}

    def action_open(self) -> None:
        """Open the task of the worker."""
        if (selected := self._selected) is None:
            self.say(self.no_row_reason("no task here"))
        elif not selected[0].task:
            starts = selected[0].pid is None and selected[1].place.worker_command
            self.say(self.no_row_reason("no task here" + (": W starts a worker" if starts else "")))
        else:
            self.go(Target(keys.TASK, place=selected[0].number, id=selected[0].task))

    def action_unlock(self) -> None:
        """Open the lock screen of the place."""
        if (selected := self._selected) is None:
            self.say(self.no_row_reason("no worker here"))
        elif refusal := selected[1].place.why_no_unlock(self.context.arming.read_only):
            self.say(refusal)
        else:
            self.go(Target(keys.LOCK, place=selected[1].number))

    def action_worker(self) -> None:
        """Open the plan to start a worker at the place, or to stop the one started here."""
        if (selected := self._selected) is None:
            self.say(self.no_row_reason("no place here"))
        else:
            show_worker_plan(self, selected[1], self.context)

    def copies(self) -> tuple[Copy, ...]:
        """Task, PID and place of the row, and the command that prints all rows."""
        if (selected := self._selected) is None:
            return ()
        row, _ = selected
        pid = (Copy("p", "PID", f"{row.pid}"),) if row.pid is not None else ()
        task = (Copy("i", "task", row.task),) if row.task else ()
        command = Copy("c", "command", view.print_command(self._sessions))
        return (*task, *pid, Copy("l", "place", row.place), command)
