"""A task in full: in words, by its fields, what it carries, its attempts, its log, its files."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from textual import work
from textual.app import ComposeResult

from engine.index.schema import Query
from engine.live.inspector import Inspector
from engine.logs.log_tail import LogLine
from engine.model import Task
from engine.store import StoreError, Unavailable
from engine.text import error_pattern
from engine.text.safe import shown
from tui.format import keys, present, task_row
from tui.format.present import Line
from tui.plan import planning
from tui.plan.acting_screen import ALTERED, PlanningScreen
from tui.plan.planning import Asked
from tui.screens.base import HASTY, Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import SAID, Page
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.task import lines as view
from tui.task import lookup, parts_lines
from tui.task.lines import TaskScene
from tui.task.parts_lines import Opened
from tui.task.why_waiting import reasons
from tui.widgets.lines import Lines, LongText
from tui.widgets.task_list import LAG

ASKED = 2.0
"""Seconds after which it is asked again what keeps it from running, whether it changed or not."""

WIDE, HIGH = 120, 30
"""From this size on the attempts and the log stand beside the summary."""

View: TypeAlias = Callable[[TaskScene, tuple[Opened, ...], float, int], list[Line]]

PARTS: Mapping[str, View] = {
    "summary": lambda scene, opened, now, width: view.summary(scene, now, width),
    "fields": lambda scene, opened, now, width: view.fields(scene, now, width),
    "payload": lambda scene, opened, now, width: parts_lines.payload(opened, now, width),
    "attempts": lambda scene, opened, now, width: view.attempts(scene, now, width),
    "log": lambda scene, opened, now, width: view.log(scene, width),
    "files": lambda scene, opened, now, width: parts_lines.files(scene.parts, now, width),
    "raw": lambda scene, opened, now, width: parts_lines.raw(opened, width),
}
"""What can be seen of a task, in the order of their numbers."""
TITLES = tuple(PARTS)
_OPENED = {"payload", "raw"}
"""For these the parts are read."""
_STILL = {"payload", "log", "raw"}
"""In these nothing changes with the time alone."""


class TaskScreen(PlanningScreen, Page):
    """One task, kept up to date while it is looked at; keys open plans for it."""

    KIND = keys.TASK
    BINDINGS = keys.bindings(keys.TASK)

    def __init__(self, id: str, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__()
        self._task_id, self.live, self.around = id, live, around
        self._altered_at = float("-inf")
        self._scene: TaskScene | None = None
        self._opened: tuple[Opened, ...] = ()
        self._fresh = False
        """Whether the parts were read since the task was."""
        self._gone = False
        self._at, self._shown_at = 0, 0
        self._tops: dict[int, int] = {}
        self._log_seen: tuple[LogLine, ...] = ()
        self._asked = 0.0
        """When it was asked around last."""
        self._counted: tuple[int, Task | None] = (-1, None)
        """At which generation, and of which task, those alike were counted."""
        self._changed, self._said, self._said_at = "", ("", ""), 0.0

    def compose(self) -> ComposeResult:
        """Where one is, the parts, the text, a line that speaks, hints."""
        yield TopLine(id="top-line")
        yield Lines(id="parts")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def on_mount(self) -> None:
        """Read it, and again whenever something changes."""
        self.run_worker(self._follow(), name="task")
        self.set_interval(1.0, self._tick)

    def asked(self, verb: str) -> Asked | str:
        """This task, as it is on screen."""
        if self._scene is None or self._gone:
            return "there is no task here to act on"
        task = self._scene.task
        if refusal := self.no_verb(verb, task.state):
            return refusal
        if asyncio.get_running_loop().time() - self._altered_at < LAG:
            return ALTERED
        verb = planning.meant(verb, task.state)
        return Asked(verb, {task.id}, Query(task.state), lambda _: f"task {task.id}")

    def about(self) -> Task | None:
        """This task."""
        return self._scene.task if self._scene is not None else None

    # What is known

    @property
    def _inspector(self) -> Inspector:
        return self.live.inspector

    async def _follow(self) -> None:
        while True:
            seen = self._inspector.latest.generation
            try:
                task = await self._inspector.task(self._task_id)
                if self._scene is None or self._gone or task != self._scene.task:
                    await self._read()
            except Unavailable as error:
                self.say(str(error))  # of the index; the next change may bring another
            try:
                await self._inspector.changed(seen)
            except Unavailable:
                return  # closed: the console is being left

    async def _read(self) -> None:
        """Everything there is to know, the task first."""
        task = await self._inspector.task(self._task_id)
        before, states = self._scene, self._inspector.states
        # Before everything was looked at once, what is not found may yet come.
        self._gone = task is None and (before is not None or self._inspector.latest.complete)
        if task is None:
            self._scene = before and replace(before, gone=True)
        else:
            said = view.changes(before.task, task, states, self._clock()) if before else ""
            if before is not None:
                self._altered_at = asyncio.get_running_loop().time()
            self._changed, self._fresh = said or self._changed, False
            self._scene = replace(
                before or TaskScene(task, states),
                task=task,
                states=states,
                gone=False,
                mark=error_pattern.mark(error_pattern.fold(task.error)) if task.error else "",
                runs=self.live.place.runs,
                command=view.show_command(self.live.place.command, task, self.live.place.has_dlq),
            )
            await self._ask_around()
        self._take_notes()
        self._repaint()
        if self._scene is not None:
            await self._read_log(self._scene.task)
            await self._read_parts(self._scene.task)
            self._repaint()

    async def _ask_around(self) -> None:
        """Why it does not run, and how many are like it."""
        if self._scene is None or self._gone:
            return
        scene, live, now = self._scene, self.live, self._clock()
        task, mark, generation = scene.task, scene.mark, self._inspector.latest.generation
        self._asked = now
        why = await reasons(self._inspector, live.place, live.signs.lock, task, now, live.alerts)
        alike = scene.alike if mark else None
        if mark and (generation, task) != self._counted:
            alike = await lookup.alike(self._inspector, task, mark)
            self._counted = generation, task
        if self._scene.task == task:
            self._scene = replace(self._scene, reasons=why, alike=alike)

    @work(exclusive=True, group="why")
    async def _ask_again(self) -> None:
        with suppress(Unavailable):  # what was said last stays until there is an answer
            await self._ask_around()

    async def _read_parts(self, task: Task) -> None:
        """What its store keeps of it."""
        if self._gone:
            return
        try:
            found = await self._inspector.parts(task)
        except StoreError:
            return  # it has moved on: the next look says so
        if self._scene is not None and self._scene.task == task:
            self._scene = replace(self._scene, parts=found)

    async def _read_log(self, task: Task) -> None:
        """What the logs tell of it."""
        self._log_seen = self.live.signs.log
        told = await asyncio.to_thread(lookup.told, self.live.place.logs, task)
        if self._scene is not None:
            self._scene = replace(self._scene, told=told)

    async def _open_parts(self) -> None:
        """Read what the parts hold, as far as they may be read."""
        scene = self._scene
        if scene is None or self._fresh or self._gone:
            return
        try:
            opened = await lookup.opened(self._inspector, scene.task)
        except StoreError:
            return  # it has moved on: the next look says so, and what was read stays
        if self._scene is not None and self._scene.task == scene.task:
            self._opened, self._fresh = opened, True
            self._scene = replace(self._scene, parts=tuple(each.part for each in opened))

    # What is shown

    def _clock(self) -> float:
        return self.around.clock()

    def _tick(self) -> None:
        if not self.is_current:
            return
        self._show_edges()
        self._take_notes()
        log, known = self.live.signs.log, self._log_seen
        self._log_seen = log
        new = set(log).difference(known) if log is not known else ()
        if any(self._task_id in line.text for line in new):
            self._search_again()
        if abs(self._clock() - self._asked) >= ASKED:
            self._ask_again()
        if TITLES[self._at] not in _STILL:
            self._repaint()

    def _take_notes(self) -> None:
        """Show what operators wrote down about it, once that was read."""
        scene, signs = self._scene, self.live.signs
        if scene is not None:
            notes = signs.notes.get(self._task_id, ())
            if (notes, signs.unread) != (scene.notes, scene.unread):
                self._scene = replace(scene, notes=notes, unread=signs.unread)
                self._repaint()

    @work(exclusive=True, group="log")
    async def _search_again(self) -> None:
        if self._scene is not None:
            await self._read_log(self._scene.task)
            self._repaint()

    def lay_out(self, width: int) -> None:
        """Everything for this width."""
        self._show_edges()
        self._repaint()

    def _repaint(self) -> None:
        if self._is_there:
            self._paint()

    @property
    def _is_there(self) -> bool:
        """Whether its panes are: not before it is composed, nor while it is taken down."""
        return self.stands and bool(self.query(LongText)) and bool(self.size.width)

    @work(exclusive=True, group="paint")
    async def _paint(self) -> None:
        """The part that is looked at; a long one is laid out beside the loop."""
        at, width = self._at, self.size.width
        title = TITLES[at]
        if self._scene is not None and title in _OPENED and not self._fresh:
            await self._open_parts()
        scene, now = self._scene, self._clock()
        if scene is None or (title in _OPENED and not self._opened):
            text: list[Line] = [((f" {self._nothing()}", "dim"),)]
        else:
            show = partial(PARTS[title], scene, self._opened, now, width)
            if title == "summary" and width >= WIDE and self.size.height >= HIGH:
                room = self.query_one(LongText).size.height
                show = partial(view.wide, scene, now, width, room)
            text = await asyncio.to_thread(show)
        if self._is_there:
            pane = self.query_one(LongText)
            pane.show(text)
            if self._shown_at != at:
                self._shown_at = at
                pane.move_to(self._tops.get(at, len(text) if title == "log" else 0))
            self._show_edges()

    def _nothing(self) -> str:
        """Why there is nothing to show."""
        if not self._gone:
            return "looking ..."
        if self._scene is None:
            return "there is no such task any more"
        return "it is not there any more, and this was not read before"

    def _show_edges(self) -> None:
        """Everything around the text."""
        if not self._is_there:
            return
        width = self.size.width
        scene, live = self._scene, self.live
        word = scene.word if scene is not None and not self._gone else ""
        self.query_one(TopLine).tell(self.around, (live.place.name, word, self._task_id))
        self.query_one("#parts", Lines).show([view.tabs(TITLES, self._at, width)])
        self.query_one("#word", Lines).show([present.cut(self._word(), width)])
        arm = {"arm": keys.arm_words(self.around.arming.armed)}
        self.show_hints(self._grey(), self.without(), arm)

    def _grey(self) -> set[str]:
        """What cannot be planned for the task as it stands."""
        scene = self._scene
        state = None if scene is None or self._gone else scene.task.state
        return {key.action for key in keys.verbs() if self.no_verb(key.verb, state)}

    def _word(self) -> Line:
        text, look = self._said
        if text and 0 <= self._clock() - self._said_at < SAID:
            return ((f" {shown(text)}", look),)
        if self._gone and self._scene is not None:
            return ((f" {view.left(self._scene, self._clock())}", "warning"),)
        return ((f" {self._changed}", "warning"),)

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator, for a few seconds."""
        self._said, self._said_at = (text, look), self._clock()
        self._show_edges()

    # Keys

    def action_part(self, digit: str) -> None:
        """The part of that number."""
        self._go(int(digit) - 1)

    def action_next_part(self) -> None:
        """The next part."""
        self._go((self._at + 1) % len(TITLES))

    def action_previous_part(self) -> None:
        """The part before."""
        self._go((self._at - 1) % len(TITLES))

    def _go(self, at: int) -> None:
        if self._shown_at == self._at:
            self._tops[self._at] = self.query_one(LongText).top
        self._at = at
        self._show_edges()
        self._repaint()

    def action_arm(self) -> None:
        """Allow writes for a while, or forbid them."""
        self.say(HASTY if self.hasty else self.around.arming.toggle())

    def action_log(self) -> None:
        """The log, searched for it."""
        self.go(Target(keys.LOG, id=self._task_id))

    def action_reread(self) -> None:
        """Read it again now."""
        self._fresh = False
        self._reread()

    @work(exclusive=True, group="reread")
    async def _reread(self) -> None:
        await self._read()

    def copies(self) -> tuple[Copy, ...]:
        """The task, and the command that shows it."""
        scene = self._scene
        if scene is None:
            return ()
        task, word = scene.task, scene.states.get(scene.task.state, "")
        shape = present.columns(task.state, 160)
        line = present.row(task, shape, self._clock(), present.TaskContext(), 160)
        return (
            Copy("i", "id", task.id),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(task_row.row(task, word)).strip()),
            Copy("c", "command", shlex.join(scene.command)),
        )
