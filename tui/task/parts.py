"""The parts of the task screen, without Textual: what is read of the task, and its tab."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Flag, auto
from typing import Protocol, TypeAlias

from engine.model import STALLED_KEY, State, Task
from engine.monitor.recurrence import StillHappens
from engine.operations.execute import Report
from engine.text.safe import safe_line
from tui.plan import refusals
from tui.plan.planning import VerbRequest
from tui.screens.console_context import ConsoleContext
from tui.screens.message import Message
from tui.screens.row_maker import ScreenActions
from tui.session.place_session import PlaceSession
from tui.task import parts_lines
from tui.task import task_lines as view
from tui.task.parts_lines import Opened
from tui.task.reader import TaskReader
from tui.task.task_lines import TaskDetails
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line, join_ends
from tui.text.task_list import short_id

TabView: TypeAlias = Callable[[TaskDetails, tuple[Opened, ...], float, int], list[Line]]

TABS: Mapping[str, TabView] = {
    "summary": lambda details, opened, now, width: view.summary_lines(details, now, width),
    "payload": lambda details, opened, now, width: parts_lines.payload_lines(opened, now, width),
    "attempts": lambda details, opened, now, width: view.attempt_lines(details, now, width),
    "log": lambda details, opened, now, width: view.log_lines(details, width),
    "files": lambda details, opened, now, width: parts_lines.stored_lines(opened, now, width),
}
"""The tabs, in their order."""
WITH_CONTENT = {"payload", "files"}
"""Tabs that need the content of the files."""
WITHOUT_CLOCK = {"payload", "log"}
"""Tabs without relative times, which need no repaint each second."""

NEXT_STEPS: Mapping[State, tuple[str, str]] = {
    State.PENDING: ("O", "runs it now, before its due time"),
    State.HELD: ("L", "releases it"),
    State.DEAD: ("R", "retries it, attempts reset"),
    State.DONE: ("R", "runs it again"),
    State.TRASH: ("R", "restores it"),
}
"""The next step in a state: its key, and what it does."""


class Change(Flag):
    """What an action changed; no more is painted again."""

    NOTHING = 0
    EDGES = auto()
    """The path, the tabs, the message and the keys."""
    TEXT = auto()
    """The open tab, or all panes."""


class TaskActions(ScreenActions[Change], Protocol):
    """What only the screen can do."""

    @property
    def relative_key(self) -> str:
        """Id of the parent or child under the cursor; "" if there is none."""
        ...

    def move(self, how: str) -> Change:
        """Move through parent and children, or scroll the text."""

    def plan(self, asked: VerbRequest, task: Task) -> None:
        """Open the plan for a verb."""


class TaskParts:
    """One task, kept up to date."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: TaskActions, id: str
    ) -> None:
        self.session, self.context, self.screen = session, context, screen
        self.reader = TaskReader(id, session, lambda: screen.show_change(Change.TEXT))
        self.message = Message(context.clock)
        self.tab = "summary"
        self._is_refreshing = False

    # What is read

    async def follow(self) -> Change:
        """Read the task, and again after each change."""
        await self.reader.follow(lambda text: self.screen.show_change(self.say(text)))
        return Change.NOTHING

    async def reread(self) -> Change:
        """Read the task again, and its files.

        Raises:
            Unavailable: the place was closed.
        """
        self.reader.is_fresh = False
        await self.reader.read()
        return Change.NOTHING

    async def _refresh(self) -> Change:
        self._is_refreshing = True
        try:
            await self.reader.refresh()
        finally:
            self._is_refreshing = False
        return Change.NOTHING

    def tick(self) -> Change:
        """Once a second: read again what other processes change, once the last time has ended."""
        if not self._is_refreshing:
            self.screen.run("refresh", self._refresh)
        changes = self.reader.take_notes() or self.tab not in WITHOUT_CLOCK
        return Change.TEXT if changes else Change.EDGES

    # What keys act on

    @property
    def task(self) -> Task | None:
        """The task, as last read, also after it is gone; None if it was not found."""
        return None if self.reader.details is None else self.reader.details.task

    @property
    def verb_state(self) -> State | None:
        return None if self.task is None or self.reader.gone else self.task.state

    @property
    def has_relatives(self) -> bool:
        """True if the task has a parent or children, which are listed."""
        details = self.reader.details
        return details is not None and bool(details.relatives.parent or details.relatives.children)

    def verb_refusal(self, verb: str) -> str:
        if self.task is None or self.verb_state is None:
            return "no task here"
        return refusals.verb_refusal(self.session, self.context, verb, self.task.state, self.task)

    # What is shown

    def text_frame(self) -> Frame:
        """The task's id, kind and state."""
        details = self.reader.details
        if details is None:
            return Frame(short_id(self.reader.id))
        word = "GONE" if self.reader.gone else details.state_word.upper()
        chip = ((f" {word} ", "chip-warn" if self.reader.gone else "chip"),)
        kind = safe_line(details.task.kind)
        return Frame(short_id(details.task.id), amount=kind, right=chip)

    def empty_text(self) -> str:
        """Why there is nothing to show."""
        if not self.reader.gone:
            return "loading ..."
        if self.reader.details is None:
            return "task not found"
        return "task is gone; this part was not read before"

    def tab_titles(self) -> Sequence[str]:
        """The tabs, as their keys go through them."""
        return tuple(view.part_titles(self.reader.details, self.tab, TABS))

    def next_step(self, width: int) -> Line:
        """That the task is gone or has changed, or the next step."""
        reader, task = self.reader, self.task
        if reader.details is None or task is None:
            return ()
        if reader.gone:
            departure = view.describe_departure(reader.details, self.context.clock())
            log: Line = (("next ", "muted"), ("t", "key"), (" shows its log lines ", ""))
            return join_ends(((f" {departure}", "warn"),), log, width)
        if reader.changed and self.tab != "summary":
            return ((f" {reader.changed}", "warn"),)
        key, does = self._next_key(task)
        return next_line(key, does, short_id(task.id), width)

    def _next_key(self, task: Task) -> tuple[str, str]:
        """The key of the next step, and what it does."""
        place, is_pending = self.session.place, task.state is State.PENDING
        if is_pending and self.session.lacks_worker and place.worker_command:
            return "3", "opens the workers: W there starts one"
        key, does = NEXT_STEPS.get(task.state, ("", ""))
        if is_pending and (task.due or 0.0) <= self.context.clock():
            key = ""  # it is due already
        if STALLED_KEY in task.extra:
            key, does = "L", "releases it"
        verb = next((each.verb for each in keys.verb_keys() if each.shown == key), "")
        if not verb or self.verb_refusal(verb):
            return "t", "shows its log lines"
        cluster = None if self.reader.details is None else self.reader.details.cluster
        if key == "R" and cluster is not None and cluster.now.answer is StillHappens.YES:
            does += "; its error still happens"
        return key, does if self.context.arming.is_armed else f"{does} (! arms first)"

    def say(self, text: str, style: str = "warn") -> Change:
        """Show a message for some seconds."""
        self.message.say(text, style)
        return Change.EDGES

    def plan_applied(self, report: Report) -> Change:
        """Report the result of an applied plan."""
        return self.say(refusals.describe_report(report))
