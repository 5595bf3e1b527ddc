"""The widgets of the queue screen: how they share it, and what they show of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from textual.app import ComposeResult
from textual.geometry import Size

from engine.index.filter_language import ACCOUNT_FIELD
from engine.monitor.latency import KindFigures
from engine.text.figure import UNKNOWN
from engine.text.figures import format_rates
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.queue import painters
from tui.queue.filter_line import FilterLine
from tui.queue.parts import Change, QueueParts
from tui.queue.task_details import BRIEF_LINES
from tui.screens.base import BaseScreen
from tui.screens.edge_lines import TopLine
from tui.screens.graph_pane import MIN_GRAPH_LINES, GraphPane
from tui.screens.place_foot import MOST_BLANK_LINES, LogPane
from tui.screens.rows_screen import WIDE_COLUMNS, WIDE_LINES
from tui.session.place_session import describe_server
from tui.session.worker_rows import lock_step
from tui.terminal.render_cache import Across, Down
from tui.text.frames import BOX_FRAME_CELLS, Frame, frame_border
from tui.text.graphs import AXIS_CELLS, time_axis
from tui.text.lines import Line, cut_line, fact_line, fold_long_lines
from tui.text.lock import ALARMING_VERDICTS, lock_line
from tui.text.table import Choice
from tui.text.times import format_age, format_minutes
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker
from tui.widgets.task_list import TaskList


class LockLine(Lines):
    """Lock and facts of a place; the screen must keep the line visible while `alarms` is set."""

    def __init__(self, parts: QueueParts) -> None:
        super().__init__(id="lock")
        self._parts = parts
        self.alarms = False

    def show_facts(self, width: int) -> None:
        """Show the last evidence and the facts."""
        session, place, facts = self._parts.session, self._parts.place, _fact_parts(self._parts)
        evidence = session.readings.lock
        self.alarms = evidence is not None and evidence.verdict in ALARMING_VERDICTS
        if place.lock is not None:
            key, word, _ = lock_step(session, read_only=self._parts.context.arming.read_only)
            line = lock_line(evidence, self._parts.clock(), width, (key, word), facts)
        else:
            lead: Line = ((" ", ""),)
            if words := describe_server(session, self._parts.clock()):
                server = session.readings.queue_figures.server
                self.alarms = server is not None and server.is_running is False
                lead = ((f" {safe_line(words)}", "error" if self.alarms else "muted"),)
            elif place.has_leases:
                lead = ((f" {place.no_lock}", "muted"),)
            if place.has_leases and (pid := session.worker.pid) is not None:
                lead += ((f"  worker PID {pid}", ""), (", W", "key"), (" stops it", ""))
            line = fact_line([lead, *_listed_parts(self._parts), *facts], width)
        self.show([line])


def _listed_parts(parts: QueueParts) -> list[Line]:
    """The age of what is shown of a place whose tasks are listed from time to time, and what a
    filter by account does not find yet."""
    listed, shown = parts.place.listed_at(), list[Line]()
    if listed is not None:
        age = format_age(max(0.0, parts.clock() - listed))
        shown.append((("listed ", "muted"), (age, "")))
    if moved := parts.place.moved_in_listing():
        shown.append(((f"{moved:,} moved during the listing", "warn"),))
    uses_accounts = parts.filter.filter.mentions_field(ACCOUNT_FIELD)
    if uses_accounts and (unread := parts.place.unread_accounts()):
        shown.append(((safe_line(unread), "warn"),))
    return shown


def _fact_parts(parts: QueueParts) -> list[Line]:
    """Rates, latency and rate limits; one that the place does not have is omitted."""
    session, readings = parts.session, parts.session.readings
    rates = None if parts.change.unavailable else session.flow.rates(parts.clock())
    inward, outward = (UNKNOWN, UNKNOWN) if rates is None else format_rates(*rates[:2])
    style = "unknown" if rates is None else ""
    in_runs: Line = (("in ", "muted"), (inward, style))
    full = session.full_disk
    facts: list[Line] = [((full.text, "error"),)] if full else []
    facts.append((*in_runs, ("  out ", "muted"), (outward, style)))
    if (latency := _slowest_latency(readings.kinds or ())) is not None:
        wait, run = (f"{s:.1f}s" if s < 10 else format_minutes(s) for s in latency)
        facts.append((("wait p95 ", "muted"), (wait, ""), ("  run p95 ", "muted"), (run, "")))
    if isinstance(readings.tokens, str):
        return [*facts, (("rate limit ", "muted"), (f"? {safe_line(readings.tokens)}", "unknown"))]
    for at, bucket in enumerate(readings.tokens):
        lead = "" if at else "rate limit "
        left = "PAUSED" if bucket.paused else f"{bucket.tokens} of {bucket.burst} tokens"
        amount = f"{safe_line(bucket.name)} {left}"
        facts.append(((lead, "muted"), (amount, "" if bucket.tokens else "warn")))
    return facts


def _slowest_latency(kinds: Iterable[KindFigures]) -> tuple[float, float] | None:
    """The largest waiting and running times of all kinds; None if one of them is not known."""
    waits = [kind.wait_p95 for kind in kinds if kind.wait_p95 is not None]
    runs = [kind.run_p95 for kind in kinds if kind.run_p95 is not None]
    return (max(waits), max(runs)) if waits and runs else None


MIN_LOG_HEIGHT = 28
"""Lines for list, details and log from which a narrow screen has a log."""

FIXED_LINES = 5
"""Header, tabs, facts, next step, hints."""

ROWS_STEP = 4
"""Rows by which the list becomes higher or lower."""

MIN_DETAILS_LINES = 6
"""Lines of the details beside the list, without their frame."""


class QueueFrame(NamedTuple):
    """Heights of the panes, with their frames; 0: not shown. The list gets the rest."""

    border: int = 0
    wide: bool = False
    """True if the details are at the right of the list."""
    facts: int = 1
    log: int = 0
    details: int = 0
    graph: int = 0
    states: int = 0
    side: int = 0
    """Cells of the panes at the right."""


def divide_screen(
    size: Size,
    states: int,
    filtered: bool,
    rows: int,
    alarms: bool,
    facts: int,
    details: int,
    log: int,
    folded: int = 0,
) -> QueueFrame:
    """Divide a screen between the list, the task under its cursor, the log, graph and states.
    `rows`: of the list. `alarms`: the lock has an alarm. `facts`: rows of the whole queue.
    `details`: lines about the task. `log`: lines of the log. `folded`: more lines for the facts,
    before those of the graph."""
    width, height = size
    border = frame_border(width, height)
    room = height - FIXED_LINES - filtered
    if width >= WIDE_COLUMNS and height >= WIDE_LINES:
        # The list is as high as its rows, in steps: the others do not move for one more.
        listed = border + 1 + ROWS_STEP * max(1, -(-rows // ROWS_STEP))
        free = room - states - facts - 2 - border
        folded = max(0, min(folded, free - max(MIN_DETAILS_LINES, details)))
        bars = states + facts + 2 + folded
        graph = free - folded - max(MIN_DETAILS_LINES, details)
        graph = graph if graph >= border + MIN_GRAPH_LINES else 0
        lines = min(border + max(1, log), max(room - listed, (room + 1) // 4))
        return QueueFrame(
            border, True, 1, log=lines, details=1, graph=graph, states=bars, side=width // 3
        )
    brief = BRIEF_LINES + border if border else 0
    lines = room // 4 if border and room >= MIN_LOG_HEIGHT else 0
    return QueueFrame(border, False, int(alarms or height >= 12), lines, brief)


MIN_WARNING_LINES = 12
"""Height from which a screen has a line for the warning about the metrics file."""


class QueueWidgets:
    """Shows the parts; each kind of change repaints the widgets that depend on it."""

    def __init__(self, screen: BaseScreen, parts: QueueParts) -> None:
        self._screen, self.parts = screen, parts
        self.session, self.context = parts.session, parts.context
        self.frame = QueueFrame()
        self.graph_pane = GraphPane()
        self._details_lines = 0
        """Lines that the details have: the graph does not move for a few."""

    def compose(self) -> ComposeResult:
        parts = self.parts
        self.list = TaskList(
            parts.rows, parts.clock, "tasks", parts.place.max_attempts, parts.trash_facts
        )
        self._top, self._tab_line = TopLine(id="top-line"), Lines(id="tabs")
        self._lock_line = LockLine(parts)
        self._filter_line = FilterLine(parts.filter, id="filter")
        self.problem_list, self._log = Picker(id="problems"), LogPane(id="log")
        self.details, self._graph = LongText(id="details"), Lines(id="graph")
        self._states, self._warning = Lines(id="states"), Lines(id="figures")
        self._scope_line, self._hints = Lines(id="scope"), Lines(id="hints")
        yield self._top
        yield self._tab_line
        yield self._lock_line
        yield self._filter_line
        with Across(id="middle") as self._middle:
            with Down(id="main"):
                yield self.list
                yield self.problem_list
                yield self._log
            with Down(id="side") as self._side:
                yield self.details
                yield self._graph
                yield self._states
        yield self._warning
        yield self._scope_line
        yield self._hints
        lists = (self.list, self.problem_list, self._log)
        for pane in (*lists, self.details, self._graph, self._states):
            pane.add_class("pane", update=False)  # styled when mounted

    @property
    def is_typing(self) -> bool:
        """True if keys go into the filter line."""
        return self.parts.filter.is_open and self._filter_line.has_focus_within

    def paint(self) -> None:
        if not self._screen.is_paintable or not self._screen.size.width:
            return
        self._middle.set_class(self.parts.tabs.on_problems, "-problems")
        self.lay_out()
        self._paint_header()
        self._paint_tabs()
        self._lock_line.show_facts(self._screen.size.width)
        self._filter_line.show(painters.filter_count(self.parts))
        self._paint_rows()
        self._paint_list_frame()
        self._paint_details()
        self._paint_states()
        self._paint_graph()
        self._paint_log()
        self._paint_scope()

    def lay_out(self) -> None:
        parts, readings = self.parts, self.session.readings
        on_problems, side = parts.tabs.on_problems, self._screen.size.width // 3 - BOX_FRAME_CELLS
        facts = painters.fact_rows(readings.queue_figures.rows, side)
        frame = divide_screen(
            self._screen.size,
            len(self.session.inspector.states),
            parts.filter.is_open and parts.state is not None,
            rows=(
                len(self._problem_rows(self._screen.size.height)[0])
                if on_problems
                else parts.rows.view.matching
            ),
            alarms=self._lock_line.alarms,
            facts=len(facts),
            details=self._details_lines + self._warning.display,  # which takes a row of them
            log=len(readings.log),
            folded=len(fold_long_lines(facts, side, 4 * len(facts))) - len(facts),
        )
        if frame == self.frame:
            return
        self.frame = frame
        self._middle.styles.layout = "horizontal" if frame.wide else "vertical"
        self._side.styles.width = frame.side if frame.wide else "1fr"
        self._side.styles.height = "1fr" if frame.wide else frame.details
        self._side.display = frame.details > 0
        self._lock_line.display = frame.facts > 0
        for pane, height in (
            (self._log, frame.log),
            (self._graph, frame.graph),
            (self._states, frame.states),
        ):
            pane.styles.height = height
            pane.display = height > 0
        self._screen.call_after_refresh(self.paint)

    @property
    def rows_pane(self) -> Picker | TaskList:
        """The list of tasks, or of problems."""
        return self.problem_list if self.parts.tabs.on_problems else self.list

    def _focus(self) -> None:
        if self.parts.filter.takes_keys:
            self._filter_line.take_keys()
        else:
            self.rows_pane.focus()

    def _show_filter(self) -> None:
        self._filter_line.show(painters.filter_count(self.parts))
        self.lay_out()

    def _show_cursor(self) -> None:
        self.list.show_signs(painters.signs(self.parts, self.list.size.width))
        self._paint_scope()

    def _paint_header(self) -> None:
        session, places = self.session, self.context.places
        number = f" ({session.number}/{places})" if places > 1 else ""
        self._top.update_line(self.context, (f"{session.name}{number}",))

    def _paint_tabs(self) -> None:
        self._tab_line.show([painters.tabs(self.parts, self._screen.size.width)])

    def _paint_rows(self) -> None:
        parts = self.parts
        if parts.tabs.on_problems:
            rows, head = self._problem_rows(self.problem_list.size.height)
            self.problem_list.show_rows(rows, [head if rows else painters.no_problems(parts)])
            parts.problem_key = self.problem_list.key
        self.list.signs = painters.signs(parts, self.list.size.width)
        self.list.paint()

    def _problem_rows(self, height: int) -> tuple[list[Choice], Line]:
        """The rows of the problems, folded while so many lines are free, and their titles."""
        from tui.queue.problems_screen import problem_rows

        parts, width = self.parts, self.problem_list.size.width or self._screen.size.width
        return problem_rows(parts.problems, parts.inspector.states, parts.clock(), width, height)

    def _paint_list_frame(self) -> None:
        frame = painters.list_frame(self.parts, self.list.row_words, self.frame.border)
        self.rows_pane.show_frame(frame, focused=not self.details.has_focus)

    def _paint_details(self) -> None:
        width, height = self.details.size
        if self.frame.details and height:
            lines, frame = painters.details(self.parts, width, wide=self.frame.wide)
            self.details.show(fold_long_lines(lines, width, height))
            self.details.show_frame(frame, focused=self.details.has_focus)
            if not 0 <= self._details_lines - len(lines) <= MOST_BLANK_LINES:
                self._details_lines = len(lines)
                self.lay_out()

    def _paint_graph(self) -> None:
        pane, now, (width, height) = self.graph_pane, self.parts.clock(), self._graph.size
        if self.frame.graph and height:
            self._graph.show(pane.lines(self.session, now, width, height))
            right: Line = (("z", "key"), (" range", "muted"))
            axis = time_axis(now, pane.seconds, width - AXIS_CELLS)
            title = f"{self.session.name}, last {pane.range}"
            self._graph.show_frame(Frame(title, right=right, bottom=axis))

    def _paint_states(self) -> None:
        """The states as bars; without room for them one line, where the metrics file differs."""
        width, height = self._states.size
        if self.frame.states and height:
            lines, frame = painters.states(self.parts, width)
            self._states.show(fold_long_lines(lines, width, height))
            self._states.show_frame(frame)
        warning = painters.metrics_warning(self.parts)
        is_visible = bool(warning[0]) and self._screen.size.height >= MIN_WARNING_LINES
        is_new, self._warning.display = is_visible != self._warning.display, is_visible
        self._warning.show([cut_line(((" ", ""), warning), self._screen.size.width)] * is_visible)
        if is_new:
            self.lay_out()

    def _paint_log(self) -> None:
        self._log.show_log(self.session)

    def _paint_scope(self) -> None:
        width, alarms = self._screen.size.width, self._lock_line.alarms
        states = {"lock_alarms": alarms, "is_typing": self.is_typing}
        self._scope_line.show([painters.scope_line(self.parts, width, **states)])
        self._paint_hints()

    def _paint_hints(self) -> None:
        line = painters.hints(self.parts, self._screen.size.width, is_typing=self.is_typing)
        self._hints.show([line])

    def show(self, change: Change) -> None:
        """Paint what has changed."""
        if Change.ALL in change:
            change &= Change.FILTER | Change.FOCUS | Change.ALL
        paint: Mapping[Change, Callable[[], None]] = {
            Change.FILTER: self._show_filter,
            Change.FOCUS: self._focus,
            Change.ALL: self.paint,
            Change.HEADER: self._paint_header,
            Change.TABS: self._paint_tabs,
            Change.ROWS: self._paint_rows,
            Change.CURSOR: self._show_cursor,
            Change.TITLE: self._paint_list_frame,
            Change.DETAILS: self._paint_details,
            Change.GRAPH: self._paint_graph,
            Change.SCOPE: self._paint_scope,
            Change.HINTS: self._paint_hints,
        }
        for part in change:
            paint[part]()
