"""A task in full: in words, by its fields, what it carries, its attempts, its log, its files."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from textual.app import ComposeResult

from engine import events, filters, fingerprint, logbook
from engine.index import Query
from engine.inspector import Inspector
from engine.logtail import LogLine
from engine.model import Task
from engine.store import StoreError, Unavailable
from engine.text import shown
from tui import keys, present, rows
from tui.live import Live
from tui.present import Line
from tui.screens.face import Copy, Target
from tui.screens.pages import SAID, Page
from tui.surroundings import Surroundings
from tui.views import parts
from tui.views import task as view
from tui.views.parts import Opened
from tui.views.task import Scene
from tui.why import reasons
from tui.widgets.lines import Lines, LongText
from tui.widgets.top_line import TopLine

MENTIONED = 500
"""Lines of the logs that are shown of one task; more than any that ends has."""

SLACK = 60.0
"""Seconds by which the clock that a task's birth was told by may have been ahead of the log's."""

WIDE, HIGH = 120, 30
"""From this size on the attempts and the log stand beside the summary."""

View: TypeAlias = Callable[[Scene, tuple[Opened, ...], float, int], list[Line]]

PARTS: Mapping[str, View] = {
    "summary": lambda scene, opened, now, width: view.summary(scene, now, width),
    "fields": lambda scene, opened, now, width: view.fields(scene, now, width),
    "payload": lambda scene, opened, now, width: parts.payload(opened, width),
    "attempts": lambda scene, opened, now, width: view.attempts(scene, now, width),
    "log": lambda scene, opened, now, width: view.log(scene, width),
    "files": lambda scene, opened, now, width: parts.files(scene.parts, now, width),
    "raw": lambda scene, opened, now, width: parts.raw(opened, width),
}
"""What can be seen of a task, in the order of their numbers."""
TITLES = tuple(PARTS)
_OPENED = {"payload", "raw"}
"""For these the parts are read."""
_STILL = {"payload", "log", "raw"}
"""In these nothing changes with the time alone."""


class TaskScreen(Page):
    """One task, kept up to date while it is looked at; nothing here acts on anything."""

    KIND = keys.TASK
    BINDINGS = keys.bindings(keys.TASK)

    def __init__(self, id: str, live: Live, around: Surroundings) -> None:
        super().__init__()
        self._task_id, self._live, self._around = id, live, around
        self._scene: Scene | None = None
        self._opened: tuple[Opened, ...] = ()
        self._fresh = False
        """Whether the parts were read since the task was."""
        self._gone = False
        self._at, self._shown_at = 0, 0
        self._tops: dict[int, int] = {}
        self._log_seen: tuple[LogLine, ...] = ()
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

    # What is known

    @property
    def _inspector(self) -> Inspector:
        return self._live.inspector

    async def _follow(self) -> None:
        seen = self._inspector.latest.generation
        try:
            await self._read()
            while True:
                seen = (await self._inspector.changed(seen)).generation
                task = await self._inspector.task(self._task_id)
                if self._scene is None or self._gone or task != self._scene.task:
                    await self._read()
        except Unavailable:
            return  # closed: the console is being left

    async def _read(self) -> None:
        """Everything there is to know, the task first."""
        task = await self._inspector.task(self._task_id)
        before = self._scene
        # Before everything was looked at once, what is not found may yet come.
        self._gone = task is None and (before is not None or self._inspector.latest.complete)
        if task is None:
            self._scene = before and replace(before, gone=True)
        else:
            if before is not None:
                said = view.changes(before.task, task, self._inspector.states, self._clock())
                self._changed = said or self._changed
            self._scene = await self._about(task, before)
            self._fresh = False
        self._repaint()
        if self._scene is None:
            return
        await self._read_log(self._scene.task)
        if not self._gone:
            await self._read_around(self._scene)
        self._repaint()

    async def _about(self, task: Task, before: Scene | None) -> Scene:
        place = self._live.place
        scene = before or Scene(task, self._inspector.states)
        return replace(
            scene,
            task=task,
            states=self._inspector.states,
            gone=False,
            reasons=await reasons(
                self._inspector, place, self._live.signs.lock, task, self._clock()
            ),
            mark=fingerprint.mark(fingerprint.fold(task.error)) if task.error else "",
            runs=place.runs,
            command=view.show_command(place.command, task),
        )

    async def _read_around(self, scene: Scene) -> None:
        """What its store keeps of it, and how many are like it."""
        task = scene.task
        try:
            found = await self._inspector.parts(task)
        except StoreError:
            found = ()  # it has moved on: the next look says so
        alike = None
        if scene.mark:
            wanted = filters.parse(f"cluster={scene.mark}", now=self._clock())
            alike = max(0, await self._inspector.count(Query(task.state, wanted)) - 1)
        if self._scene is not None and self._scene.task == task:
            self._scene = replace(self._scene, parts=found or self._scene.parts, alike=alike)

    async def _read_log(self, task: Task) -> None:
        """The lines that speak of it, searched from the end."""
        self._log_seen = self._live.signs.log
        since = task.created - SLACK if task.created > 0 else None
        trouble = ""
        try:
            log = await asyncio.to_thread(
                logbook.mentions, self._live.place.logs, task.id, MENTIONED, since
            )
        except OSError as error:
            log, trouble = logbook.Mentions(), error.strerror or str(error)
        history = events.history(events.read(log.lines), task.id)
        if self._scene is not None:
            self._scene = replace(
                self._scene,
                log=log,
                trouble=trouble,
                history=history,
                attempts=events.attempts(history),
            )

    async def _open_parts(self) -> None:
        """Read what the parts hold, as far as they may be read."""
        scene = self._scene
        if scene is None or self._fresh or self._gone:
            return
        try:
            found = await self._inspector.parts(scene.task)
            opened = [await self._open(scene.task, Opened(part)) for part in found]
        except StoreError:
            return  # it has moved on: the next look says so, and what was read stays
        if self._scene is not None and self._scene.task == scene.task:
            self._opened, self._fresh = tuple(opened), True
            self._scene = replace(self._scene, parts=tuple(each.part for each in opened))

    async def _open(self, task: Task, each: Opened) -> Opened:
        if each.part.refused:
            return each
        try:
            return each._replace(data=await self._inspector.read(task, each.part.name))
        except StoreError as error:
            return each._replace(refused=str(error))

    # What is shown

    def _clock(self) -> float:
        return self._around.clock()

    def _tick(self) -> None:
        if not self.is_current:
            return
        self._show_edges()
        log, known = self._live.signs.log, self._log_seen
        self._log_seen = log
        new = set(log).difference(known) if log is not known else ()
        if any(self._task_id in line.text for line in new):
            self.run_worker(self._search_again(), exclusive=True, group="log")
        if TITLES[self._at] not in _STILL:
            self._repaint()

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
            self.run_worker(self._paint(), exclusive=True, group="paint")

    @property
    def _is_there(self) -> bool:
        """Whether its panes are: not before it is composed, nor while it is taken down."""
        return self.is_attached and bool(self.query(LongText)) and bool(self.size.width)

    async def _paint(self) -> None:
        """The part that is looked at; a long one is laid out beside the loop."""
        title, width = TITLES[self._at], self.size.width
        if self._scene is not None and title in _OPENED and not self._fresh:
            await self._open_parts()
        scene, now, at = self._scene, self._clock(), self._at
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
        scene, live = self._scene, self._live
        word = scene.word if scene is not None and not self._gone else ""
        self.query_one(TopLine).tell(self._around, (live.place.name, word, self._task_id))
        self.query_one("#parts", Lines).show([view.tabs(TITLES, self._at, width)])
        self.query_one("#word", Lines).show([present.cut(self._word(), width)])
        self.show_hints()

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

    def action_log(self) -> None:
        """The log, searched for it."""
        self.go(Target(keys.LOG, id=self._task_id))

    def action_reread(self) -> None:
        """Read it again now."""
        self._fresh = False
        self.run_worker(self._read(), name="reread", exclusive=True, group="reread")

    def copies(self) -> tuple[Copy, ...]:
        """The task, and the command that shows it."""
        scene = self._scene
        if scene is None:
            return ()
        task, word = scene.task, scene.states.get(scene.task.state, "")
        shape = present.columns(task.state, 160)
        line = present.row(task, shape, self._clock(), present.Place(), 160)
        return (
            Copy("i", "id", task.id),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", rows.json_line(rows.row(task, word)).strip()),
            Copy("c", "command", shlex.join(scene.command)),
        )
