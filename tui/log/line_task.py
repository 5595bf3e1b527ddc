"""Look up the task that a log line names, for the line above the hints."""

from __future__ import annotations

from engine.logs.log_file import FileEntry
from engine.model import State, Task
from engine.store import Unavailable
from engine.text.error_pattern import fold_error, pattern_name
from engine.text.figures import format_count
from engine.text.safe import safe_line
from tui.log import log_lines as view
from tui.session.place_session import PlaceSession
from tui.text.task_list import count_runs


class LineTask:
    """The task of the line under the cursor, as the index has it."""

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self.id = ""
        """Its id; "" if the line names none."""
        self._task: Task | None = None
        self._is_known = False
        self._generation = -1
        """That of the index for which it was asked last."""

    def select(self, entry: FileEntry | None) -> bool:
        """Select the task that an entry names; True if it is to be looked up: it is another one
        than before, or the index has changed since then."""
        named = view.labelled_ids(entry.line.text)[:1] if entry is not None else ()
        before, self.id = self.id, named[0] if named else ""
        if self.id != before:
            self._task, self._is_known = None, False
        elif self._generation == self._session.inspector.latest.generation:
            return False
        self._generation = self._session.inspector.latest.generation
        return bool(self.id)

    async def look_up(self) -> None:
        """Read the task from the index."""
        asked_id = self.id
        try:
            task = await self._session.inspector.queries.task(asked_id)
        except Unavailable:
            return  # the place cannot be read: its header shows that
        if asked_id == self.id:
            self._task, self._is_known = task, True

    @property
    def is_gone(self) -> bool:
        """True if the queue has no such task."""
        return self._is_known and self._task is None

    def describe(self) -> str:
        """State, attempts and cluster: `dlq, 3 attempts, cluster F-276D`; "" if unknown."""
        task = self._task
        if task is None:
            return ""
        names = self._session.inspector.states
        parts = [safe_line(names.get(task.state, task.state.value))]
        if runs := count_runs(task, self._session.place.max_attempts(task)):
            parts.append(format_count(runs, "attempt"))
        if task.error and task.state is State.DEAD:
            parts.append(f"cluster {pattern_name(fold_error(task.error))}")
        return ", ".join(parts)
