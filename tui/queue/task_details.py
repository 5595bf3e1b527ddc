"""The task under the cursor: what is looked up about it once the cursor rests, and its text: all
fields beside a wide list, four lines below another; and why it has left the list."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from engine.config.queue_config import Trash
from engine.index.schema import Query
from engine.logs.task_events import Attempt, EventKind, TaskEvent, task_attempts, task_history
from engine.model import LockEvidence, Part, State, Task, own_description
from engine.monitor.recurrence import StillHappens
from engine.operations.journal import Operation
from engine.operations.trash import trashed_at
from engine.policy import count_runs, died_at
from engine.store import StoreError, Unavailable
from engine.text.error_pattern import fold_error, pattern_name
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_bytes, format_count
from engine.text.safe import safe_error, safe_line, state_name
from engine.values import NamedTuple
from engine.verbs import VERBS
from engine.waiting_reasons import join_reasons
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.session.place_session import PlaceSession
from tui.task.why_waiting import NO_OUTLOOK, TaskOutlook, list_outlook
from tui.text.lines import Line, Run, fit_text, fold_long_lines, fold_text
from tui.text.styles import STILL_LOOKS
from tui.text.task_fields import others_text, recipients_text
from tui.text.times import format_age, format_clock, format_minutes, format_time_with_age

NAME_CELLS = 9
"""Cells for the names of the fields."""

BRIEF_LINES = 4
"""Lines of the details below a small list."""

MAX_ATTEMPTS = 5
"""Latest attempts that are listed."""


class TaskFindings(NamedTuple):
    """What was found out about one task after the cursor came to rest on it."""

    id: str = ""
    outlook: TaskOutlook = NO_OUTLOOK
    """Why it waits, or what happens next."""
    parts: tuple[Part, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    """Its attempts of the last hour, from the logs."""
    cluster: CheckedCluster | None = None

    def why(self, task: Task, lock: LockEvidence | None, now: float) -> str:
        """Why it waits, in one line, with the lock as last read."""
        return safe_line(join_reasons(self.outlook.reasons(task, now, lock)))


def detail_lines(
    task: Task, findings: TaskFindings, session: PlaceSession, now: float, width: int
) -> list[Line]:
    """All fields of a task, and why it is where it is; a field without a value is omitted."""
    rows: list[tuple[str, Line]] = [
        ("state", _state_words(task, session, now)),
        ("queue", _plain(task.queue)),
        ("group", _plain(task.group)),
        ("from", _plain(task.sender)),
        ("account", _plain(UNKNOWN if task.account is None else task.account)),
        ("to", _plain(recipients_text(task, 3) or task.destination)),
        ("about", _plain(own_description(task))),
        ("size", _plain(_size_words(findings.parts))),
        (
            "created",
            _plain(format_time_with_age(task.created, now) if task.created > 0 else UNKNOWN),
        ),
        ("due", _plain(_due_words(task, now))),
        ("error", _plain(safe_error(task.error))),
        *_cluster_rows(findings.cluster, task, session, now),
        *((name, _plain(text)) for name, text in trash_rows(task, session.place.trash, now)),
        *_attempt_rows(findings.attempts),
        ("priority", _plain(str(task.priority) if task.priority else "")),
    ]
    lines = [line for name, runs in rows if runs for line in _field(name, runs, width)]
    lock = session.readings.lock
    pieces = fold_text(why, width - 1) if (why := findings.why(task, lock, now)) else []
    return [*lines, *(((f" {piece}", ""),) for piece in pieces)]


def brief_lines(
    task: Task, findings: TaskFindings, session: PlaceSession, now: float, width: int
) -> list[Line]:
    """The details in `BRIEF_LINES` lines: what it is, why it is here, its cluster, its error."""
    created = f"created {format_time_with_age(task.created, now)}" if task.created > 0 else ""
    address = f"{task.sender} to {recipients_text(task)}" if task.sender else task.destination
    if task.sender and task.sender in task.description:
        address = ""
    facts = [address, task.description, created, _size_words(findings.parts)]
    first = ", ".join(safe_line(words) for words in facts if words)
    error = safe_error(task.error)
    cluster: Line = ()
    if findings.cluster is not None:
        (_, named), (_, now_words) = _cluster_rows(findings.cluster, task, session, now)
        cluster = (("cluster ", "muted"), *named, ("   still? ", "muted"), *now_words)
    trash = ", ".join(f"{name} {text}" for name, text in trash_rows(task, session.place.trash, now))
    pieces = fold_text(error, width - 8)[:1] if error else []
    why = findings.why(task, session.readings.lock, now)
    lines: list[Line] = [
        ((first, ""),),
        *(((piece, ""),) for piece in fold_text(why, width - 2)[:2]),
        *([((trash, ""),)] if trash else []),
        *([cluster] if cluster else []),
        *((("error ", "muted"), (piece, "")) for piece in pieces),
    ]
    shown: list[Line] = [((" ", ""), *line) for line in lines[:BRIEF_LINES]]
    return fold_long_lines(shown, width, BRIEF_LINES)


def trash_rows(task: Task, trash: Trash | None, now: float) -> list[Run]:
    """When a task was purged, and until when it can be restored."""
    since = trashed_at(task)
    if task.state is not State.TRASH or since is None:
        return []
    rows = [("purged", format_time_with_age(since, now))]
    if trash is not None:
        rows.append(("expires", format_time_with_age(since + 3600 * trash.hours, now)))
    return rows


def _plain(text: str) -> Line:
    return ((safe_line(text), "unknown" if text == UNKNOWN else ""),) if text else ()


def _field(name: str, runs: Line, width: int) -> list[Line]:
    """A name and its value; a value of one run is folded, another one where the pane has room."""
    room = max(8, width - NAME_CELLS - 1)
    label = fit_text(f" {name}", NAME_CELLS + 1)
    if len(runs) > 1:
        return [((label, "muted"), *runs)]
    text, style = runs[0]
    return [
        ((label if not at else " " * len(label), "muted"), (piece, style))
        for at, piece in enumerate(fold_text(text, room))
    ]


def _state_words(task: Task, session: PlaceSession, now: float) -> Line:
    word = state_name(task.word or session.inspector.states.get(task.state, task.state))
    if (lease := task.lease) is not None:
        words = f" for {format_minutes(now - lease.since)}" if lease.since > 0 else ""
        words += f", by {safe_line(lease.owner)}" if lease.owner else ""
    else:
        died = died_at(task)
        words = f" {format_age(now - died)}" if died is not None else ""
    most = session.place.max_attempts(task)
    runs = count_runs(task, most)
    limit = "" if most is None else f" of {most:,}"
    tries = Figure(runs).text()
    noun = "try" if tries == "1" and not limit else "tries"
    return ((word, "strong"), (f"{words}, {tries}{limit} {noun}", ""))


def _due_words(task: Task, now: float) -> str:
    if task.state not in (State.PENDING, State.HELD) or task.due is None:
        return ""
    return format_time_with_age(task.due, now) if task.due > now else "now"


def _size_words(parts: Sequence[Part]) -> str:
    if not parts:
        return ""
    known = sum(part.size or 0 for part in parts)
    return f"{format_bytes(known)}, {format_count(len(parts), 'part')}"


def _cluster_rows(
    judged: CheckedCluster | None, task: Task, session: PlaceSession, now: float
) -> list[tuple[str, Line]]:
    if judged is None:
        return []
    cluster, answer = judged
    others = f", {others_text(cluster.count - 1, task.state, session.inspector.states)}"
    last = f", last {format_clock(judged.last)}" if judged.last is not None else ""
    text = safe_line(answer.text)
    if answer.answer is StillHappens.UNKNOWN and answer.evidence:
        text, last = f"unknown: {safe_line(answer.evidence[0])}", ""
    return [
        ("cluster", ((cluster.mark, "accent"), (others, ""))),
        ("still?", ((text, STILL_LOOKS[answer.answer]), *[(last, "")] * bool(last))),
    ]


def _attempt_rows(attempts: Sequence[Attempt]) -> list[tuple[str, Line]]:
    rows: list[tuple[str, Line]] = []
    for attempt in attempts[-MAX_ATTEMPTS:]:
        when = attempt.began if attempt.began is not None else attempt.ended
        stamp = UNKNOWN if when is None else time.strftime("%H:%M:%S", time.gmtime(when))
        line: Line = ((stamp, ""), (f"  {safe_error(attempt.error)}", "muted"))
        rows.append(("" if rows else "tries", line))
    return rows


CLUSTERS_SECONDS, REASONS_SECONDS = 10.0, 5.0
"""Age in seconds from which the clusters of the details are read again, and all the rest."""


class TaskLookup:
    """The findings about one task; the clusters of its state are kept for some seconds."""

    def __init__(self, session: PlaceSession) -> None:
        self._session = session
        self._found = TaskFindings()
        self._clusters: tuple[State | None, float, tuple[CheckedCluster, ...]] = (None, 0.0, ())
        self._due = math.inf
        """When to look up again by the monotonic clock; inf while this is done."""

    def is_old(self, task: Task | None) -> bool:
        """True if a task that was looked up is to be again: a pause or a limit may hold it now."""
        return task is not None and self._found.id == task.id and time.monotonic() >= self._due

    def of(self, task: Task) -> TaskFindings:
        """What was found out about a task; nothing if another one was looked up."""
        return self._found if self._found.id == task.id else TaskFindings()

    async def look_up(self, task: Task) -> None:
        """Find out why it waits, its parts, attempts, cluster. Raises Unavailable: place closed."""
        self._due = math.inf
        try:
            self._found = await self._find(task)
        finally:
            self._due = time.monotonic() + REASONS_SECONDS

    async def _find(self, task: Task) -> TaskFindings:
        session, now = self._session, self._session.clock()
        outlook = await list_outlook(
            session.inspector,
            session.place,
            session.readings.lock,
            task=task,
            now=now,
            alerts=session.alerts,
        )
        attempts = task_attempts(task_history(session.events(), task.id))
        cluster = await self._find_cluster(task, now) if task.error else None
        parts = await self._read_parts(task)
        return TaskFindings(task.id, outlook, parts, attempts, cluster)

    async def _find_cluster(self, task: Task, now: float) -> CheckedCluster | None:
        state, read, clusters = self._clusters
        if state is not task.state or not 0 <= now - read < CLUSTERS_SECONDS:
            clusters = await check_clusters(self._session, Query(task.state))
            self._clusters = task.state, now, clusters
        mark = pattern_name(fold_error(task.error))
        return next((each for each in clusters if each.cluster.mark == mark), None)

    async def _read_parts(self, task: Task) -> tuple[Part, ...]:
        try:
            return tuple(await self._session.inspector.actions.parts(task))
        except Unavailable:
            raise
        except StoreError:
            return ()  # it has just changed: the list is about to show that


RECENT_SECONDS = 12.0
"""Seconds after its end for which an operation explains that a row has left."""


MAX_EVENTS_SEARCHED = 2000
"""Events at the end of the logs in which the end of a task is searched, for each row that left."""


def describe_departure(
    before: Task,
    after: Task | None,
    states: Mapping[State, str],
    operations: Iterable[Operation],
    now: float,
    events: Sequence[TaskEvent] = (),
) -> str:
    """Why a row has left its list: the operation that did it, else the task's new state, or its end
    in the log. `events`: those of the logs."""
    for operation in operations:
        ended = operation.ended
        verb = operation.intent.verb
        if verb not in VERBS or (ended is not None and not 0 <= now - ended < RECENT_SECONDS):
            continue
        if (before.state, None if after is None else after.state) in VERBS[verb].edges:
            when = format_age(now - ended) if ended is not None else "now"
            words = VERBS[verb].words(is_paced=bool(operation.intent.pace))
            return f"{words.past} by {safe_line(operation.intent.who.name)} {when}"
    if after is None:
        latest = islice(reversed(events), MAX_EVENTS_SEARCHED)
        own = (event for event in latest if event.id == before.id and not event.transport)
        if (last := next(own, None)) is None or last.what is not EventKind.SUCCEEDED:
            return "gone, or no longer readable"
        return (
            "succeeded (log)" if last.when is None else f"succeeded {format_age(now - last.when)}"
        )
    return f"now in {state_name(states.get(after.state, after.state))}"


def purged_by(task_since: float | None, operations: Iterable[Operation]) -> str:
    """Who moved a task to the trash at a time, from the operations; "?" if that is not certain."""
    if task_since is None:
        return UNKNOWN
    names = {
        safe_line(one.intent.who.name)
        for one in operations
        if one.intent.verb == "purge"
        and one.started - 1 <= task_since
        and (one.ended is None or task_since <= one.ended + 1)
    }
    return names.pop() if len(names) == 1 else UNKNOWN
