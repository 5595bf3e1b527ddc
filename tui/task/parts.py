"""The parts of the task screen, without Textual: its tab, and what is read of the task: why it
waits, its log lines, its parts, its cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Flag, auto
from functools import partial
from typing import Protocol, TypeAlias

from engine.index import filter_language
from engine.index.schema import Query
from engine.logs.log_line import LogLine
from engine.model import STALLED_KEY, State, Task, Verdict
from engine.monitor.recurrence import StillHappens
from engine.operations.execute import Report
from engine.operations.notes import notes_of
from engine.store import StoreError, Unavailable
from engine.text import error_pattern
from engine.text.safe import safe_line
from tui.plan import refusals
from tui.plan.planning import VerbRequest
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import ScreenActions
from tui.screens.message import Message
from tui.session.index_queries import check_clusters
from tui.session.place_session import PlaceSession
from tui.task import lookup, parts_lines
from tui.task import task_lines as view
from tui.task.parts_lines import Opened
from tui.task.task_lines import TaskDetails
from tui.task.why_waiting import outlook
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import Line, join_ends
from tui.text.lock import is_freeable
from tui.text.task_list import short_id

COPY_SECONDS = 10.0
"""Seconds after which the log of a server elsewhere is copied and searched again."""

REASONS_SECONDS = 2.0
"""Seconds after which the reasons for waiting are read again, even without a change."""

MAX_CHILDREN = 100


_NOT_IN_COPY = "no line in the end of the server's log: mta trail searches all of it"


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
        self._copy_problem = "copying the end of the server's log"
        self._copy_due = float("-inf")
        """When the log of a server elsewhere is copied again, in seconds of the event loop."""
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
        tallies, cluster = self.session.inspector.tallies, None
        self._counted, old_answers = (generation, details.task), tallies.old_answers
        if details.mark:
            same = filter_language.parse_filter(f"cluster={details.mark}")
            clusters = await check_clusters(self.session, Query(details.task.state, same))
            cluster = clusters[0] if clusters else None
        if tallies.old_answers != old_answers:
            self._counted = -1, None  # counted before the last change: ask again
        if self.details is not None and self.details.task == details.task:
            self.details = replace(self.details, cluster=cluster)
            self._notify()

    async def _read_parts(self, task: Task) -> None:
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
        task, place = self.details.task, self.session.place
        findings = await asyncio.to_thread(lookup.search_logs, place.shown_logs, task)
        findings = await asyncio.to_thread(lookup.read_outputs, place, findings, task)
        if place.log_copy is not None:
            findings = findings._replace(note=_NOT_IN_COPY, problem=self._copy_problem)
        rows: Sequence[tuple[str, str]] = ()
        lines = () if findings.log is None else findings.log.lines
        with suppress(StoreError):  # a server that cannot be asked; the header says so
            rows = await asyncio.to_thread(self.session.place.task_rows, task, lines)
        if self.details is not None:
            self.details = replace(self.details, findings=findings, server_rows=tuple(rows))

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

    async def read_log_elsewhere(self) -> None:
        """Copy the end of the server's log again, if it is time to, and search it."""
        now = asyncio.get_running_loop().time()
        if now >= self._copy_due:
            self._copy_due = now + COPY_SECONDS
            problem = await asyncio.to_thread(self.session.place.fetch_log)
            self._copy_problem = f"the server's log is not copied: {problem}" if problem else ""
            await self.read_log()
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


TabView: TypeAlias = Callable[[TaskDetails, tuple[Opened, ...], float, int], list[Line]]

TABS: Mapping[str, TabView] = {
    "summary": lambda details, opened, now, width: view.summary_lines(details, now, width),
    "payload": lambda details, opened, now, width: parts_lines.payload_lines(opened, now, width),
    "attempts": lambda details, opened, now, width: view.attempt_lines(details, now, width),
    "log": lambda details, opened, now, width: [
        *view.log_lines(details, width),
        *view.output_lines(details.findings, width),
    ],
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
        self._running = set[str]()

    # What is read

    async def follow(self) -> Change:
        """Read the task, and again after each change."""
        await self.reader.follow(lambda text: self.screen.show_change(self.say(text)))
        return Change.NOTHING

    async def reread(self) -> Change:
        """Read the task again, and its files. Raises Unavailable: the place was closed."""
        self.reader.is_fresh = False
        await self.reader.read()
        return Change.NOTHING

    async def _run_once(self, name: str, read: Callable[[], Awaitable[object]]) -> Change:
        self._running.add(name)
        try:
            await read()
        finally:
            self._running.discard(name)
        return Change.NOTHING

    def tick(self) -> Change:
        """Once a second: read again what other processes change, once the last time has ended."""
        reads: dict[str, Callable[[], Awaitable[object]]] = {"refresh": self.reader.refresh}
        if self.session.place.log_copy is not None:
            reads["copy"] = self.reader.read_log_elsewhere
        for name in reads.keys() - self._running:
            self.screen.run(name, partial(self._run_once, name, reads[name]))
        changes = self.reader.take_notes() or self.tab not in WITHOUT_CLOCK
        return Change.TEXT if changes else Change.EDGES

    # What keys act on

    @property
    def task(self) -> Task | None:
        """The task, as last read, also after it is gone; None if it was not found."""
        return None if self.reader.details is None else self.reader.details.task

    @property
    def verb_amount(self) -> tuple[int, bool]:
        return 1, True

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

    def text_frame(self, below: int) -> Frame:
        """The task's id, kind and state, and how many lines are below."""
        details = self.reader.details
        if details is None:
            return Frame(short_id(self.reader.id))
        word = "GONE" if self.reader.gone else details.state_word.upper()
        chip = f" {word} ", "chip-warn" if self.reader.gone else "chip"
        right = (*more_below(below), ("   " * bool(below), ""), chip)
        kind = safe_line(details.task.kind)
        return Frame(short_id(details.task.id), amount=kind, right=right)

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
        reader, task, details = self.reader, self.task, self.reader.details
        if reader.gone:
            departure = view.describe_departure(details) if details else self.empty_text()
            log: Line = (("next ", "muted"), ("t", "key"), (" shows its log lines ", ""))
            left: Line = ((f" {departure}", "warn"),)
            return left if self.session.no_log else join_ends(left, log, width)
        if details is None or task is None:
            return ()
        if reader.changed and self.tab != "summary":
            return ((f" {reader.changed}", "warn"),)
        return next_line(*self._next_key(task, details), short_id(task.id), width)

    def _next_key(self, task: Task, details: TaskDetails) -> tuple[str, str]:
        place, is_pending = self.session.place, task.state is State.PENDING
        lock, read_only = self.session.readings.lock, self.context.arming.read_only
        is_due = is_pending and (task.due or 0.0) <= self.context.clock()
        waits = bool(lock and lock.verdict is Verdict.STALE) or self.session.lacks_worker
        if is_pending and waits and place.worker_command and not read_only:
            full = self.session.full_disk
            does = f"make room on {full.target.name} first" if full else "W there starts one"
            return "3", f"opens the workers: {does}"
        if is_due and lock and is_freeable(lock) and not place.why_no_unlock(read_only):
            return "5", f"opens the locks: U there frees that of {safe_line(self.session.name)}"
        key, does = ("", "") if is_due else NEXT_STEPS.get(task.state, ("", ""))
        if STALLED_KEY in task.extra:
            key, does = "L", "releases it"
        verb = next((each.verb for each in keys.verb_keys() if each.shown == key), "")
        if not verb or self.verb_refusal(verb):
            does = "shows its" if "log" in view.part_counts(details) else "follows its"
            return ("", why) if (why := self.session.no_log) else ("t", f"{does} log")
        cluster = details.cluster
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
