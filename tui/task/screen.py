"""The task screen: summary, fields, payload, attempts, log, files, raw."""

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
from engine.text.safe import safe_line
from tui.format import keys, present, task_row
from tui.format.present import Line
from tui.plan import planning
from tui.plan.acting_screen import TASK_JUST_CHANGED, PlanningScreen
from tui.plan.planning import VerbRequest
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import MESSAGE_SECONDS, Page
from tui.screens.target import Target
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.task import lines as view
from tui.task import lookup, parts_lines
from tui.task.lines import TaskScene
from tui.task.parts_lines import Opened
from tui.task.why_waiting import reasons
from tui.widgets.lines import Lines, LongText
from tui.widgets.task_list import SEEN_SECONDS

REASONS_SECONDS = 2.0
"""Seconds after which the reasons for waiting are read again, even without a change."""

WIDE_CELLS, HIGH_LINES = 120, 30
"""Minimum size for attempts and log beside the summary."""

View: TypeAlias = Callable[[TaskScene, tuple[Opened, ...], float, int], list[Line]]

TABS: Mapping[str, View] = {
    "summary": lambda scene, opened, now, width: view.summary_lines(scene, now, width),
    "fields": lambda scene, opened, now, width: view.field_lines(scene, now, width),
    "payload": lambda scene, opened, now, width: parts_lines.payload_lines(opened, now, width),
    "attempts": lambda scene, opened, now, width: view.attempt_lines(scene, now, width),
    "log": lambda scene, opened, now, width: view.log_lines(scene, width),
    "files": lambda scene, opened, now, width: parts_lines.file_lines(scene.parts, now, width),
    "raw": lambda scene, opened, now, width: parts_lines.raw_lines(opened, width),
}
"""The tabs, in their order."""
TITLES = tuple(TABS)
_TABS_WITH_CONTENT = {"payload", "raw"}
"""Tabs that need the content of the parts."""
_TABS_WITHOUT_CLOCK = {"payload", "log", "raw"}
"""Tabs without relative times, which need no repaint each second."""


class TaskScreen(PlanningScreen, Page):
    """One task, kept up to date; keys open plans for it."""

    KIND = keys.TASK
    BINDINGS = key_bindings(keys.TASK)

    def __init__(self, id: str, live: PlaceSession, around: ConsoleContext) -> None:
        super().__init__()
        self._task_id, self.live, self.around = id, live, around
        self._altered_at = float("-inf")
        self._scene: TaskScene | None = None
        self._opened: tuple[Opened, ...] = ()
        self._fresh = False
        """True if the parts were read after the last change of the task."""
        self._gone = False
        self._at, self._shown_at = 0, 0
        self._tops: dict[int, int] = {}
        self._log_seen: tuple[LogLine, ...] = ()
        self._asked = 0.0
        """When the reasons were read last."""
        self._counted: tuple[int, Task | None] = (-1, None)
        """Index generation and task of the last count of same errors."""
        self._changed, self._said, self._said_at = "", ("", ""), 0.0

    def compose(self) -> ComposeResult:
        """Trail, tabs, text, message line, hints."""
        yield TopLine(id="top-line")
        yield Lines(id="parts")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="hints", classes="-short")

    def on_mount(self) -> None:
        """Read the task, and again after each change."""
        self.run_worker(self._follow(), name="task")
        self.set_interval(1.0, self._tick)

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """This task, as shown."""
        if self._scene is None or self._gone:
            return "no task here"
        task = self._scene.task
        if refusal := self.verb_refusal(verb, task.state, task):
            return refusal
        if asyncio.get_running_loop().time() - self._altered_at < SEEN_SECONDS:
            return TASK_JUST_CHANGED
        verb = planning.verb_in_state(verb, task.state)
        return VerbRequest(verb, {task.id}, Query(task.state), lambda _: f"task {task.id}")

    def selected_task(self) -> Task | None:
        """This task."""
        return self._scene.task if self._scene is not None else None

    # Reading

    @property
    def _inspector(self) -> Inspector:
        return self.live.inspector

    async def _follow(self) -> None:
        while True:
            seen = self._inspector.latest.generation
            try:
                task = await self._inspector.queries.task(self._task_id)
                if self._scene is None or self._gone or task != self._scene.task:
                    await self._read()
            except Unavailable as error:
                self.say(str(error))  # from the index; the next change may succeed
            try:
                await self._inspector.wait_for_change(seen)
            except Unavailable:
                return  # closed: the console is being left

    async def _read(self) -> None:
        """Read the task, then its logs and parts."""
        task = await self._inspector.queries.task(self._task_id)
        before, states = self._scene, self._inspector.states
        # During the first scan, a task not found may still appear.
        self._gone = task is None and (before is not None or self._inspector.latest.is_complete)
        if task is None:
            self._scene = before and replace(before, gone=True)
        else:
            said = view.describe_changes(before.task, task, states, self._clock()) if before else ""
            if before is not None:
                self._altered_at = asyncio.get_running_loop().time()
            self._changed, self._fresh = said or self._changed, False
            self._scene = replace(
                before or TaskScene(task, states),
                task=task,
                states=states,
                gone=False,
                mark=error_pattern.pattern_name(error_pattern.fold_error(task.error))
                if task.error
                else "",
                max_runs=self.live.place.max_attempts,
                command=view.show_command(self.live.place.command, task, self.live.place.has_dlq),
            )
            await self._read_reasons()
        self._take_notes()
        self._repaint()
        if self._scene is not None:
            await self._read_log(self._scene.task)
            await self._read_parts(self._scene.task)
            self._repaint()

    async def _read_reasons(self) -> None:
        """Read why it is not running, and count tasks with the same error."""
        if self._scene is None or self._gone:
            return
        scene, live, now = self._scene, self.live, self._clock()
        task, mark, generation = scene.task, scene.mark, self._inspector.latest.generation
        self._asked = now
        why = await reasons(self._inspector, live.place, live.readings.lock, task, now, live.alerts)
        alike = scene.same_error_count if mark else None
        if mark and (generation, task) != self._counted:
            alike = await lookup.count_same_errors(self._inspector, task, mark)
            self._counted = generation, task
        if self._scene.task == task:
            self._scene = replace(self._scene, reasons=why, same_error_count=alike)

    @work(exclusive=True, group="why")
    async def _reread_reasons(self) -> None:
        with suppress(Unavailable):  # keep the previous answer
            await self._read_reasons()

    async def _read_parts(self, task: Task) -> None:
        """List the parts of the task."""
        if self._gone:
            return
        try:
            found = await self._inspector.actions.parts(task)
        except StoreError:
            return  # it moved: the next read reports that
        if self._scene is not None and self._scene.task == task:
            self._scene = replace(self._scene, parts=found)

    async def _read_log(self, task: Task) -> None:
        """Search the logs for the task."""
        self._log_seen = self.live.readings.log
        told = await asyncio.to_thread(lookup.search_logs, self.live.place.logs, task)
        if self._scene is not None:
            self._scene = replace(self._scene, findings=told)

    async def _open_parts(self) -> None:
        """Read the content of the parts."""
        scene = self._scene
        if scene is None or self._fresh or self._gone:
            return
        try:
            opened = await lookup.read_parts(self._inspector, scene.task)
        except StoreError:
            return  # it moved: the next read reports that; keep the old content
        if self._scene is not None and self._scene.task == scene.task:
            self._opened, self._fresh = opened, True
            self._scene = replace(self._scene, parts=tuple(each.part for each in opened))

    # Painting

    def _clock(self) -> float:
        return self.around.clock()

    def _tick(self) -> None:
        if not self.is_current:
            return
        self._paint_frame()
        self._take_notes()
        log, known = self.live.readings.log, self._log_seen
        self._log_seen = log
        new = set(log).difference(known) if log is not known else ()
        if any(self._task_id in line.text for line in new):
            self._search_again()
        if abs(self._clock() - self._asked) >= REASONS_SECONDS:
            self._reread_reasons()
        if TITLES[self._at] not in _TABS_WITHOUT_CLOCK:
            self._repaint()

    def _take_notes(self) -> None:
        """Show the operators' notes when they were read."""
        scene, signs = self._scene, self.live.readings
        if scene is not None:
            notes = signs.notes.get(self._task_id, ())
            if (notes, signs.notes_error) != (scene.notes, scene.notes_error):
                self._scene = replace(scene, notes=notes, notes_error=signs.notes_error)
                self._repaint()

    @work(exclusive=True, group="log")
    async def _search_again(self) -> None:
        if self._scene is not None:
            await self._read_log(self._scene.task)
            self._repaint()

    def lay_out(self, width: int) -> None:
        """Repaint for this width."""
        self._paint_frame()
        self._repaint()

    def _repaint(self) -> None:
        if self._is_mounted_whole:
            self._paint()

    @property
    def _is_mounted_whole(self) -> bool:
        """True if the widgets are mounted."""
        return self.is_paintable and bool(self.query(LongText)) and bool(self.size.width)

    @work(exclusive=True, group="paint")
    async def _paint(self) -> None:
        """Paint the current tab; the text is laid out on a thread."""
        at, width = self._at, self.size.width
        title = TITLES[at]
        if self._scene is not None and title in _TABS_WITH_CONTENT and not self._fresh:
            await self._open_parts()
        scene, now = self._scene, self._clock()
        if scene is None or (title in _TABS_WITH_CONTENT and not self._opened):
            text: list[Line] = [((f" {self._empty_text()}", "muted"),)]
        else:
            show = partial(TABS[title], scene, self._opened, now, width)
            if title == "summary" and width >= WIDE_CELLS and self.size.height >= HIGH_LINES:
                room = self.query_one(LongText).size.height
                show = partial(view.wide_summary, scene, now, width, room)
            text = await asyncio.to_thread(show)
        if self._is_mounted_whole:
            pane = self.query_one(LongText)
            pane.show(text)
            if self._shown_at != at:
                self._shown_at = at
                pane.move_to(self._tops.get(at, len(text) if title == "log" else 0))
            self._paint_frame()

    def _empty_text(self) -> str:
        """Why there is nothing to show."""
        if not self._gone:
            return "loading ..."
        if self._scene is None:
            return "task not found"
        return "task is gone; this tab was not read before"

    def _paint_frame(self) -> None:
        """Repaint everything around the text."""
        if not self._is_mounted_whole:
            return
        width = self.size.width
        scene, live = self._scene, self.live
        word = scene.state_word if scene is not None and not self._gone else ""
        self.query_one(TopLine).update_line(self.around, (live.name, word, self._task_id))
        self.query_one("#parts", Lines).show([view.tab_line(TITLES, self._at, width)])
        self.query_one("#word", Lines).show([present.cut_line(self._message_line(), width)])
        arm = {"arm": keys.arm_hint(self.around.arming.is_armed)}
        self.show_hints(self._grey(), self.without(), arm)

    def _grey(self) -> set[str]:
        """Verbs without a plan for this task."""
        scene = self._scene
        task = None if scene is None or self._gone else scene.task
        state = None if task is None else task.state
        return {key.action for key in keys.verb_keys() if self.verb_refusal(key.verb, state, task)}

    def _message_line(self) -> Line:
        text, look = self._said
        if text and 0 <= self._clock() - self._said_at < MESSAGE_SECONDS:
            return ((f" {safe_line(text)}", look),)
        if self._gone and self._scene is not None:
            return ((f" {view.describe_departure(self._scene, self._clock())}", "warn"),)
        return ((f" {self._changed}", "warn"),)

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message for some seconds."""
        self._said, self._said_at = (text, look), self._clock()
        self._paint_frame()

    # Keys

    def action_part(self, pressed: str) -> None:
        """Go to the previous or the next part."""
        if self._shown_at == self._at:
            self._tops[self._at] = self.query_one(LongText).top
        self._at = (self._at + keys.step_of(pressed)) % len(TITLES)
        self._paint_frame()
        self._repaint()

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(TOO_EARLY if self.hasty else self.around.arming.toggle())

    def action_log(self) -> None:
        """Open the log, filtered for this task."""
        self.go(Target(keys.LOG, id=self._task_id))

    def action_reread(self) -> None:
        """Read the task again."""
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
        shape = present.task_columns(task.state, 160)
        line = present.task_line(task, shape, self._clock(), present.TaskContext(), 160)
        return (
            Copy("i", "id", task.id),
            Copy("r", "row", "".join(text for text, _ in line).strip()),
            Copy("j", "JSON", task_row.json_line(task_row.task_row(task, word)).strip()),
            Copy("c", "command", shlex.join(scene.command)),
        )
