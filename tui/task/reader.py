"""Reads one task and everything about it: why it waits, its log lines, its parts, its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from engine.index import filter_language
from engine.index.schema import Query
from engine.logs.log_line import LogLine
from engine.model import Task
from engine.operations.notes import notes_of
from engine.store import StoreError, Unavailable
from engine.text import error_pattern
from tui.session.place_session import PlaceSession
from tui.session.recurrence_check import check_clusters
from tui.task import lookup
from tui.task import task_lines as view
from tui.task.parts_lines import Opened
from tui.task.task_lines import TaskDetails
from tui.task.why_waiting import outlook

REASONS_SECONDS = 2.0
"""Seconds after which the reasons for waiting are read again, even without a change."""

MAX_CHILDREN = 100
"""Children of a task that are listed."""


class TaskReader:
    """The facts about one task, as last read."""

    def __init__(self, id: str, session: PlaceSession, changed: Callable[[], None]) -> None:
        """`changed` is called after each change of the facts."""
        self.id, self.session, self._notify = id, session, changed
        self.details: TaskDetails | None = None
        """None until the task was found."""
        self.gone = False
        self.changed = ""
        """The last change that was seen, with its time."""
        self.altered_at = float("-inf")
        """When it was seen, in seconds of the event loop."""
        self.opened: tuple[Opened, ...] = ()
        self.is_fresh = False
        """True if the parts were opened after the last change of the task."""
        self._log_seen: tuple[LogLine, ...] = ()
        self._asked = 0.0
        self._counted: tuple[int, Task | None] = (-1, None)
        """Index generation and task of the last check of the cluster."""

    async def follow(self, say: Callable[[str], None]) -> None:
        """Read the task, and again after each change; `say` gets the errors."""
        inspector = self.session.inspector
        while True:
            generation = inspector.latest.generation
            try:
                task = await inspector.queries.task(self.id)
                if self.details is None or self.gone or task != self.details.task:
                    await self.read()
                await self._check_cluster()
            except Unavailable as error:
                say(str(error))  # from the index; the next change may succeed
            try:
                await inspector.wait_for_change(generation)
            except Unavailable:
                return  # closed: the console is being left

    async def read(self) -> None:
        """Read the task, then its logs and parts."""
        inspector = self.session.inspector
        task = await inspector.queries.task(self.id)
        before, states = self.details, inspector.states
        # During the first scan, a task not found may still appear.
        self.gone = task is None and (before is not None or inspector.latest.is_complete)
        if task is None:
            self.details = before and replace(before, gone=True)
        else:
            now, place = self.session.clock(), self.session.place
            change = view.describe_changes(before.task, task, states, now) if before else ""
            if before is not None:
                self.altered_at = asyncio.get_running_loop().time()
            self.changed, self.is_fresh = change or self.changed, False
            mark = error_pattern.pattern_name(error_pattern.fold_error(task.error))
            self.details = replace(
                before or TaskDetails(task, states),
                task=task,
                states=states,
                gone=False,
                mark=mark if task.error else "",
                max_runs=place.max_attempts(task),
                command=view.show_command(place.command, task, place.has_dlq),
                changed=self.changed,
            )
            await self._read_outlook()
        self.take_notes()
        self._notify()
        if self.details is not None:
            await self.read_log()
            await self._read_parts(self.details.task)
            await self._read_relatives()
            self._notify()

    async def _read_outlook(self) -> None:
        if self.details is None or self.gone:
            return
        task, now = self.details.task, self.session.clock()
        self._asked = now
        new_outlook = await outlook(self.session, task, now)
        if self.details.task == task:
            self.details = replace(self.details, outlook=new_outlook)

    async def _check_cluster(self) -> None:
        """Count the tasks with the same error, and check whether it still happens."""
        details, generation = self.details, self.session.inspector.latest.generation
        is_same = details is not None and (generation, details.task) == self._counted
        if details is None or self.gone or is_same or not self.session.has_readings:
            return
        self._counted, cluster = (generation, details.task), None
        if details.mark:
            same = filter_language.parse_filter(f"cluster={details.mark}")
            clusters = await check_clusters(self.session, Query(details.task.state, same))
            cluster = clusters[0] if clusters else None
        if self.details is not None and self.details.task == details.task:
            self.details = replace(self.details, cluster=cluster)
            self._notify()

    async def _read_parts(self, task: Task) -> None:
        """List the parts of the task."""
        if self.gone:
            return
        try:
            parts = await self.session.inspector.actions.parts(task)
        except StoreError:
            return  # it moved: the next read reports that
        request = self.details.request if self.details is not None else ()
        if "://" in task.destination and not request:
            fields = self.session.place.url_fields
            request = await lookup.read_request(self.session.inspector, task, parts, fields)
        if self.details is not None and self.details.task == task:
            self.details = replace(self.details, parts=parts, request=request)

    async def _read_relatives(self) -> None:
        """Read the parent and the children of the task; the last ones stay if that fails."""
        details = self.details
        if details is None or self.gone:
            return
        try:
            relatives = await self.session.inspector.actions.relatives(details.task, MAX_CHILDREN)
        except StoreError:
            return  # the place is unavailable, which the header shows
        if self.details is not None and self.details.task == details.task:
            self.details = replace(self.details, relatives=relatives)

    async def open_parts(self) -> None:
        """Read the content of the parts, if it may have changed."""
        details = self.details
        if details is None or self.is_fresh or self.gone:
            return
        try:
            opened = await lookup.read_parts(self.session.inspector, details.task)
        except StoreError:
            return  # it moved: the next read reports that; keep the old content
        if self.details is not None and self.details.task == details.task:
            self.opened, self.is_fresh = opened, True
            self.details = replace(self.details, parts=tuple(each.part for each in opened))

    async def read_log(self) -> None:
        """Search the logs for the task."""
        if self.details is None:
            return
        self._log_seen = self.session.readings.log
        task = self.details.task
        findings = await asyncio.to_thread(lookup.search_logs, self.session.place.logs, task)
        if self.details is not None:
            self.details = replace(self.details, findings=findings)

    async def refresh(self) -> None:
        """Read again what other processes change: new log lines, and the reasons."""
        log, known = self.session.readings.log, self._log_seen
        self._log_seen = log
        new = set(log).difference(known) if log is not known else ()
        is_mentioned = any(self.id in line.text for line in new)
        if is_mentioned:
            await self.read_log()
        if abs(self.session.clock() - self._asked) >= REASONS_SECONDS:
            with suppress(Unavailable):  # keep the previous answer
                await self._read_outlook()
                await self._check_cluster()
            await self._read_relatives()
        if is_mentioned:
            self._notify()

    def take_notes(self) -> bool:
        """Take the operators' notes as last read; True if there are others."""
        details, readings = self.details, self.session.readings
        if details is None:
            return False
        notes = notes_of(readings.notes, details.task, self.session.clock())
        if (notes, readings.notes_error) == (details.notes, details.notes_error):
            return False
        self.details = replace(details, notes=notes, notes_error=readings.notes_error)
        return True
