"""The parts of the workers screen, without Textual: who works on what at all places."""

from __future__ import annotations

from collections.abc import Sequence

from engine.text.figures import format_count
from tui.operations import worker_lines as view
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.rows_parts import RowsActions, RowsParts
from tui.session.place_session import PlaceSession
from tui.session.worker_rows import WorkerRow, all_worker_rows, count_workers
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows


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
        """The workers of all places."""
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
        """The worker under the cursor, its task, and the logs."""
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
        """The number of processes, and of the tasks that they run."""
        workers = count_workers(self._rows.values())
        tasks = sum(bool(row.task) for row in self._rows.values())
        running: Line = ((f"running {format_count(tasks, 'task')}", "muted"),)
        return Frame("Workers", "3", f"{workers}" if workers else "none", running if tasks else ())

    def details_frame(self, below: int) -> Frame:
        """The worker under the cursor."""
        if (selected := self.selected) is None:
            return Frame("no worker under the cursor")
        row, _ = selected
        who = f"PID {row.pid}" if row.pid is not None else row.owner
        return Frame(f"{who} on {row.name}" if who else row.name)

    def next_step(self, width: int) -> Line:
        """The next step for the row under the cursor, and what a key acts on."""
        if (selected := self.selected) is None:
            return next_line("", "move the cursor to a worker", "", width)
        row, session = selected
        acts_on = (row.owner or row.name) if row.pid is None else f"PID {row.pid}"
        return next_line(*view.next_step(row, session), acts_on, width)

    def copies(self) -> tuple[Copy, ...]:
        """Task, PID and place of the row, and the command that prints all rows."""
        if (selected := self.selected) is None:
            return ()
        row, _ = selected
        pid = (Copy("p", "PID", f"{row.pid}"),) if row.pid is not None else ()
        task = (Copy("i", "task", row.task),) if row.task else ()
        command = Copy("c", "command", view.print_command(self.sessions))
        return (*task, *pid, Copy("l", "place", row.place), command)
