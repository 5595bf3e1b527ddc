"""The parts of the screen of a running operation, without Textual: progress, results, the queue
meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from engine.model import State
from engine.monitor.run_forecast import RunForecast
from engine.monitor.throughput import FlowSeries
from engine.replay.outcomes import ReplayOutcome
from engine.replay.progress import Phase
from engine.store import Unavailable
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.verbs import VERBS
from tui.operations import replay_lines as view
from tui.operations.operation_lines import (
    ListedOperation,
    can_undo,
    list_operations,
    operation_state,
)
from tui.operations.replay_lines import FLOW_SECONDS, SPARKLINE_CELLS
from tui.operations.worker_lines import format_seconds
from tui.plan.plan_lines import MAX_LISTED_TASKS
from tui.plan.planning import forecast_plan
from tui.plan.result_rows import TaskStates, read_states
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import latest_flow
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.session.place_session import PlaceSession
from tui.session.running_operations import RunningOperation, describe_result
from tui.text.frames import Frame
from tui.text.graphs import graph_steps
from tui.text.hints import next_line
from tui.text.lines import Line, Run
from tui.text.table import Choice, ShownRows
from tui.text.times import format_clock

REPAINT_SECONDS = 1.0
"""Seconds between two repaints while it runs, on every link."""

_NEEDS_ACTION: Mapping[str, str] = {
    ReplayOutcome.FAILED: "failed task",
    "refused": "refused task",
    ReplayOutcome.UNKNOWN: "task without an outcome",
}
"""Results that an operator looks into, and what such a task is called."""

WAIT_BEFORE_SECONDS = 5.0
"""Seconds after the start for which the waiting time is not yet changed by the operation."""


class RunningParts(RowsParts):
    """An operation of this console; its rows are the results, problems first."""

    def __init__(
        self,
        work: RunningOperation,
        session: PlaceSession,
        context: ConsoleContext,
        screen: RowsActions,
    ) -> None:
        super().__init__(session, context, screen)
        self.work = work
        self._now = TaskStates()
        self._runs = RunForecast(None)
        self._flow_before: FlowSeries | None = None
        self._wait_before: float | None = None
        """Waiting time when it began, in seconds; None if the screen was opened later."""

    def start(self) -> None:
        self.screen.run("operation", self.follow)
        self.screen.run("states", self._follow_states)

    async def _follow_states(self) -> Change:
        """Read where the tasks with a result are now, also after the end."""
        while True:
            if self.screen.is_current:
                ids = {task.id for task in self._view.tasks[:MAX_LISTED_TASKS]}
                self._now = await read_states(self.session.inspector, ids)
                if self.work.ended is None:
                    settled = {task.id for task in self._view.tasks if task.is_problem}
                    self._runs = RunForecast(None)
                    with suppress(Unavailable):
                        self._runs = await forecast_plan(self.session, self.work.plan, settled)
                self.screen.show_change(Change.ROWS)
            await asyncio.sleep(REPAINT_SECONDS)

    async def follow(self) -> Change:
        """Show what changes until it has ended."""
        loop, painted = asyncio.get_running_loop(), float("-inf")
        while self.work.ended is None:
            await self.work.wait_for_change()
            now = loop.time()
            if self.screen.is_current and now - painted >= REPAINT_SECONDS:
                painted = now
                self.screen.show_change(Change.ROWS)
        return Change.ROWS

    @property
    def _listed(self) -> ListedOperation | None:
        """It as the journal has it, with what later operations undid; None while it runs."""
        if self.work.ended is None:
            return None
        op, known = self.work.op, self.session.history.operations
        its = [one for one in known if op in (one.op, one.intent.undoes, one.intent.follows)]
        return next((one for one in list_operations(its) if one.operation.op == op), None)

    @property
    def is_undoable(self) -> bool:
        """True if a task that it changed has not run since, and was not restored."""
        work = self.work
        if not work.op or not VERBS[work.plan.verb].is_undoable:
            return False
        one = self._listed
        if one is not None and one.operation.is_running:
            one = None  # read before its outcomes were written
        if one is not None and not can_undo(one, self.context.clock()):
            return False
        if work.progress is None:
            return work.report is not None and bool(work.report.done)
        return work.progress.tally.waiting > 0

    @property
    def _view(self) -> view.OperationView:
        now = view.operation_view(self.work, self.session.inspector.states, self.context.clock())
        if now.sending is not None and self._runs.seconds and not self._runs.unknown:
            now = now._replace(eta=max(self._runs.seconds, now.sending))
        if (one := self._listed) is None or not one.undone:
            return now
        word, _, more = operation_state(one)
        undone: Run = (f"{word}: {more}", "")
        return now._replace(state=(word.upper(), "muted"), reasons=(*now.reasons, undone))

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message, but not the result of this operation, which is on the screen."""
        is_shown = self.work.ended is not None and text == describe_result(self.work)
        return Change.NOTHING if is_shown else super().say(text, style)

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, self.work.words.name)

    def rows(self, width: int) -> ShownRows:
        title, tasks = self._task_table(self._view, width)
        if tasks:
            self.lead(tasks[0].key)
        return ShownRows(title if tasks else (), tasks)

    def _task_table(self, now: view.OperationView, width: int) -> tuple[Line, list[Choice]]:
        words = self.session.inspector.states
        return view.task_table(now.tasks, self.work.words.past, width, self._now, words)

    def details(self, width: int) -> list[Line]:
        return view.head_lines(self._view, width)

    def steps(self, width: int) -> list[Line]:
        """The steps of a replay."""
        progress = self.work.progress
        return [] if progress is None else view.step_lines(progress, width)

    def flow(self, width: int, rows: int) -> list[Line]:
        """The queue before and since the start; graphs if so many rows hold them."""
        flow, now, began = self.session.flow, self.context.clock(), self.work.began
        steps = graph_steps(width) if rows >= view.GRAPH_ROWS else 2 * SPARKLINE_CELLS
        series = flow.series(now, FLOW_SECONDS, steps)
        before = self._flow_before or flow.series(began - 1, FLOW_SECONDS, int(FLOW_SECONDS))
        self._flow_before = before  # its samples are forgotten after ten minutes
        waits = [kind.wait_p95 for kind in self.session.readings.kinds or ()]
        wait = max((seconds for seconds in waits if seconds is not None), default=None)
        self._wait_before = wait if now - began < WAIT_BEFORE_SECONDS else self._wait_before
        latest, compared = latest_flow(self.session, now), (wait, self._wait_before)
        return view.flow_lines(series, before, width, rows=rows, wait_p95=compared, latest=latest)

    def rows_frame(self) -> Frame:
        results = len(self._view.tasks)
        order: Line = (("problems first", "muted"),) if results > 1 else ()
        frame = Frame("Results", "", f"{results:,}" if results else "", order)
        why = self.why_old if self.work.ended is None else ""  # then no result changes
        return frame.marked(why) if why else frame

    def details_frame(self, below: int) -> Frame:
        work = self.work
        age = format_seconds(max(0.0, self.context.clock() - work.began))
        who = safe_line(work.intent.who.name)
        started: Line = ((f"started {format_clock(work.began)} by {who}, {age} ago", "muted"),)
        title = f"{work.words.name.upper()} {format_count(work.planned, 'TASK').upper()}"
        return Frame(title, right=started)

    def flow_frame(self) -> Frame:
        """The place, while it runs or since it began."""
        when = "while it runs" if self.work.ended is None else "since it began"
        frame = Frame(f"{safe_line(self.session.name)} {when}", right=(("last 10m", "muted"),))
        return frame.marked(why) if (why := self.why_old) else frame

    def next_step(self, width: int) -> Line:
        now, work = self._view, self.work
        acts_on = f"{now.waiting:,} waiting" if now.waiting and work.ended is None else ""
        return next_line(*self._next_step(now), acts_on, width)

    def _next_step(self, now: view.OperationView) -> tuple[str, str]:
        progress = self.work.progress
        if progress is not None and progress.phase is Phase.ASKING:
            return "Space", "continues, s stops"
        if progress is not None and progress.phase is Phase.PAUSED:
            return "Space", "resumes, s stops"
        if now.tasks and (what := _NEEDS_ACTION.get(now.tasks[0].result)):
            others = "" if progress is None else "; c shows other clusters"
            return "Enter", f"shows the {what}{others}"
        if work_hint := self.session.worker_hint(self.work.plan.verb):
            return "", work_hint
        if self.work.ended is None:
            return "Esc", "leaves; it continues in the background"
        left = self.session.inspector.latest.counts.get(State.DEAD, 0)
        rest = f"{format_count(left, 'dead task')} left"
        if self.is_undoable:
            return "u", f"plans the undo{f'; 4 lists {rest}' if left else ''}"
        return ("c", f"groups {rest}") if left and progress is not None else ("Esc", "goes back")

    def copies(self) -> tuple[Copy, ...]:
        now = self._view
        _, rows = self._task_table(now, 200)
        lines = [*view.head_lines(now, 100), *(row.line for row in rows)]
        text = "\n".join("".join(text for text, _ in line).rstrip() for line in lines)
        began = f"{self.work.words.name} {format_time(self.work.began)}"
        op = (Copy("o", "operation", self.work.op),) if self.work.op else ()
        ids = "\n".join(row.key for row in rows)
        return (
            *op,
            *((Copy("i", "ids", ids),) if ids else ()),
            Copy("t", "text", f"{began}\n{text}"),
        )
