"""What logs say happened to tasks: queued, begun, done, failed, given up on, brought back.

Known are the lines of the contract's program and of ours: `queue.log`, `mail.log`, and the mail
module's delivery records. A line that tells of nothing like that is no event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from engine.logs.log_tail import LogLine
from engine.text import error_pattern


class EventKind(StrEnum):
    """What happened."""

    QUEUED = "queued"
    STARTED = "started"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    """An attempt failed; what follows from it is told by another line."""
    WAITS = "waits"
    """It failed, and will be tried again."""
    BURIED = "buried"
    """It failed, and was given up on."""
    RETRIED = "retried"
    """An operator took it out of the dead-letter queue."""
    RECOVERED = "recovered"
    """Whoever worked on it ended, and it was given back."""
    UNSETTLED = "unsettled"
    """It was run, but what came of it could not be stored, or it was not there any more."""
    PUT_OFF = "put off"
    """It was taken up and given back unattempted, until something else than its turn comes."""


class Event(NamedTuple):
    """Something that happened to a task, or to a mail that is no task yet (its id is "")."""

    when: float | None
    """Epoch seconds; None when the line does not say."""
    id: str
    kind: str
    """Its kind, from the line or from the id; "" when neither says."""
    what: EventKind
    error: str
    """As the line has it, not made safe; "" where there is none."""
    transport: str
    """Which mail transport; "" for lines that speak of the run of a task."""
    line: LogLine
    attempt: int | None = None
    """Which attempt it was, where the line counts them."""
    mark: str = ""
    """The fingerprint of its error; "" where there is none."""


MAIL_KIND = "mail_send"
"""The kind of whatever the mail log speaks of."""

INLINE = "inline"
"""What the mail log says instead of an id of a mail that was sent without being queued."""

_TASK = r"(?P<id>\S+)"
_KIND = r" \((?P<kind>[^\s:()]+)"
_TIMES = r"(?P<attempt>[0-9]{1,9})(?:/[0-9]+)?"
"""Which attempt, and of how many where their number is fixed."""
_END = r"\S+"
"""What a store calls where it keeps what was given up on, or what it ends with."""
_SENT = r"task_id=(?P<id>\S+)"
_BY = r" transport=(?P<transport>\S+)"

PATTERNS: tuple[tuple[str, str, EventKind], ...] = (
    # how the text begins, what follows, what it tells
    ("Processing task: ", f"{_TASK}{_KIND}", EventKind.STARTED),
    ("Processing task: ", _TASK, EventKind.STARTED),
    ("Task completed: ", f"{_TASK}(?:{_KIND})?", EventKind.SUCCEEDED),
    ("Task failed: ", rf"{_TASK}{_KIND}\): (?P<error>.*)", EventKind.FAILED),
    ("Task queued: ", f"{_TASK}(?:{_KIND})?", EventKind.QUEUED),
    ("Task moved to DLQ: ", f"{_TASK}(?:{_KIND})?", EventKind.BURIED),
    ("Task ", rf"{_TASK} failed \(attempt {_TIMES}\), retry in", EventKind.WAITS),
    ("Task ", rf"{_TASK} failed, retry in", EventKind.WAITS),
    ("Task ", rf"{_TASK} exhausted retries \({_TIMES}\), moving to {_END}", EventKind.BURIED),
    ("Task ", rf"{_TASK} (?:cannot succeed, )?moving to {_END}", EventKind.BURIED),
    ("Task ", rf"{_TASK} is not where it was claimed", EventKind.UNSETTLED),
    ("Task ", rf"{_TASK} waits: ", EventKind.PUT_OFF),
    ("Outcome of ", rf"{_TASK} cannot be stored: (?P<error>.*)", EventKind.UNSETTLED),
    ("DLQ task retried: ", _TASK, EventKind.RETRIED),
    ("Moving orphaned work task back to ", rf"\S+: {_TASK}", EventKind.RECOVERED),
    ("Recovered ", r"\S+/(?P<id>[^\s/:]+): .*: back in ", EventKind.RECOVERED),
    ("Mail spooled to queue: ", _TASK, EventKind.QUEUED),
    (
        "MAIL_SEND_ATTEMPT failed ",
        rf"attempt={_TIMES} error=(?P<error>.*)",
        EventKind.FAILED,
    ),
    ("MAIL_SEND_ATTEMPT ", rf"{_SENT} attempt=(?P<attempt>[0-9]{{1,9}}){_BY}", EventKind.STARTED),
    ("MAIL_SEND_RESULT ", rf"{_SENT} status=success{_BY}", EventKind.SUCCEEDED),
    (
        "MAIL_SEND_RESULT ",
        rf"{_SENT} status=failed{_BY} retries=(?P<attempt>[0-9]{{1,9}}) last_error=(?P<error>.*)",
        EventKind.BURIED,
    ),
    ("No mail system available", "(?P<error>)", EventKind.BURIED),
    ("transport=", r"(?P<transport>\S+) recipient=\S* result=success", EventKind.SUCCEEDED),
    (
        "transport=",
        r"(?P<transport>\S+) recipient=\S* result=failed reason=(?P<error>.*)",
        EventKind.BURIED,
    ),
)
"""Every kind of line, by its head; of several with one head the first that fits."""

NOBODY = "none"
"""What stands for the transport of a mail for which there was none."""

_MAIL_HEADS = {"MAIL_SEND_": "?", "No mail system": NOBODY, "transport=": "?"}
"""Heads of lines on a mail being sent, not on the run of a task, and by which transport; "?" where
the line itself, or the attempt before it, says.
"""


class _EventRow(NamedTuple):
    rest: re.Pattern[str]
    what: EventKind
    transport: str


def _by_head() -> dict[str, list[_EventRow]]:
    rows: dict[str, list[_EventRow]] = {}
    for head, rest, what in PATTERNS:
        by = next((by for start, by in _MAIL_HEADS.items() if head.startswith(start)), "")
        row = _EventRow(re.compile(rest), what, by)
        rows.setdefault(head, []).append(row)
    return rows


_ROWS = _by_head()
_HEAD = re.compile("|".join(re.escape(head) for head in sorted(_ROWS, key=len, reverse=True)))
"""The longest head wins, as `Task queued: ` is one of `Task `."""


def event(line: LogLine) -> Event | None:
    """What one line tells; None when it is of no task and no mail."""
    head = _HEAD.match(line.text)
    if head is None:
        return None
    for row in _ROWS[head[0]]:
        found = row.rest.match(line.text, head.end())
        if found is not None:
            return _event(line, found.groupdict(""), row)
    return None


def _event(line: LogLine, said: dict[str, str], row: _EventRow) -> Event:
    is_mail = bool(row.transport)
    id = said.get("id", "")
    if id == INLINE:
        id = ""
    error = said.get("error", "")
    if is_mail and "error" in said:
        error = error or line.text
    return Event(
        line.when,
        id,
        said.get("kind") or kind_of(id) or (MAIL_KIND if is_mail else ""),
        # A mail that has an id is a task's: the queue says whether it is tried again.
        EventKind.FAILED if is_mail and id and row.what is EventKind.BURIED else row.what,
        error,
        said.get("transport") or row.transport,
        line,
        int(said["attempt"]) if said.get("attempt") else None,
        error_pattern.mark(error_pattern.fold(error)) if error else "",
    )


_ID = re.compile(r"[0-9]{8}T[0-9]{6}Z-(?P<kind>.+)-(?:[0-9a-f]{4,8}|[0-9]+)")


def kind_of(id: str) -> str:
    """The kind of a task, which its id holds (`<stamp>-<kind>-<random>`); "" for any other id."""
    found = _ID.fullmatch(id)
    return found["kind"] if found else ""


def read(
    lines: Iterable[LogLine], transports: MutableMapping[str, str] | None = None
) -> Iterator[Event]:
    """The events of lines in the order in which they were written.

    A failed attempt does not name its transport: it is the one of the attempt before it. Whoever
    reads a log piece by piece hands in the same `transports` (by log, filled here) each time.
    """
    transports = {} if transports is None else transports
    for line in lines:
        told = event(line)
        if told is None:
            continue
        if told.transport == "?":
            told = told._replace(transport=transports.get(line.source, "?"))
        elif told.transport:
            transports[line.source] = told.transport
        yield told


def history(events: Iterable[Event], id: str) -> tuple[Event, ...]:
    """What happened to one task, in the order of time; what is undated stays where it was."""
    timed: list[tuple[float, Event]] = []
    when = float("-inf")
    for told in events:
        if told.id == id:
            when = when if told.when is None else told.when
            timed.append((when, told))
    return tuple(told for _, told in sorted(timed, key=lambda pair: pair[0]))


class Attempt(NamedTuple):
    """One run of a task, as far as the logs tell of it."""

    number: int
    """As the log counts, or counted here where it does not."""
    began: float | None
    """Epoch seconds; None when no line says."""
    ended: float | None
    """Epoch seconds; None when no line says, or it has not ended."""
    outcome: EventKind | None
    """How it ended; None while it has not. RECOVERED: whoever ran it ended before."""
    error: str = ""


_ENDS = (EventKind.SUCCEEDED, EventKind.FAILED, EventKind.RECOVERED, EventKind.UNSETTLED)
_VERDICTS = (EventKind.WAITS, EventKind.BURIED)


def attempts(history: Sequence[Event]) -> tuple[Attempt, ...]:
    """The runs of one task, from its history; FAILED becomes WAITS or BURIED where that is told.

    Where both logs speak of a run, the queue's is believed: the mail log sees only the sending.
    """
    runs = [told for told in history if not told.transport] or history
    tries: list[Attempt] = []
    before = 0
    for told in runs:
        last = tries[-1] if tries else None
        if told.what is EventKind.STARTED:
            before = told.attempt or before + 1
            tries.append(Attempt(before, told.when, None, None))
        elif told.what is EventKind.PUT_OFF and last is not None and last.outcome is None:
            before = tries.pop().number - 1
        elif told.what is EventKind.RETRIED:
            before = 0  # counted anew
        elif told.what in _ENDS and (last is None or last.outcome is not None):
            before = told.attempt or before + 1
            tries.append(Attempt(before, None, told.when, told.what, told.error))
        elif told.what in _ENDS and last is not None:
            tries[-1] = last._replace(ended=told.when, outcome=told.what, error=told.error)
        elif (
            told.what in _VERDICTS and last is not None and last.outcome in (None, EventKind.FAILED)
        ):
            before = told.attempt or before
            ended = last._replace(ended=told.when) if last.ended is None else last
            tries[-1] = ended._replace(outcome=told.what, number=before)
    return tuple(tries)
