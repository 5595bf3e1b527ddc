"""The lock screen: verdict, evidence, active tasks, and a plan to free the lock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from textual.app import ComposeResult
from textual.geometry import Region
from textual.screen import Screen
from textual.widget import Widget

from engine.index.schema import Query
from engine.model import State, Verdict
from engine.monitor import lock_diagnosis
from engine.operations.execute import Report
from engine.operations.plans import verb_refusal
from engine.places.place_watcher import why_not_abandoned
from engine.text.safe import safe_line
from engine.verbs import VERBS
from tui.confirm.confirm_screen import ConfirmScreen, PlanWords
from tui.locks import lock_lines as view
from tui.locks.examination import READING_LOGS, LockExaminer, LockReport
from tui.locks.lock_plan import LockPlan
from tui.operations.workers_screen import show_worker_plan
from tui.plan import planning
from tui.screens.base import PASTED, key_bindings, opened_from
from tui.screens.console_context import READ_ONLY, ConsoleContext
from tui.screens.edge_lines import TopLine
from tui.screens.graph_pane import MIN_GRAPH_LINES, GraphPane
from tui.screens.place_foot import MIN_LOG_LINES
from tui.screens.rows_screen import TALL_LINES, is_large
from tui.screens.target import SCREEN_TARGETS, Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border, more_below
from tui.text.lines import Line, fold_long_lines, section
from tui.text.log_line import shorten_ids, whole_log_line
from tui.text.table import Choice
from tui.widgets.background import run_in_background
from tui.widgets.divided import DividedBox
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker

FIXED_LINES = 4
"""Header, question, message line and hints."""

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
        self._body = DividedBox(self._steps, self.works, self._graph, self.text, id="body")
        self.graph_pane = GraphPane()

    def compose(self) -> ComposeResult:
        yield TopLine(id="title")
        self.text.add_class("pane", update=False)  # styled when mounted
        yield self._verdict
        yield self._body
        yield Lines(id="word")
        yield Lines(id="next")
        yield Lines(id="hints")

    @property
    def is_wide(self) -> bool:
        """True if there is room for the graph."""
        return is_large(self._screen.size)

    @property
    def _is_beside(self) -> bool:
        """True if the evidence is beside the steps: not if no log fills the lines below it."""
        is_tall = self._screen.size.height >= TALL_LINES
        return self.is_wide and (not is_tall or bool(self._session.readings.log))

    @property
    def _border(self) -> int:
        return frame_border(*self._screen.size)

    def _inside(self, width: int) -> int:
        return width - (BOX_FRAME_CELLS if self._border == BOX else 0)

    def show(
        self, report: LockReport | None, now: float, refused: str, slipped: Callable[[], None]
    ) -> None:
        """Paint a report. `refused` says why the tasks in work cannot be changed; `slipped` is
        called if the one under the cursor has left."""
        width = self._screen.size.width
        left_width = width // 2 if self._is_beside else width
        if report is None:
            self.text.show([((" examining the lock ...", "muted"),)])
            self._body.place(self._divide({}))
            return
        self._show_verdict(report, now, self._inside(width))
        steps = self._plan.step_lines(report, self._inside(left_width), with_notes=self.is_wide)
        self._steps.show(steps)
        name, right = self._plan.heading(report)
        self._steps.show_frame(Frame(name, right=right), focused=self._plan.is_open)
        tasks = self._show_tasks(report, now, self._inside(left_width), refused, slipped)
        text_width = self._inside(width - left_width if self._is_beside else width)
        self.text.show(self._text(report, now, text_width))
        steps_lines = len(steps) + self._border if self._border else 0
        regions = self._divide({self._steps: steps_lines, self.works: tasks})
        self._body.place(regions)
        if graph := regions[self._graph]:
            self.graph_pane.show(self._graph, self._session, now, self._inside(graph.width))

    def _divide(self, needs: Mapping[Widget, int]) -> dict[Widget, Region]:
        """The regions of the panes, and of the graph in what they leave of a wide screen."""
        width, height = self._screen.size
        verdict = len(self._verdict.lines) + self._border if self._border else 0
        room, regions = Region(0, 0, width, max(0, height - FIXED_LINES - verdict)), {}
        left, right = room.split_vertical(width // 2) if self._is_beside else (room, Region())
        for pane, lines in needs.items():
            regions[pane], left = left.split_horizontal(min(lines, left.height))
        if not self._is_beside:
            free = left.height - len(self.text.lines) - self._border
            graph = free if self.is_wide and free >= self._border + MIN_GRAPH_LINES else 0
            right, left = left.split_horizontal(left.height - graph)
        return {**regions, self._graph: left, self.text: right}

    def show_text_frame(self, report: LockReport | None) -> None:
        """The frame of the evidence, or of the output of the recovery."""
        if not self.text.is_attached:
            return  # the screen was removed before this call, which the layout had put off
        more = more_below(self.text.below)
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
    ) -> int:
        """Show them and return the lines that they need."""
        picker, height = self.works, self._screen.size.height
        rows = [
            Choice(w.task.id, view.active_task_line(w, report, now, width))
            for w in report.active_tasks
        ]
        visible_rows = min(len(rows), max(MIN_TASK_LINES, height // 6))
        picker.set_class(bool(self._border), "pane")
        picker.activate(report.is_abandoned)
        before = picker.key
        picker.show_rows(rows)
        picker.show_frame(active_tasks_frame(report, refused))
        if before not in ("", picker.key):
            slipped()
        return visible_rows + self._border if rows and height >= 15 else 0

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
        text += section("evidence", facts) if titled and facts else facts
        text += section("tasks in work, by the logs", works) if works else []
        room = self.text.size.height - len(text) - 2  # a blank line and the title
        most = MAX_LOG_LINES if self._plan.is_begun else room * (room >= MIN_LOG_LINES)
        known = self._session.readings.log[-most:] if most else ()
        if self.is_wide and known:
            whole = [whole_log_line(n.when, n.level, shorten_ids(n.text)) for n in known]
            rows = 3 * len(whole) if self._plan.is_begun else 0  # the output scrolls
            lines = fold_long_lines(whole, width, rows)
            text += section(f"log of {safe_line(self._session.name)}", lines)
        return text


EXAMINE_SECONDS = 1.0

MAX_LOG_LINES = 30
"""Lines of the place's log below the output of a recovery; below the evidence, as many as fit."""

OUTPUT_READ_SECONDS = 0.2

CURSOR_CHANGE_SECONDS = 0.3
"""Seconds after a change of the cursor's task during which verbs are refused."""

LOG_READ_TIMEOUT_SECONDS = 5.0
"""Seconds to wait for the logs before the lock may be freed without them."""


class LockScreen(ConfirmScreen):
    """Live evidence, a plan for the lock as first seen, and plans for the tasks of its worker."""

    KIND = keys.LOCK
    BINDINGS = key_bindings(keys.LOCK)
    digits_name = "PID"

    def __init__(
        self,
        session: PlaceSession,
        free: Callable[[str, Sequence[str]], None],
        context: ConsoleContext,
    ) -> None:
        """`free` starts the recovery of the lock that was seen; it gets ids of tasks to hold."""
        super().__init__(session, context)
        self._free = free
        self._exam, self._plan = LockExaminer(session), LockPlan(session)
        self._panes = LockPanes(self, session, self._plan)
        self._opened = self._slipped = float("-inf")

    def compose(self) -> ComposeResult:
        yield from self._panes.compose()

    def on_mount(self) -> None:
        self._opened = asyncio.get_running_loop().time()
        self._exam.report = self._exam.first_report()  # the first frame has its final layout
        run_in_background(self, self._watch, name="lock")
        run_in_background(self, self._follow, name="recovery")

    async def _watch(self) -> None:
        while True:
            await self._examine()
            if await self._exam.read_logs():
                await self._examine()
            await asyncio.sleep(EXAMINE_SECONDS)

    async def _examine(self) -> None:
        is_first = self._plan.planned is None
        evidence = (await self._exam.examine()).evidence
        await self._plan.read_task_results()
        withdrawn = self._plan.check(evidence)
        if is_first:
            self.plan_changed()
        if withdrawn:
            self.confirmation.typed = ""
            self.message.clear()
        self.lay_out()

    async def _follow(self) -> None:
        recovery, painted = self.session.recovery, None
        while True:
            progress = (recovery.running, recovery.lines)
            if self._plan.is_begun and progress != painted:
                painted = progress
                await self._examine()
            await asyncio.sleep(OUTPUT_READ_SECONDS)

    @property
    def expected_digits(self) -> str:
        return self._plan.expected_digits

    def why_not_applicable(self) -> str:
        return self._plan.why_not_applicable()

    def why_wait(self) -> str:
        """Wait for the logs: without them, tasks that already finished would run again."""
        report = self._exam.report
        unread = report is not None and any(
            work.log_summary.unknown == READING_LOGS for work in report.active_tasks
        )
        if unread and asyncio.get_running_loop().time() - self._opened < LOG_READ_TIMEOUT_SECONDS:
            return f"still {READING_LOGS}: type it again in a moment"
        return ""

    def apply_plan(self) -> None:
        """Start the recovery process for the planned lock only."""
        report, planned = self._exam.report, self._plan.planned
        assert report is not None
        assert planned is not None
        hold = self._plan.begin(report)
        self._panes.text.move("first")
        self._free(planned.identity, hold)

    def describe(self) -> PlanWords:
        key, does = self._plan.next_step(self.context.arming.is_armed)
        if key in ("!", "W") and self.context.arming.read_only:
            key, does = "", READ_ONLY
        return super().describe()._replace(key=key, does=does)

    def lay_out(self) -> None:
        if not self.is_paintable or not self.size.width:
            return  # closed during the examination
        report, refused = self._exam.report, self.verbs_refusal()
        self._panes.show(report, self.context.clock(), refused, self._note_slip)
        if report is None:
            return
        self.bar = self._plan.bar_line(report, self.confirmation, self.size.width)
        self._show_scope()
        self.show_path()
        self.show_foot()
        self.show_hints()
        self.call_after_refresh(
            self._panes.show_text_frame, report
        )  # the lines below are known then

    def show_path(self) -> None:
        report, below = self._exam.report, opened_from(self)
        step = "lock" if report is None else f"lock {report.evidence.verdict.upper()}"
        target = Target(keys.LOCK, place=self.session.number)
        if below is not None and (words := below.row_words(target)):
            step = f"{step}  {words}"
        self.step = step
        super().show_path()

    def _show_scope(self) -> None:
        """Note what a key acts on: another row may be under the cursor."""
        if (report := self._exam.report) is not None:
            row = "" if self.verbs_refusal() else safe_line(self._panes.works.key)
            self.acts_on = self._plan.acts_on(report, row)

    def _note_slip(self) -> None:
        """The task under the cursor has left: verbs are refused for a moment."""
        self._slipped = asyncio.get_running_loop().time()

    def action_digit(self, digit: str) -> None:
        """Type the PID; once the recovery has ended, open the screen of that digit."""
        is_ended = self._plan.is_begun and not self.session.recovery.running
        if is_ended and digit in SCREEN_TARGETS:
            self.go(SCREEN_TARGETS[digit])
        else:
            super().action_digit(digit)

    def action_move(self, how: str) -> None:
        """Move the cursor if several tasks are active; otherwise scroll."""
        self.message.clear()
        picker = self._panes.works
        if how in ("down", "up") and len(picker.rows) > 1:
            picker.move(how)
        else:
            self._panes.text.move(how)
            self._panes.show_text_frame(self._exam.report)  # it counts the lines below
        self._show_scope()
        self.show_foot()

    def without(self) -> set[str]:
        """Keys without a function; arming is available if there are tasks to act on."""
        lock, has_use = self._plan.planned, self.session.lacks_worker or self._plan.is_begun
        has_use |= lock is not None and lock.verdict is Verdict.STALE
        without = super().without() | (set() if has_use else {"worker"})
        without |= set() if self._panes.is_wide else {"graph_range"}
        verbs = {key.action for key in keys.keys_on(keys.LOCK) if key.verb}
        if self.verbs_refusal():
            return without | verbs
        return without - {"arm"}

    def verbs_refusal(self) -> str:
        """Why active tasks cannot be changed, for any verb; "" if they can."""
        report = self._exam.report
        if self.context.arming.read_only:
            return READ_ONLY
        if report is None or not report.is_examined:
            return "lock not examined yet"
        if self.session.recovery.running:
            return "freeing the lock: wait for the result"
        return why_not_abandoned(report.evidence) or (
            "" if report.active_tasks else "no active task"
        )

    def action_graph_range(self) -> None:
        graph, session = self._panes.graph_pane, self.session
        graph.next_range()
        reading = partial(graph.follow, lambda: session, self.lay_out)
        run_in_background(self, reading, name="graph", group="graph", exclusive=True)

    def action_worker(self) -> None:
        show_worker_plan(self, self.session, self.context)

    def action_plan(self, verb: str) -> None:
        edges, word = (
            self.session.inspector.edges,
            self.session.inspector.states.get(State.ACTIVE, ""),
        )
        reason = self.verbs_refusal() or verb_refusal(edges, verb, State.ACTIVE, word)
        if self.is_pasted:
            self.say(PASTED)
        elif reason:
            self.say(f"{verb}: {reason}")
        elif asyncio.get_running_loop().time() - self._slipped < CURSOR_CHANGE_SECONDS:
            self.say(f"{verb}: the task under the cursor just left: press again")
        else:
            plan = partial(self._show_plan, verb, self._panes.works.key)
            run_in_background(self, plan, name="plan", exclusive=True, group="plan")

    async def _show_plan(self, verb: str, id: str) -> None:
        from tui.plan.screen import show_plan

        report = self._exam.report
        work = next((w for w in report.active_tasks if w.task.id == id), None) if report else None
        if work is None:
            self.say("no plan: the task is no longer active")
            return
        summary = work.log_summary
        advice = summary.unknown or lock_diagnosis.ADVICE_TEXT[summary.advice]
        scope = f"row {id}, in work, no worker. Recommended: {advice}"
        asked = planning.VerbRequest(verb, {id}, Query(State.ACTIVE), lambda _: scope)
        await show_plan(self, self.session, self.context, asked, self._applied)

    def _applied(self, report: Report) -> None:
        past = VERBS[report.plan.verb].past
        self.say(
            f"{len(report.done):,} {past}, {len(report.gone):,} skipped,"
            f" {len(report.failed):,} failed"
        )
