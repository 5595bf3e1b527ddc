"""The task screen: why it does not run, and its parts: payload, attempts, log, files.

It shows its parts (`tui.task.parts`) in all panes at once, or one tab on a small screen, and passes
keys to their rows, which are in the order of their hints."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from functools import partial

from textual.app import ComposeResult
from textual.geometry import Region, Size
from textual.widget import Widget

from engine.index.schema import Query
from engine.model import Task
from engine.operations.execute import Report
from engine.override import override
from engine.text.figures import format_bytes
from engine.text.safe import safe_line
from tui.plan import planning, refusals
from tui.plan.open_plan import open_plan
from tui.plan.planning import VerbRequest
from tui.plan.refusals import TASK_JUST_CHANGED, verb_row
from tui.screens.base import Copy, opened_from
from tui.screens.console_context import ConsoleContext
from tui.screens.edge_lines import EdgeLines
from tui.screens.graph_pane import MIN_GRAPH_LINES
from tui.screens.key_rows import KeyRow, RowMaker, hints_of, is_read_only
from tui.screens.keyed_screen import KeyedScreen, row_bindings
from tui.screens.place_foot import MIN_LOG_LINES, SIDE_BY_SIDE_COLUMNS, PlaceFoot
from tui.screens.rows_screen import is_large
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.task import parts_lines
from tui.task import task_lines as view
from tui.task.parts import TABS, WITH_CONTENT, Change, TaskParts
from tui.task.parts_lines import Opened
from tui.task.task_lines import TaskDetails
from tui.text import keys, task_row
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.lines import Line
from tui.text.task_list import TaskContext, short_id, task_columns, task_line
from tui.widgets.background import run_in_background
from tui.widgets.divided import Board, Panel
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker
from tui.widgets.task_rows import SEEN_SECONDS

Row = KeyRow[TaskParts, Change]


def _open_relative(parts: TaskParts) -> Change:
    details, id = parts.reader.details, parts.screen.relative_key
    family = () if details is None else (details.relatives.parent, *details.relatives.children)
    relative = next((one for one in family if one is not None and one.id == id), None)
    if relative is None:
        return parts.say("no parent and no children")
    if not relative.is_here:
        return parts.say(f"{id} is not in this place, or no longer")
    parts.screen.go(Target(keys.TASK, id=id))
    return Change.NOTHING


def _turn(parts: TaskParts, pressed: str) -> Change:
    titles = parts.tab_titles()
    parts.tab = titles[(titles.index(parts.tab) + keys.step_of(pressed)) % len(titles)]
    return Change.EDGES | Change.TEXT


def _open_log(parts: TaskParts) -> Change:
    parts.screen.go(Target(keys.LOG, id=parts.reader.id))
    return Change.NOTHING


def _neighbor(parts: TaskParts, by: int) -> Change:
    parts.screen.open(lambda screen: screen.action_neighbor(by))
    return Change.NOTHING


def _reread(parts: TaskParts) -> Change:
    parts.screen.run("reread", parts.reread)
    return Change.NOTHING


def _plan(parts: TaskParts, verb: str) -> Change:
    task = parts.task
    assert task is not None  # else the row is refused
    if asyncio.get_running_loop().time() - parts.reader.altered_at < SEEN_SECONDS:
        return parts.say(TASK_JUST_CHANGED)
    meant = planning.verb_in_state(verb, task.state, parts.session.inspector.edges)
    asked = VerbRequest(meant, {task.id}, Query(task.state), lambda _: f"task {task.id}")
    parts.screen.plan(asked, task)
    return Change.NOTHING


def _other_verbs(parts: TaskParts) -> str:
    if parts.verb_state is None:
        return ""
    verbs = (row.key for row in ROWS if row.key.verb)
    return refusals.other_verbs(parts.session, parts.context, verbs, parts.verb_state, parts.task)


def _note(parts: TaskParts) -> Change:
    from tui.plan.open_plan import prompt_for_note

    session, context, task = parts.session, parts.context, parts.task
    parts.screen.open(lambda screen: prompt_for_note(screen, session, context, task))
    return Change.NOTHING


make = RowMaker[TaskParts, Change](keys.TASK, Change.NOTHING)
own, key = make.own, make.key


def _verb(verb: str) -> Row:
    return verb_row(key(f"plan('{verb}')"), _plan, _other_verbs)


ROWS: tuple[Row, ...] = (
    *make.moves(lambda parts, how: parts.screen.move(how)),
    own(
        "open | enter | Enter | relative | View | the parent or the child under the cursor",
        _open_relative,
        is_absent=lambda parts: not parts.has_relatives,
    ),
    own(
        "part | left h right l | h l | parts | View +key | previous, next part; also Left, Right",
        _turn,
    ),
    KeyRow(key("log"), _open_log, label=lambda parts: "" if parts.session.no_log else None),
    KeyRow(key("neighbor(1)"), partial(_neighbor, by=1)),
    KeyRow(key("neighbor(-1)"), partial(_neighbor, by=-1)),
    own("reread | r | r | re-read | View +minor | re-read the task", _reread),
    *make.views(),
    *map(_verb, ("retry", "purge", "hold", "release", "promote")),
    *map(_verb, ("edit", "kill", "reroute", "expire")),
    make.goes(key("operations"), Target(keys.OPERATIONS)),
    KeyRow(key("note"), _note, is_absent=is_read_only),
    make.arm(Change.EDGES),
    *make.ends(),
)


FILES_LINES = 50
"""From so many lines on the facts of the files have a pane."""

LOG_SHARE = 5
"""The log has at most one in so many lines, if it is below both columns."""


IN_OTHER_PANES = ("state", "dead since")
"""Fields that the other panes show."""


def panels(
    details: TaskDetails, opened: Sequence[Opened], now: float, width: int, height: int
) -> Mapping[str, Panel]:
    """The content of each pane, for a board of that size."""
    half, task = width // 2 - BOX_FRAME_CELLS, details.task
    chip = ((f" {details.state_word.upper()} ", "chip"),)
    findings, is_wide = details.findings, width >= SIDE_BY_SIDE_COLUMNS
    log = view.log_lines(details, half if is_wide else width - BOX_FRAME_CELLS)
    many = len(findings.log.lines) if findings.log is not None else 0
    limit = "" if details.max_runs is None else f" of {details.max_runs:,}"
    size = next((part.size for part in details.parts if part.where == task.payload), None)
    payload = parts_lines.payload_lines(opened, now, half) if opened else []
    files = parts_lines.file_lines(details.parts, now, half) if height >= FILES_LINES else []
    without = IN_OTHER_PANES + (("attempts",) if findings.attempts else ())
    first = Frame(short_id(task.id), amount=safe_line(task.kind), right=chip)
    return {
        "waits": Panel(first, view.head_lines(details, now, width - BOX_FRAME_CELLS)),
        "facts": Panel(Frame("Task"), view.fact_lines(details, now, half, without)),
        "timeline": Panel(Frame("Timeline"), view.timeline_lines(details, now, half)),
        "error": Panel(Frame("Last error"), view.error_lines(details, now, half)),
        "attempts": Panel(
            Frame("Attempts", amount=f"{len(findings.attempts):,}{limit}"),
            view.attempt_lines(details, now, half) if findings.attempts else [],
        ),
        "payload": Panel(
            Frame("Payload", amount="" if size is None else format_bytes(size)),
            payload,
        ),
        "files": Panel(Frame("Files", amount=f"{len(details.parts):,}"), files),
        "mentions": Panel(
            Frame("Log", "t", amount=f"{many:,}"),
            (log if is_wide else view.last_lines(log, max(3, height // LOG_SHARE))) * bool(many),
            keeps_end=True,
        ),
    }


class TaskBoard(Board):
    """Why it waits above, two columns, the log of the task below, or on a wide screen at the left.
    What the columns leave shows what goes on at the place. In place of all that one text."""

    ABOVE, BELOW = ("waits",), ("mentions",)
    LEFT = ("facts", "timeline")
    RIGHT = ("error", "attempts", "files", "payload")
    FILLS = frozenset({"timeline", "mentions", "payload"})
    FOCUSED = "waits"

    def __init__(self) -> None:
        super().__init__(id="board")
        self.text, self.foot = LongText(id="text"), PlaceFoot()
        self.text.add_class("pane", update=False)  # styled when mounted

    @override
    def compose(self) -> ComposeResult:
        yield self.text
        yield from super().compose()
        yield from self.foot.panes

    @override
    def columns(self, size: Size) -> tuple[Sequence[str], Sequence[str], Sequence[str]]:
        if size.width < SIDE_BY_SIDE_COLUMNS:
            return super().columns(size)
        return (*self.LEFT, *self.BELOW), self.RIGHT, ()

    @override
    def rest(self, column: Region, *, is_left: bool) -> dict[Widget, Region]:
        least = MIN_LOG_LINES if is_left else MIN_GRAPH_LINES
        pane = self.foot.log if is_left else self.foot.graph
        return {pane: column} if column.height >= BOX + least else {}

    def show_text(self, lines: Sequence[Line], room: Size, session: PlaceSession) -> None:
        """Show one text, below it the place."""
        self.text.show(lines)
        size = self.screen.size
        needed = min(frame_border(*size) + max(1, len(lines)), room.height)
        text, rest = room.region.split_horizontal(needed)
        foot = self.foot.regions(rest, size, session.readings.log)
        self.place({self.text: text if foot else room.region} | foot)


FIXED_LINES = 4
"""Header, tabs, message line and hints."""

MIN_RELATIVES = 3
"""Fewest lines for parent and children, if there are as many."""


class TaskScreen(KeyedScreen):
    """One task, kept up to date; keys open plans for it."""

    KIND = keys.TASK
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: TaskParts

    def __init__(self, id: str, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.edges, self.tabs, self.board = EdgeLines(), Lines(id="parts"), TaskBoard()
        self.text, self.relatives = self.board.text, Picker(id="relatives", ghosts=False)
        self.parts = TaskParts(session, context, self, id)
        self._is_painting = self._is_outdated = False
        self.shown_tab = self.parts.tab
        self._tops: dict[str, int] = {}
        """The first visible line of the tabs that were shown before."""

    def compose(self) -> ComposeResult:
        yield self.edges.top
        yield self.tabs
        yield self.board
        yield self.relatives
        yield self.edges.message
        yield self.edges.hints

    def on_mount(self) -> None:
        self.text.focus()
        self.run("task", self.parts.follow)

    def tick(self) -> None:
        if self.is_current:
            self.show_change(self.parts.tick())

    # What the parts ask for (`TaskActions`)

    @property
    def relative_key(self) -> str:
        return self.relatives.key

    def move(self, how: str) -> Change:
        moves_cursor = self.parts.has_relatives and how in ("down", "up")
        (self.relatives if moves_cursor else self.text).move(how)
        self._paint_frame()
        return Change.NOTHING

    def plan(self, asked: VerbRequest, task: Task) -> None:
        session, context = self.parts.session, self.parts.context
        open_plan(self, session, context, asked, task=task, applied=self._plan_applied)

    def _plan_applied(self, report: Report) -> None:
        self.show_change(self.parts.plan_applied(report))

    def action_move(self, how: str) -> None:
        self.show_change(self.move(how))

    def copies(self) -> tuple[Copy, ...]:
        details = self.parts.reader.details
        if details is None:
            return ()
        word = details.states.get(details.task.state, "")
        return task_copies(details.task, word, details.command, self.parts.context.clock())

    def paint(self) -> None:
        self.show_change(Change.TEXT)

    def show_change(self, change: Change) -> None:
        """Paint what has changed; the text, which is laid out on a thread, comes later."""
        if not change or not self.is_paintable or not self.size.width:
            return
        if Change.TEXT in change:
            self._is_outdated = True
            if not self._is_painting:
                self._is_painting = True
                run_in_background(self, self._paint_until_current, group="paint")
        if Change.EDGES in change:
            self._paint_edges()

    async def _paint_until_current(self) -> None:
        # Each paint is finished before the next one begins: where a long text takes more than a
        # second, a new paint in its place each second would never show anything.
        try:
            while self._is_outdated:
                self._is_outdated = False
                await self._paint()
        finally:
            self._is_painting = False

    async def _paint(self) -> None:
        parts, reader, (width, height) = self.parts, self.parts.reader, self.size
        tab, is_board = parts.tab, parts.tab == "summary" and is_large(self.size)
        if reader.details is not None and (is_board or tab in WITH_CONTENT):
            await reader.open_parts()
        details, opened, now = reader.details, reader.opened, parts.context.clock()
        inner = width - (BOX_FRAME_CELLS if frame_border(width, height) == BOX else 0)
        text: list[Line] = []
        if details is None or (tab in WITH_CONTENT and not opened):
            is_board, text = False, [((f" {parts.empty_text()}", "muted"),)]
        elif is_board:
            shown = await asyncio.to_thread(panels, details, opened, now, width, height)
        else:
            text = await asyncio.to_thread(TABS[tab], details, opened, now, inner)
        if not self.is_paintable:
            return
        self._tops[self.shown_tab] = self.text.top
        room = Size(width, max(0, height - FIXED_LINES - self._show_relatives(details, inner)))
        if is_board:
            self.board.show(shown, room, BOX)
        else:
            self.board.show_text(text, room, parts.session)
        self.call_after_refresh(self._paint_foot)  # once its panes have their sizes
        if self.shown_tab != tab:
            self.shown_tab = tab
            self.text.move_to(self._tops.get(tab, len(text) if tab == "log" else 0))
        self._paint_edges()

    def _paint_foot(self) -> None:
        if self.is_paintable:
            self.board.foot.paint(self.parts.session)
            self._paint_frame()

    def _paint_frame(self) -> None:
        frame = self.parts.text_frame(self.text.below)
        self.text.show_frame(frame, focused=not self.parts.has_relatives)

    def _show_relatives(self, details: TaskDetails | None, width: int) -> int:
        """Show the parent and the children of the task below its tabs, if it has any; return how
        many lines they take."""
        part, border = self.relatives, frame_border(*self.size)
        rows = [] if details is None else view.relative_rows(details, width)
        part.display = bool(rows)
        part.add_class("pane")
        height = border + min(len(rows), max(MIN_RELATIVES, self.size.height // 4))
        part.styles.height = height
        part.show_rows(rows)
        if details is not None and rows:
            amount = view.relatives_amount(details.relatives)
            title = "Children" if amount else "Parent"
            right: Line = (("Enter", "key"), (" opens", "muted"))
            part.show_frame(Frame(title, amount=amount, right=right), focused=True)
        return height if rows else 0

    def _paint_edges(self) -> None:
        parts, width, edges = self.parts, self.size.width, self.edges
        below, target = opened_from(self), Target(keys.TASK, id=parts.reader.id)
        position = "" if below is None else below.row_words(target)
        row = f"  {position}" if position else ""
        trail = (parts.session.name, f"{short_id(parts.reader.id)}{row}")
        edges.top.update_line(parts.context, trail)
        titles = view.part_titles(parts.reader.details, parts.tab, TABS)
        self.tabs.show([view.tab_line(titles, parts.tab, width)])
        edges.show_message(parts.message, lambda: parts.next_step(width), width)
        edges.show_hints(hints_of(ROWS, parts), width)


def task_copies(task: Task, word: str, command: Sequence[str], now: float) -> tuple[Copy, ...]:
    """What can be copied of a task; `word` is its state, `command` shows it."""
    shape = task_columns(task.state, 160)
    line = task_line(task, shape, now, TaskContext(), 160)
    return (
        Copy("i", "id", task.id),
        Copy("r", "row", "".join(text for text, _ in line).strip()),
        Copy("j", "JSON", task_row.json_line(task_row.task_row(task, word)).strip()),
        Copy("c", "command", shlex.join(command)),
    )
