"""Screen of a running operation of this console: progress, orders, result."""

from __future__ import annotations

import asyncio

from textual.app import ComposeResult

from engine.replay.progress import Phase
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.verbs import VERBS
from tui.operations import replay_lines as view
from tui.operations.replay_lines import FLOW_SECONDS, SPARKLINE_CELLS
from tui.operations.replay_orders import OrderScreen
from tui.operations.worker_lines import format_seconds
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import latest_flow
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.session.runners import RunningOperation
from tui.session.running_operations import describe_result
from tui.text import keys
from tui.text.figures import format_count
from tui.text.flow_graph import graph_steps
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.times import format_clock
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker

REPAINT_SECONDS = 1.0
"""Seconds between two repaints while it runs, on every link."""

WAIT_BEFORE_SECONDS = 5.0
"""Seconds after the start for which the waiting time is not yet changed by the operation."""

MIN_TASK_ROWS = 5
"""Lines of the screen that the results have at least; the other panes are dropped for them."""


def _show_lines(pane: Lines, lines: list[Line], border: int, free: int) -> int:
    """Show a pane if it fits in `free` lines; return how many it takes."""
    pane.display = bool(lines) and len(lines) + border <= free
    pane.show(lines)
    return len(lines) + border if pane.display else 0


class ReplayScreen(OrderScreen):
    """Shows an operation; closing the screen does not stop it."""

    KIND = keys.RUNNING_OPERATION
    BINDINGS = key_bindings(keys.RUNNING_OPERATION)

    def __init__(
        self, work: RunningOperation, session: PlaceSession, context: ConsoleContext
    ) -> None:
        super().__init__(session, context)
        self.work = work
        self._wait_before: float | None = None
        """Waiting time when it began, in seconds; None if the screen was opened later."""
        self._has_moved = False
        """True if the operator moved the cursor; until then it is on the first result."""

    def compose(self) -> ComposeResult:
        """Header, state, steps, results, the queue meanwhile, next step, hints."""
        yield self.edges.top
        yield Lines(id="state", classes="pane")
        yield Lines(id="steps", classes="pane")
        yield Picker(id="rows")
        yield Lines(id="flow", classes="pane")
        yield self.edges.message
        yield self.edges.hints

    def begin(self) -> None:
        """Focus the results, and follow the operation."""
        super().begin()
        self.query_one(Picker).add_class("pane")
        self.run_worker(self._follow(), name="operation")

    async def _follow(self) -> None:
        loop, painted = asyncio.get_running_loop(), float("-inf")
        while self.work.ended is None:
            await self.work.wait_for_change()
            now = loop.time()
            if self.is_current and now - painted >= REPAINT_SECONDS:
                painted = now
                self.paint()
        self.paint()

    def trail(self) -> tuple[str, ...]:
        """The place and the operation."""
        return (self.session.name, self.work.name)

    # Painting

    @property
    def _view(self) -> view.OperationView:
        return view.operation_view(self.work, self.session.inspector.states, self.context.clock())

    def lay_out(self, width: int) -> None:
        """Paint state, steps, results and the queue meanwhile."""
        now, height = self._view, self.size.height
        border = frame_border(*self.size)
        width -= BOX_FRAME_CELLS if border == BOX else 0
        free = height - 3 - border - MIN_TASK_ROWS  # header, next step and hints
        head = view.head_lines(now, width)
        free -= border + len(head)
        self.query_one("#state", Lines).show(head)
        progress = self.work.progress
        steps = [] if progress is None else view.step_lines(progress, width)
        free -= _show_lines(self.query_one("#steps", Lines), steps, border, free)
        # From a large screen on, graphs take a third of it.
        rows = height // 3 if border == BOX else 2
        _show_lines(self.query_one("#flow", Lines), self._flow(width, rows), border, free)
        past = VERBS[self.work.plan.verb].past
        title, tasks = view.task_table(now.tasks, past, width)
        picker = self.query_one(Picker)
        picker.show_rows(tasks, [title] if tasks else [])
        if tasks and not self._has_moved:
            picker.select_key(tasks[0].key)

    def _flow(self, width: int, rows: int) -> list[Line]:
        now, wide = self.context.clock(), rows >= view.GRAPH_ROWS
        steps = graph_steps(width) if wide else 2 * SPARKLINE_CELLS
        series = self.session.flow.series(now, FLOW_SECONDS, steps)
        length = FLOW_SECONDS / steps
        before = steps - 1 - int(now // length - self.work.began // length)
        waits = [kind.wait_p95 for kind in self.session.readings.kinds or ()]
        wait = max((seconds for seconds in waits if seconds is not None), default=None)
        if now - self.work.began < WAIT_BEFORE_SECONDS:
            self._wait_before = wait
        latest = latest_flow(self.session, now)
        compared = wait, self._wait_before
        return view.flow_lines(
            series, max(0, before), width, rows=rows, wait_p95=compared, latest=latest
        )

    def show_frames(self) -> None:
        """Write the frames: who started it and when, how many results, and what comes next."""
        now, work = self._view, self.work
        age = format_seconds(max(0.0, self.context.clock() - work.began))
        who = safe_line(work.intent.who.name)
        started: Line = ((f"started {format_clock(work.began)} by {who}, {age} ago", "muted"),)
        title = f"{work.name.upper()} {format_count(work.planned, 'TASK').upper()}"
        self.query_one("#state", Lines).show_frame(Frame(title, right=started), focused=True)
        self.query_one("#steps", Lines).show_frame(Frame("Steps"))
        order: Line = (("problems first", "muted"),) if len(now.tasks) > 1 else ()
        amount = f"{len(now.tasks):,}" if now.tasks else ""
        self.query_one(Picker).show_frame(Frame("Results", "", amount, order))
        time_words = "while it runs" if work.ended is None else "while it ran"
        last: Line = (("last 10m", "muted"),)
        frame = Frame(f"{safe_line(self.session.name)} {time_words}", right=last)
        self.query_one("#flow", Lines).show_frame(frame)

    def default_message(self) -> Line:
        """The next step, and how many tasks wait."""
        now, work = self._view, self.work
        acts_on = f"{now.waiting:,} waiting" if now.waiting and work.ended is None else ""
        key, does = self._next_step(now)
        return next_line(key, does, acts_on, self.size.width)

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message; the result of this operation is on the screen, with its next step."""
        if self.work.ended is None or text != describe_result(self.work):
            super().say(text, look)

    def _next_step(self, now: view.OperationView) -> tuple[str, str]:
        progress = self.work.progress
        if progress is not None and progress.phase is Phase.ASKING:
            return "Space", "continues, s stops"
        if progress is not None and progress.phase is Phase.PAUSED:
            return "Space", "resumes, s stops"
        if now.tasks and now.tasks[0].is_problem and now.tasks[0].result not in ("gone", "skipped"):
            others = "" if "clusters" in self.without() else "; c shows other clusters"
            return "Enter", f"shows the failed task{others}"
        if work_hint := self.session.worker_hint(self.work.plan.verb):
            return "", work_hint
        if self.work.ended is None:
            return "Esc", "leaves; it continues in the background"
        if "plan_undo" not in self.without():
            return "u", "plans the undo"
        return "Esc", "goes back"

    # Keys

    def action_move(self, how: str) -> None:
        """Move through the results."""
        self._has_moved = True
        self.query_one(Picker).move(how)

    def action_open(self) -> None:
        """Open the task of the result under the cursor."""
        if ident := self.selected_key:
            self.go(Target(keys.TASK, place=self.session.number, id=ident))
        else:
            self.say(self.no_row_reason("no results yet"))

    def copies(self) -> tuple[Copy, ...]:
        """Its name in the journal, the ids of the results, and all results as text."""
        now = self._view
        _, rows = view.task_table(now.tasks, VERBS[self.work.plan.verb].past, 200)
        lines = [*view.head_lines(now, 100), *(row.line for row in rows)]
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        began = f"{self.work.name} {format_time(self.work.began)}"
        op = (Copy("o", "operation", self.work.op),) if self.work.op else ()
        ids = "\n".join(row.key for row in rows)
        return (
            *op,
            *((Copy("i", "ids", ids),) if ids else ()),
            Copy("t", "text", f"{began}\n{text}"),
        )
