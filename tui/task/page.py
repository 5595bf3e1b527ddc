"""The page of a task: all parts in panes, or one part with tabs; frame, next step and hints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeAlias

from textual.app import ComposeResult

from engine.model import STALLED_KEY, State
from engine.monitor.recurrence import StillHappens
from engine.text.safe import safe_line
from tui.plan import planning
from tui.plan.acting_screen import PlanningScreen
from tui.screens.base import key_bindings, opened_from
from tui.screens.console_context import ConsoleContext
from tui.screens.list_panes import WIDE_COLUMNS, WIDE_LINES
from tui.screens.message import Message
from tui.screens.page import Page
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.task import board, parts_lines
from tui.task import task_lines as view
from tui.task.board import TaskBoard
from tui.task.parts_lines import Opened
from tui.task.reader import TaskReader
from tui.task.task_lines import TaskDetails
from tui.text import keys
from tui.text.frames import BOX, BOX_FRAME_CELLS, Frame, frame_border
from tui.text.hints import next_line
from tui.text.lines import Line, cut_line, join_ends
from tui.text.task_list import short_id
from tui.widgets.line_widgets import Lines, LongText
from tui.widgets.picker import Picker

View: TypeAlias = Callable[[TaskDetails, tuple[Opened, ...], float, int], list[Line]]

TABS: Mapping[str, View] = {
    "summary": lambda details, opened, now, width: view.summary_lines(details, now, width),
    "payload": lambda details, opened, now, width: parts_lines.payload_lines(opened, now, width),
    "attempts": lambda details, opened, now, width: view.attempt_lines(details, now, width),
    "log": lambda details, opened, now, width: view.log_lines(details, width),
    "files": lambda details, opened, now, width: parts_lines.stored_lines(opened, now, width),
}
"""The parts, in their order."""
_WITH_CONTENT = {"payload", "files"}
"""Parts that need the content of the files."""
WITHOUT_CLOCK = {"payload", "log"}
"""Parts without relative times, which need no repaint each second."""

MIN_RELATIVES = 3
"""Fewest lines for parent and children, if there are as many."""

NEXT_STEPS: Mapping[State, tuple[str, str]] = {
    State.PENDING: ("O", "runs it now, before its due time"),
    State.HELD: ("L", "releases it"),
    State.DEAD: ("R", "retries it, attempts reset"),
    State.DONE: ("R", "runs it again"),
    State.TRASH: ("R", "restores it"),
}
"""The next step in a state: its key, and what it does."""


class TaskPage(PlanningScreen, Page):
    """Paints a task; the keys of its plans are in `TaskScreen`."""

    KIND = keys.TASK
    BINDINGS = key_bindings(keys.TASK)

    def __init__(self, id: str, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.session, self.context = session, context
        self.reader = TaskReader(id, session, self.repaint)
        self.part = self.shown_part = "summary"
        """The part to show, and the one that is on screen."""
        self._tops: dict[str, int] = {}
        self.message = Message(context.clock)
        self._is_painting = self._is_outdated = False
        self.has_relatives = False
        """True while the list of parent and children is shown; j and k move in it."""

    def compose(self) -> ComposeResult:
        """Path, parts, all panes or one part, next step, hints."""
        yield TopLine(id="top-line")
        yield Lines(id="parts")
        yield TaskBoard(id="board")
        yield LongText(id="text")
        yield Picker(id="relatives", ghosts=False)
        yield Lines(id="word")
        yield Lines(id="hints")

    # Painting

    def text_frame(self) -> Frame:
        """The task's id, kind and state; or the name of the part."""
        details = self.reader.details
        if details is None:
            return Frame(short_id(self.reader.id))
        word = "GONE" if self.reader.gone else details.state_word.upper()
        chip = ((f" {word} ", "chip-warn" if self.reader.gone else "chip"),)
        kind = safe_line(details.task.kind)
        return Frame(short_id(details.task.id), amount=kind, right=chip)

    def lay_out(self, width: int) -> None:
        """Repaint for the present size."""
        self._is_outdated = True
        if not self._is_painting and self.is_paintable and self.query("#hints") and width:
            self._is_painting = True
            self.run_worker(self._paint_until_current, group="paint")  # type: ignore[arg-type]

    def repaint(self) -> None:
        """Repaint after a change."""
        self.lay_out(self.size.width)

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
        """Paint the open part, or all; the text is laid out on a thread."""
        part, (width, height), reader = self.part, self.size, self.reader
        is_board = part == "summary" and width >= WIDE_COLUMNS and height >= WIDE_LINES
        if reader.details is not None and (is_board or part in _WITH_CONTENT):
            await reader.open_parts()
        details, opened, now = reader.details, reader.opened, self.context.clock()
        if details is None or (part in _WITH_CONTENT and not opened):
            is_board = False
            text: list[Line] = [((f" {_empty_text(reader)}", "muted"),)]
        elif is_board:
            text = []
            panels = await asyncio.to_thread(board.panels, details, opened, now, width, height)
        else:
            text = await asyncio.to_thread(TABS[part], details, opened, now, self.text_width)
        if not self.is_paintable or not self.query("#hints"):
            return
        pane, panes = self.query_one("#text", LongText), self.query_one(TaskBoard)
        pane.display, panes.display = not is_board, is_board
        if is_board:
            panes.show(panels)
        pane.show(text)
        pane.add_class("pane")
        self._show_relatives(details)
        pane.show_frame(self.text_frame(), focused=not self.has_relatives)
        if self.shown_part != part:
            self.shown_part = part
            pane.move_to(self._tops.get(part, len(text) if part == "log" else 0))
        self._paint_frame()

    def _show_relatives(self, details: TaskDetails | None) -> None:
        """Show the parent and the children of the task below its parts, if it has any."""
        part, border = self.query_one("#relatives", Picker), frame_border(*self.size)
        inner = self.size.width - (BOX_FRAME_CELLS if border == BOX else 0)
        rows = [] if details is None else view.relative_rows(details, inner)
        self.has_relatives = part.display = bool(rows)
        part.add_class("pane")
        part.styles.height = border + min(len(rows), max(MIN_RELATIVES, self.size.height // 4))
        part.show_rows(rows)
        if details is not None and rows:
            amount = view.relatives_amount(details.relatives)
            title = "Children" if amount else "Parent"
            right: Line = (("Enter", "key"), (" opens", "muted"))
            part.show_frame(Frame(title, amount=amount, right=right), focused=True)

    def _paint_frame(self) -> None:
        """Repaint everything around the text."""
        if not self.is_paintable or not self.query("#hints") or not self.size.width:
            return
        width = self.size.width
        below, target = opened_from(self), Target(keys.TASK, id=self.reader.id)
        position = "" if below is None else below.row_words(target)
        row = f"  {position}" if position else ""
        trail = (self.session.name, f"{short_id(self.reader.id)}{row}")
        self.query_one(TopLine).update_line(self.context, trail)
        titles = view.part_titles(self.reader.details, self.part, TABS)
        self.query_one("#parts", Lines).show([view.tab_line(titles, self.part, width)])
        self.query_one("#word", Lines).show([cut_line(self._foot(width), width)])
        task = None if self.reader.gone else self.selected_task()
        state = None if task is None else task.state
        grey = {key.action for key in keys.verb_keys() if self.verb_refusal(key.verb, state, task)}
        edges = self.session.inspector.edges
        words = {"arm": keys.arm_hint(self.context.arming.is_armed)} | planning.hint_words(
            edges, state
        )
        elsewhere = planning.verbs_elsewhere(edges, state)
        self.show_hints(grey, self.without() | elsewhere, words)

    def _foot(self, width: int) -> Line:
        """A message, that the task is gone or has changed, or the next step."""
        reader, now = self.reader, self.context.clock()
        self.message.ends()
        if self.message.text:
            return self.message.line
        if reader.details is None:
            return ()
        if reader.gone:
            departure: Line = ((f" {view.describe_departure(reader.details, now)}", "warn"),)
            log: Line = (("next ", "muted"), ("t", "key"), (" shows its log lines ", ""))
            return join_ends(departure, log, width)
        task = reader.details.task
        if reader.changed and self.part != "summary":
            return ((f" {reader.changed}", "warn"),)
        if (
            task.state is State.PENDING
            and self.session.lacks_worker
            and self.session.place.worker_command
        ):
            ident = short_id(task.id)
            return next_line("3", "opens the workers: W there starts one", ident, width)
        key, does = NEXT_STEPS.get(task.state, ("", ""))
        if task.state is State.PENDING and (task.due or 0.0) <= now:
            key = ""  # it is due already
        if STALLED_KEY in task.extra:
            key, does = "L", "releases it"
        verb = next((each.verb for each in keys.verb_keys() if each.shown == key), "")
        if not verb or self.verb_refusal(verb, task.state, task):
            key, does = "t", "shows its log lines"
        else:
            check = (
                reader.details.cluster.now.answer if reader.details.cluster is not None else None
            )
            if key == "R" and check is StillHappens.YES:
                does += "; its error still happens"
            does += "" if self.context.arming.is_armed else " (! arms first)"
        return next_line(key, does, short_id(task.id), width)

    def say(self, text: str, style: str = "warn") -> None:
        """Show a message for some seconds."""
        self.message.say(text, style)
        self._paint_frame()

    def action_move(self, how: str) -> None:
        """Move through parent and children, if there are any; page keys scroll the text."""
        if self.has_relatives and how in ("down", "up"):
            self.query_one("#relatives", Picker).move(how)
        else:
            super().action_move(how)

    def action_part(self, pressed: str) -> None:
        """Go to the previous or the next part."""
        if self.shown_part == self.part:
            self._tops[self.part] = self.query_one("#text", LongText).top
        titles = tuple(view.part_titles(self.reader.details, self.part, TABS))
        self.part = titles[(titles.index(self.part) + keys.step_of(pressed)) % len(titles)]
        self._paint_frame()
        self.repaint()


def _empty_text(reader: TaskReader) -> str:
    """Why there is nothing to show."""
    if not reader.gone:
        return "loading ..."
    if reader.details is None:
        return "task not found"
    return "task is gone; this part was not read before"
