"""Make tasks of recipient lines: one task for each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from os import stat_result

from engine.model import STALLED_KEY, Lease, State, Task
from engine.stores.zmailer import names
from engine.stores.zmailer.control_file import Diagnostic, RecipientLine
from engine.stores.zmailer.folders import SpoolEntry
from engine.stores.zmailer.marks import lock_pid, state_of
from engine.text.safe import clean_error, safe_line

STATES: Mapping[State, str] = {
    State.PENDING: "waiting",
    State.ACTIVE: "locked",
    State.HELD: "held",
    State.DEAD: "failed",
    State.DONE: "done",
    State.TRASH: "trash",
}
"""The states with their words."""

AGENT_GONE = "its agent is gone"
FIXED_KEY = "fixed"
"""Key in `Task.extra` of a task that cannot be changed: why."""
FINISHED_KEY = "finished"
"""Key in `Task.extra` of a task of a message that is finished for the scheduler."""
NO_SLOT = "its line has no PID slot: shown only"
ALTERNATIVE = "an alternative recipient (X), which the scheduler ignores: shown only"
FINISHED = "the scheduler has removed the message: only our links to it exist"

AgentCheck = Callable[[int, float], bool]
"""True if the process with this PID, which wrote a lock at that time, has ended."""


def text(data: bytes) -> str:
    """Bytes of a control file as safe text."""
    return safe_line(data.decode("utf-8", "replace"))


def revision(seen: stat_result, head: bytes) -> str:
    """Inode and time of the control file, tag and slots of the line."""
    return f"{seen.st_ino:x}.{seen.st_mtime_ns:x}.{head.hex()}"


def tasks_of(
    entry: SpoolEntry, has_ended: AgentCheck, offsets: Collection[int] | None = None
) -> Iterator[Task]:
    """Make the tasks of a control file, or of the recipients at some offsets in it, in the order of
    their ids.
    """
    recipients, facts = entry.control.recipients, _message_facts(entry)
    for one in sorted(recipients, key=lambda recipient: str(recipient.offset)):
        if offsets is None or one.offset in offsets:
            state = task_state(entry.is_kept, one.head)
            if state is not None:
                yield _task_of(entry, facts, one, state, has_ended)


def task_state(is_kept: bool, head: bytes) -> State | None:
    """The state of a recipient; None if it is no task any more.

    Of a message that only our links hold, what is done or failed has ended, and what waits is held:
    the scheduler does not know it.
    """
    state = state_of(head)
    if is_kept and state is State.PENDING:
        return State.HELD
    return None if is_kept and state in (State.DONE, State.DEAD) else state


def expunged_ids(entry: SpoolEntry) -> Iterator[str]:
    """The ids of the recipients that are no tasks."""
    for one in entry.control.recipients:
        if task_state(entry.is_kept, one.head) is None:
            yield names.task_id(entry.name, one.offset)


def _task_of(
    entry: SpoolEntry,
    facts: Mapping[str, str],
    one: RecipientLine,
    state: State,
    has_ended: AgentCheck,
) -> Task:
    control, quad = entry.control, one.quad
    channel, host = text(quad.channel), text(quad.host)
    diagnostic = control.diagnostics.get(one.offset)
    extra = {**facts, **dict(_recipient_facts(one, diagnostic))}
    lease = None
    if state is State.ACTIVE:
        pid, since = lock_pid(one.head), entry.seen.st_mtime
        lease = Lease(f"PID {pid}" if pid else "", since)
        if pid is None or has_ended(pid, since):
            extra[STALLED_KEY] = AGENT_GONE
    error = "" if diagnostic is None else describe(diagnostic)
    if state is State.DEAD and diagnostic is not None:
        extra |= {"dead_since": f"{diagnostic.time:.0f}", "dead_reason": error}
    return Task(
        id=names.task_id(entry.name, one.offset),
        kind=channel,
        state=state,
        created=entry.message.st_mtime,
        queue=f"{channel}/{host}",
        group=host,
        due=None,
        attempts=None,
        description=text(one.subject) or text(control.log_id),
        destination=text(quad.user),
        payload=entry.message_path,
        error=error,
        lease=lease,
        rev=revision(entry.seen, one.head),
        extra=extra,
    )


def _message_facts(entry: SpoolEntry) -> dict[str, str]:
    """The extra values that all tasks of a message have."""
    control, number = entry.control, names.message_number(entry.name) or 0
    values = {
        "spool id": names.spool_id(number, entry.message.st_mtime_ns),
        "message-id": text(control.log_id),
        "sender": text(control.sender),
        "obsoletes": text(b", ".join(control.obsoletes)),
        FINISHED_KEY: FINISHED if entry.is_kept else "",
    }
    return {name: value for name, value in values.items() if value}


def _recipient_facts(
    one: RecipientLine, diagnostic: Diagnostic | None
) -> Iterator[tuple[str, str]]:
    """The extra values of one recipient."""
    notary = () if diagnostic is None else diagnostic.notary[2:5]
    values = [("notify", one.dsn), ("alternatives", one.alternative)]
    values += zip(("status", "report", "remote host"), notary, strict=False)
    yield from ((name, text(value)) for name, value in values if value)
    if one.alternative or not one.slots:
        yield FIXED_KEY, ALTERNATIVE if one.alternative else NO_SLOT


def describe(diagnostic: Diagnostic) -> str:
    """The last line of a diagnostic's message, else the report of the remote host."""
    lines = [line for line in diagnostic.message.split(b"\r") if line.strip()]
    report = diagnostic.notary[3] if len(diagnostic.notary) > 3 else b""
    return clean_error((lines[-1] if lines else report).decode("utf-8", "replace"))
