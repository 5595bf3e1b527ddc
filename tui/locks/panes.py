"""The panes of the lock screen: verdict, steps, tasks in work, evidence; side by side if wide."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.screen import Screen

from tui.locks import lock_lines as view
from tui.locks.examination import LockReport
from tui.locks.lock_plan import LockPlan
from tui.screens.graph_pane import GraphPane
from tui.screens.list_panes import WIDE_COLUMNS, WIDE_LINES
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.terminal.render_cache import Box
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.lines import Line, section
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines, LongText
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


class LockPanes:
    """Paints a report on a lock, and the plan to free it."""

    def __init__(self, screen: Screen[None], session: PlaceSession, plan: LockPlan) -> None:
        self._screen, self._session, self._plan = screen, session, plan
        self.text, self.works = LongText(id="text"), Picker(id="works")
        self._verdict = Lines(id="verdict", classes="pane")
        self._steps = Lines(id="steps", classes="pane")
        self._graph = Lines(id="graph", classes="pane")
        self._body, self._left = Box(id="body"), Box(id="left")
        self.graph_pane = GraphPane()

    def compose(self) -> ComposeResult:
        yield TopLine(id="title")
        self.text.add_class("pane")
        yield self._verdict
        with self._body:
            with self._left:
                yield self._steps
                yield self.works
                yield self._graph
            yield self.text
        yield Lines(id="word")
        yield Lines(id="next")
        yield Lines(id="hints")

    @property
    def is_wide(self) -> bool:
        """True if the evidence is beside the steps."""
        width, height = self._screen.size
        return width >= WIDE_COLUMNS and height >= WIDE_LINES

    @property
    def _border(self) -> int:
        return frame_border(*self._screen.size)

    def _inside(self, width: int) -> int:
        return width - (BOX_FRAME_CELLS if self._border == BOX else 0)

    def show(
        self, report: LockReport | None, now: float, refused: str, slipped: Callable[[], None]
    ) -> None:
        """Paint a report. `refused` says why the tasks in work cannot be changed; `slipped` is
        called if the one under the cursor has left.
        """
        width, is_wide = self._screen.size.width, self.is_wide
        left_width = width // 2 if is_wide else width
        self._body.styles.layout = "horizontal" if is_wide else "vertical"
        self._left.styles.width = left_width if is_wide else "100%"
        self._left.styles.height = "1fr" if is_wide else "auto"
        if report is None:
            self.text.show([((" examining the lock ...", "muted"),)])
            return
        self._show_verdict(report, now, self._inside(width))
        self._steps.display = bool(self._border)
        steps = self._plan.step_lines(report, self._inside(left_width), with_notes=is_wide)
        self._steps.show(steps)
        name, right = self._plan.heading(report)
        self._steps.show_frame(Frame(name, right=right), focused=self._plan.is_open)
        self._show_tasks(report, now, self._inside(left_width), refused, slipped)
        self._graph.display = is_wide
        if is_wide:
            self.graph_pane.show(self._graph, self._session, now, self._inside(left_width))
        text_width = self._inside(width - left_width if is_wide else width)
        self.text.show(self._text(report, now, text_width))

    def show_text_frame(self, report: LockReport | None) -> None:
        """The frame of the evidence, or of the output of the recovery."""
        if not self.text.is_attached:
            return  # the screen was removed before this call, which the layout had put off
        more: Line = ((f"{self.text.below} more below", "muted"),) if self.text.below else ()
        if self._plan.is_begun:
            self.text.show_frame(Frame("Output", right=more))
            return
        sure = "" if report is None else f"verdict: {report.finding.certainty}"
        proofs = view.count_proofs(report) if report else ""
        self.text.show_frame(Frame("Evidence", "", proofs, more or ((sure, "muted"),)))

    def _show_verdict(self, report: LockReport, now: float, width: int) -> None:
        part = self._verdict
        part.display = bool(self._border)
        timeline = view.timeline_lines(report, now, width) if self.is_wide else []
        part.show([*view.verdict_lines(report, now, width), *timeline])
        nothing = "plan, nothing done yet" if self._plan.is_open else ""
        name = self._session.name
        name = f"UNLOCK {name}" if nothing else f"Lock of {name}"
        part.show_frame(Frame(name, right=((nothing, "muted"),) if nothing else ()))

    def _show_tasks(
        self,
        report: LockReport,
        now: float,
        width: int,
        refused: str,
        slipped: Callable[[], None],
    ) -> None:
        picker, height = self.works, self._screen.size.height
        rows = [
            Choice(w.task.id, view.active_task_line(w, report, now, width))
            for w in report.active_tasks
        ]
        visible_rows = min(len(rows), max(MIN_TASK_LINES, height // 6))
        picker.display = bool(rows) and height >= 15
        picker.set_class(bool(self._border), "pane")
        picker.styles.height = visible_rows + self._border
        picker.activate(report.is_abandoned)
        before = picker.key
        picker.show_rows(rows)
        picker.show_frame(active_tasks_frame(report, refused))
        if before not in ("", picker.key):
            slipped()

    def _text(self, report: LockReport, now: float, width: int) -> list[Line]:
        """What scrolls: evidence and logs, or the output; on small screens all of it."""
        text: list[Line] = []
        if not self._border:
            text += view.verdict_lines(report, now, width)
            text += section("steps", self._plan.step_lines(report, width, with_notes=False))
        if self._plan.is_begun:
            text += self._plan.result_lines(self._session.inspector.states, now, width)
        facts = view.evidence_lines(report, width)
        works = view.active_task_lines(report, now, width)
        titled = self._plan.is_begun or not self._border
        text += section("evidence", facts) if titled else facts
        return [*text, *(section("tasks in work, by the logs", works) if works else [])]
