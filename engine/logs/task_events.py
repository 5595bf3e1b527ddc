"""Task events in logs: queued, started, succeeded, failed, retried, moved to the dead-letter queue.

The lines of the contract's program and of this one are known: `queue.log`, `mail.log`, and the mail
module's delivery records. Any other line is not an event."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from enum import StrEnum
from functools import cache, lru_cache

from engine.logs.log_line import LogLine
from engine.text import error_pattern
from engine.values import NamedTuple


class EventKind(StrEnum):
    """The kind of an event."""

    QUEUED = "queued"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """An attempt failed; another line tells whether it is retried."""
    WAITS = "waits"
    """It failed, and will be retried."""
    BURIED = "buried"
    """It failed, and was moved to the dead-letter queue."""
    RETRIED = "retried"
    """An operator took it out of the dead-letter queue."""
    RECOVERED = "recovered"
    """Its worker ended, and it was made pending again."""
    UNSETTLED = "unsettled"
    """It was run, but its result could not be stored, or the task had gone."""
    PUT_OFF = "put off"
    """It was claimed and released without an attempt, until a condition is met."""
    LACKING = "lacking"
    """The worker itself lacks what a kind of task needs: none of it is tried."""


class TaskEvent(NamedTuple):
    """An event of a task, or of a mail without a task (its id is "")."""

    when: float | None
    """Epoch seconds; None if the line has no time."""
    id: str
    kind: str
    """The kind of the task, from the line or from the id; "" if neither has it."""
    what: EventKind
    error: str
    """As in the line, untrusted; "" if none."""
    transport: str
    """The mail transport; "" for lines about the run of a task."""
    level: str
    """As in the line; "" if it has none."""
    text: str
    """The line without its head, untrusted."""
    source: str
    """The path of the log."""
    attempt: int | None = None
    """The number of the attempt, if the line has it."""
    mark: str = ""
    """The fingerprint of its error; "" if none."""
    end: str = ""
    """The store's word for the state that a given-up task is moved to; "" if the line has none."""

    @property
    def line(self) -> LogLine:
        """Its log line, made again from the parts: one more object for each event takes more."""
        return LogLine(self.when, self.level, self.text, self.source)


MAIL_KIND = "mail_send"
"""The kind of all tasks in the mail log."""

INLINE_ID = "inline"
"""The id in the mail log of a mail that was sent without being queued."""

_TASK = r"(?P<id>\S+)"
_KIND = r" \((?P<kind>[^\s:()]+)"
_TIMES = r"(?P<attempt>[0-9]{1,9})(?:/[0-9]+)?"
"""The number of the attempt, and of the maximum if there is one."""
_END = r"(?P<end>\S+)"
"""The store's word for the state of tasks that were given up."""
_SENT = r"task_id=(?P<id>\S+)"
_BY = r" transport=(?P<transport>\S+)"
_LAST_ERROR = r"retries=(?P<attempt>[0-9]{1,9}) last_error=(?P<error>.*)"
_RESULT = r"(?P<transport>\S+) recipient=\S* result="

LINE_PATTERNS: tuple[tuple[str, str, EventKind], ...] = (
    # first words, pattern of the rest, event
    ("Processing task: ", f"{_TASK}{_KIND}", EventKind.STARTED),
    ("Processing task: ", _TASK, EventKind.STARTED),
    ("Task completed: ", f"{_TASK}(?:{_KIND})?", EventKind.SUCCEEDED),
    ("Task failed: ", rf"{_TASK}{_KIND}\): (?P<error>.*)", EventKind.FAILED),
    ("Task queued: ", f"{_TASK}(?:{_KIND})?", EventKind.QUEUED),
    ("Task moved to ", f"{_END}: {_TASK}(?:{_KIND})?", EventKind.BURIED),
    ("Task ", rf"{_TASK} failed \(attempt {_TIMES}\), retry in", EventKind.WAITS),
    ("Task ", rf"{_TASK} failed, retry in", EventKind.WAITS),
    ("Task ", rf"{_TASK} exhausted retries \({_TIMES}\), moving to {_END}", EventKind.BURIED),
    ("Task ", rf"{_TASK} (?:cannot succeed, )?moving to {_END}", EventKind.BURIED),
    ("Task ", rf"{_TASK} is not where it was claimed", EventKind.UNSETTLED),
    ("Task ", rf"{_TASK} waits: ", EventKind.PUT_OFF),
    ("Not tried: ", r"(?P<kind>[^:]+): (?P<error>.*)", EventKind.LACKING),
    ("Outcome of ", rf"{_TASK} cannot be stored: (?P<error>.*)", EventKind.UNSETTLED),
    ("DLQ task retried: ", _TASK, EventKind.RETRIED),
    ("Moving orphaned work task back to ", rf"\S+: {_TASK}", EventKind.RECOVERED),
    ("Recovered ", r"\S+/(?P<id>[^\s/:]+): .*: back in ", EventKind.RECOVERED),
    ("Mail spooled to queue: ", _TASK, EventKind.QUEUED),
    ("MAIL_SEND_ATTEMPT failed ", rf"attempt={_TIMES} error=(?P<error>.*)", EventKind.FAILED),
    ("MAIL_SEND_ATTEMPT ", rf"{_SENT} attempt=(?P<attempt>[0-9]{{1,9}}){_BY}", EventKind.STARTED),
    ("MAIL_SEND_RESULT ", rf"{_SENT} status=success{_BY}", EventKind.SUCCEEDED),
    ("MAIL_SEND_RESULT ", rf"{_SENT} status=failed{_BY} {_LAST_ERROR}", EventKind.BURIED),
    ("No mail system available", "(?P<error>)", EventKind.BURIED),
    ("transport=", rf"{_RESULT}success", EventKind.SUCCEEDED),
    ("transport=", rf"{_RESULT}failed reason=(?P<error>.*)", EventKind.BURIED),
)
"""All known lines by their first words; of several with the same ones, the first match counts."""

NO_TRANSPORT = "none"
"""The transport of a mail if none was available."""

_MAIL_HEADS = {"MAIL_SEND_": "?", "No mail system": NO_TRANSPORT, "transport=": "?"}
"""First words of lines about sending a mail, with the transport; "?" if the line itself, or the
attempt before it, has it."""


class _EventRow(NamedTuple):
    pattern: str
    what: EventKind
    transport: str


def _by_head() -> dict[str, list[_EventRow]]:
    rows: dict[str, list[_EventRow]] = {}
    for head, pattern, what in LINE_PATTERNS:
        by = next((by for start, by in _MAIL_HEADS.items() if head.startswith(start)), "")
        rows.setdefault(head, []).append(_EventRow(pattern, what, by))
    return rows


_ROWS = _by_head()
_compile = cache(re.compile)
"""Compile a pattern with the first line that needs it: all of them take 2 ms of each start."""
_HEAD = re.compile("|".join(re.escape(head) for head in sorted(_ROWS, key=len, reverse=True)))
"""The longest one wins, because `Task queued: ` also begins with `Task `."""


def parse_event(line: LogLine) -> TaskEvent | None:
    """Parse a line; None if it is about no task and no mail."""
    head = _HEAD.match(line.text)
    if head is None:
        return None
    for row in _ROWS[head[0]]:
        match = _compile(row.pattern).match(line.text, head.end())
        if match is not None:
            return _event(line, match.groupdict(""), row)
    return None


@lru_cache(maxsize=4096)
def _shared(text: str) -> str:
    """The first object of equal texts: several lines have the same id, nearly all the same kind,
    and tens of thousands of events are kept."""
    return text


def _event(line: LogLine, groups: dict[str, str], row: _EventRow) -> TaskEvent:
    is_mail, id, error = bool(row.transport), groups.get("id", ""), groups.get("error", "")
    if id == INLINE_ID:
        id = ""
    if is_mail and "error" in groups:
        error = error or line.text
    return TaskEvent(
        line.when,
        _shared(id),
        _shared(groups.get("kind") or kind_of(id) or (MAIL_KIND if is_mail else "")),
        # A mail with an id belongs to a task: the queue log decides whether it is retried.
        what=EventKind.FAILED if is_mail and id and row.what is EventKind.BURIED else row.what,
        error=error,
        transport=groups.get("transport") or row.transport,
        level=line.level,
        text=line.text,
        source=line.source,
        attempt=int(groups["attempt"]) if groups.get("attempt") else None,
        mark=error_pattern.pattern_name(error_pattern.fold_error(error)) if error else "",
        end=groups.get("end", ""),
    )


_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z\w*-(?P<kind>.+)-(?:[0-9a-f]{4,8}|[0-9]+)")


def kind_of(id: str) -> str:
    """The kind of a task from its id (`<stamp>-<kind>-<random>`); "" for any other id."""
    match = _ID.fullmatch(id)
    return match["kind"] if match else ""


def read_events(
    lines: Iterable[LogLine], transports: MutableMapping[str, str] | None = None
) -> Iterator[TaskEvent]:
    """The events of lines, in the order in which they were written.

    A failed attempt does not name its transport: it is that of the attempt before it. A caller that
    reads a log in pieces passes the same `transports` (by log, filled here) each time."""
    transports = {} if transports is None else transports
    for line in lines:
        event = parse_event(line)
        if event is None:
            continue
        if event.transport == "?":
            event = event._replace(transport=transports.get(line.source, "?"))
        elif event.transport:
            transports[line.source] = event.transport
        yield event


def task_history(events: Iterable[TaskEvent], id: str) -> tuple[TaskEvent, ...]:
    """The events of one task, sorted by time; an event without a time keeps its place."""
    timed: list[tuple[float, TaskEvent]] = []
    when = float("-inf")
    for event in events:
        if event.id == id:
            when = when if event.when is None else event.when
            timed.append((when, event))
    return tuple(event for _, event in sorted(timed, key=lambda pair: pair[0]))


class Attempt(NamedTuple):
    """One run of a task, as far as the logs show it."""

    number: int
    """From the log, or counted here."""
    began: float | None
    """Epoch seconds; None if no line has it."""
    ended: float | None
    """Epoch seconds; None if no line has it, or the run has not ended."""
    outcome: EventKind | None
    """Its result; None until it has ended. RECOVERED: its worker ended first."""
    error: str = ""


_ENDS = (EventKind.SUCCEEDED, EventKind.FAILED, EventKind.RECOVERED, EventKind.UNSETTLED)
_VERDICTS = (EventKind.WAITS, EventKind.BURIED)


def task_attempts(history: Sequence[TaskEvent]) -> tuple[Attempt, ...]:
    """The runs of one task, from its history; FAILED becomes WAITS or BURIED if another line
    decides. If both logs have a run, the queue log counts: the mail log only covers the sending."""
    runs = [event for event in history if not event.transport] or history
    tries: list[Attempt] = []
    before = 0
    for event in runs:
        last = tries[-1] if tries else None
        if event.what is EventKind.STARTED:
            before = event.attempt or before + 1
            tries.append(Attempt(before, event.when, None, None))
        elif event.what is EventKind.PUT_OFF and last is not None and last.outcome is None:
            before = tries.pop().number - 1
        elif event.what is EventKind.RETRIED:
            before = 0  # the count starts again
        elif event.what in _ENDS and (last is None or last.outcome is not None):
            before = event.attempt or before + 1
            tries.append(Attempt(before, None, event.when, event.what, event.error))
        elif event.what in _ENDS and last is not None:
            tries[-1] = last._replace(ended=event.when, outcome=event.what, error=event.error)
        elif (
            event.what in _VERDICTS
            and last is not None
            and last.outcome in (None, EventKind.FAILED)
        ):
            before = event.attempt or before
            ended = last._replace(ended=event.when) if last.ended is None else last
            tries[-1] = ended._replace(outcome=event.what, number=before)
    return tuple(tries)
