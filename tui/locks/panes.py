"""The panes of the lock screen: verdict, steps, tasks in work, evidence; side by side if wide."""

from __future__ import annotations

from textual.app import ComposeResult

from tui.locks import lock_lines as view
from tui.locks.examination import LockReport
from tui.locks.question import LockQuestion
from tui.screens.base import opened_from
from tui.screens.console_context import ConsoleContext
from tui.screens.graph_pane import GraphPane, GraphScreen
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Box
from tui.text import keys
from tui.text.lines import Line, section
from tui.text.table import Choice
from tui.widgets.line_widgets import Frame, Lines, LongText
from tui.widgets.picker import Picker

MIN_TASK_LINES = 3
"""Minimum number of active tasks on screen; a sixth of the height if that is more."""


def active_tasks_frame(report: LockReport, refused: str) -> Frame:
    """The frame of the active tasks: their number and their keys."""
    keys: Line = (
        ("H", "key"),
        (" hold  ", "muted"),
        ("L", "key"),
        (" release  ", "muted"),
        ("K", "key"),
        (" to the DLQ", "muted"),
    )
    whose: Line = (("no worker" if report.is_abandoned else "worker alive", "muted"),)
    right = whose if refused else keys
    return Frame("Tasks in work", "", f"{report.active_count:,}", right)


class LockPanes(GraphScreen, LockQuestion):
    """Paints the last report on a lock, and the plan to free it."""

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__(session, context)
        self.graph_pane = GraphPane()

    def graph_place(self) -> PlaceSession:
        """The place with the lock."""
        return self._session

    def compose(self) -> ComposeResult:
        """The verdict; steps and tasks in work beside the evidence; question, next step, hints."""
        yield TopLine(id="title")
        yield Lines(id="verdict", classes="pane")
        with Box(id="body"):
            with Box(id="left"):
                yield Lines(id="steps", classes="pane")
                yield Picker(id="works")
                yield Lines(id="graph", classes="pane")
            yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="next")
        yield Lines(id="hints")

    def text_frame(self) -> Frame | None:
        """The evidence, or the output of the recovery."""
        report = self._exam.report
        below = self.query_one("#text", LongText).below
        more: Line = ((f"{below} more below", "muted"),) if below else ()
        if self._plan.is_begun:
            return Frame("Output", right=more)
        sure = "" if report is None else f"verdict: {report.finding.certainty}"
        return Frame(
            "Evidence", "", view.count_proofs(report) if report else "", more or ((sure, "muted"),)
        )

    def lay_out(self, width: int) -> None:
        """Paint verdict, evidence, tasks in work, and plan or result for this width."""
        if not self.is_paintable or not width:
            return  # closed during the examination
        report, now = self._exam.report, self._clock()
        wide = self.is_wide
        left_width = width // 2 if wide else width
        self.query_one("#body").styles.layout = "horizontal" if wide else "vertical"
        self.query_one("#left").styles.width = left_width if wide else "100%"
        self.query_one("#left").styles.height = "1fr" if wide else "auto"
        if report is None:
            self.show((), [((" examining the lock ...", "muted"),)], ())
            return
        self._show_verdict(report, now, width)
        self._show_steps(report, self._inside(left_width))
        self._list_active_tasks(report, now, self._inside(left_width))
        self._show_graph(now, left_width)
        text = self._text(report, now, self._inside(width - left_width if wide else width))
        self.show((), text, self.prompt_line())
        self.show_title((), self.scope_words(report))
        arm = {"arm": keys.arm_hint(self._arming.is_armed)}
        self.show_hints(self.disabled_actions(), self.without(), arm)
        self.call_after_refresh(self._frame_text)  # the lines below are known then

    def show_title(self, title: Line, acts_on: str = "") -> None:
        """Show the path with the verdict, and the frame of the evidence."""
        self._acts_on, self._was_armed = acts_on, self._arming.is_armed
        report = self._exam.report
        step = "lock" if report is None else f"lock {report.evidence.verdict.upper()}"
        below, target = opened_from(self), Target(keys.LOCK, place=self._session.number)
        if below is not None and (words := below.row_words(target)):
            step = f"{step}  {words}"
        self.query_one("#title", TopLine).update_line(
            self._console_context, (self._session.name, step)
        )
        self._frame_text()
        self._show_foot()

    def _frame_text(self) -> None:
        if self.is_paintable and (frame := self.text_frame()) is not None:
            self.query_one("#text", LongText).show_frame(frame)

    def _show_verdict(self, report: LockReport, now: float, width: int) -> None:
        part, room = self.query_one("#verdict", Lines), self._inside(width)
        part.display = bool(self._border)
        lines = view.verdict_lines(report, now, room)
        part.show([*lines, *(view.timeline_lines(report, now, room) if self.is_wide else [])])
        nothing = "plan, nothing done yet" if self._has_plan else ""
        name = f"UNLOCK {self._session.name}" if nothing else f"Lock of {self._session.name}"
        part.show_frame(Frame(name, right=((nothing, "muted"),) if nothing else ()))

    def _show_steps(self, report: LockReport, width: int) -> None:
        part = self.query_one("#steps", Lines)
        part.display = bool(self._border)
        part.show(self._plan.step_lines(report, width, with_notes=self.is_wide))
        name, right = self._plan.heading(report)
        part.show_frame(Frame(name, right=right), focused=self._has_plan)

    def _list_active_tasks(self, report: LockReport, now: float, width: int) -> None:
        picker = self.query_one("#works", Picker)
        rows = [
            Choice(w.task.id, view.active_task_line(w, report, now, width))
            for w in report.active_tasks
        ]
        visible_rows = min(len(rows), max(MIN_TASK_LINES, self.size.height // 6))
        picker.display = bool(rows) and self.size.height >= 15
        picker.set_class(bool(self._border), "pane")
        picker.styles.height = visible_rows + self._border
        picker.activate(report.is_abandoned)
        before = picker.key
        picker.show_rows(rows)
        picker.show_frame(active_tasks_frame(report, self.verbs_refusal()))
        if before not in ("", picker.key):
            self.cursor_slipped()

    def _show_graph(self, now: float, width: int) -> None:
        part, room = self.query_one("#graph", Lines), self._inside(width)
        part.display = self.is_wide
        if self.is_wide:
            self.graph_pane.show(part, self._session, now, room)

    def _text(self, report: LockReport, now: float, width: int) -> list[Line]:
        """What scrolls: evidence and logs, or the output; on small screens all of it."""
        text: list[Line] = []
        if not self._border:
            text += view.verdict_lines(report, now, width)
            text += section("steps", self._plan.step_lines(report, width, with_notes=False))
        if self._plan.is_begun:
            text += self._plan.result_lines(self._inspector.states, now, width)
        facts, works = (
            view.evidence_lines(report, width),
            view.active_task_lines(report, now, width),
        )
        titled = self._plan.is_begun or not self._border
        text += section("evidence", facts) if titled else facts
        return [*text, *(section("tasks in work, by the logs", works) if works else [])]
