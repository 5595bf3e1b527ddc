"""The task screen: why it does not run, and its parts: payload, attempts, log, files."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Sequence

from engine.index.schema import Query
from engine.model import Task
from tui.plan import planning
from tui.plan.planning import VerbRequest
from tui.plan.refusals import TASK_JUST_CHANGED
from tui.screens.base import PASTED, Copy
from tui.screens.target import Target
from tui.task.page import WITHOUT_CLOCK, TaskPage
from tui.text import keys, task_row
from tui.text.task_list import TaskContext, task_columns, task_line
from tui.widgets.picker import Picker
from tui.widgets.task_rows import SEEN_SECONDS


class TaskScreen(TaskPage):
    """One task, kept up to date; keys open plans for it."""

    def on_mount(self) -> None:
        """Read the task, and again after each change."""
        self.run_worker(self.reader.follow(self.say), name="task")
        self.set_interval(1.0, self._tick)

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """This task, as shown."""
        task = self.selected_task()
        if task is None or self.reader.gone:
            return "no task here"
        if refusal := self.verb_refusal(verb, task.state, task):
            return refusal + self.other_verbs(task.state, task)
        if asyncio.get_running_loop().time() - self.reader.altered_at < SEEN_SECONDS:
            return TASK_JUST_CHANGED
        verb = planning.verb_in_state(verb, task.state, self.session.inspector.edges)
        return VerbRequest(verb, {task.id}, Query(task.state), lambda _: f"task {task.id}")

    def selected_task(self) -> Task | None:
        """This task."""
        return None if self.reader.details is None else self.reader.details.task

    def _tick(self) -> None:
        if not self.is_current:
            return
        if not any(worker.group == "refresh" and worker.node is self for worker in self.workers):
            self._in_background(self.reader.refresh, "refresh")  # the last one has ended
        if self.reader.take_notes() or self.part not in WITHOUT_CLOCK:
            self.repaint()
        else:
            self._paint_frame()

    def _in_background(self, read: Callable[[], Awaitable[None]], group: str) -> None:
        # A function, not its coroutine: one that is cancelled before it starts is never awaited.
        self.run_worker(read, group=group, exclusive=True)

    # Keys

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(PASTED if self.is_pasted else self.context.arming.toggle())

    def action_open(self) -> None:
        """Open the parent or the child under the cursor."""
        details, id = self.reader.details, self.query_one("#relatives", Picker).key
        family = () if details is None else (details.relatives.parent, *details.relatives.children)
        relative = next((one for one in family if one is not None and one.id == id), None)
        if relative is None:
            self.say("no parent and no children")
        elif not relative.is_here:
            self.say(f"{id} is not in this place, or no longer")
        else:
            self.go(Target(keys.TASK, id=id))

    def without(self) -> set[str]:
        """Hide the key that opens a relative where there are none."""
        return super().without() | (set() if self.has_relatives else {"open"})

    def action_log(self) -> None:
        """Open the log, filtered for this task."""
        self.go(Target(keys.LOG, id=self.reader.id))

    def action_reread(self) -> None:
        """Read the task again."""
        self.reader.is_fresh = False
        self._in_background(self.reader.read, "reread")

    def copies(self) -> tuple[Copy, ...]:
        """The task, and the command that shows it."""
        details = self.reader.details
        if details is None:
            return ()
        word = details.states.get(details.task.state, "")
        return task_copies(details.task, word, details.command, self.context.clock())


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
