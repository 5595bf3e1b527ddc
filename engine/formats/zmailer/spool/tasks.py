"""Make tasks of recipient lines: one task for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from os import stat_result
from typing import Protocol
from zlib import crc32

from engine.formats.zmailer.spool import names
from engine.formats.zmailer.spool.control_file import (
    DELAY_SLOT_BYTES,
    MAX_DAMAGE,
    PID_SLOT_BYTES,
    Diagnostic,
    RecipientLine,
    parse_diagnostic,
    parse_recipient,
)
from engine.formats.zmailer.spool.folders import SpoolEntry, problem_at
from engine.formats.zmailer.spool.marks import DONE, FAILED, TODO, lock_pid, state_of
from engine.formats.zmailer.spool.names import is_thread, parse_quad
from engine.model import (
    NO_MAIL_FIELDS,
    STALLED_KEY,
    WAITS_KEY,
    Lease,
    Missing,
    Problem,
    State,
    Task,
)
from engine.system.files import Refused
from engine.text.safe import clean_error, safe_line
from engine.text.times import format_time
from engine.values import NamedTuple
from engine.verbs import WAITING_PREFIX

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

MAX_SORTED = 10_000
"""Offsets that are sorted together."""

PLAIN_SLOTS = PID_SLOT_BYTES + DELAY_SLOT_BYTES
PLAIN_START = 2 + PLAIN_SLOTS
"""Where the address begins in the lines that the router writes."""
_PLAIN_HEADS: Mapping[bytes, State] = {
    b"r" + tag + b" " * PLAIN_SLOTS: state
    for tag, state in ((TODO, State.PENDING), (DONE, State.DONE), (FAILED, State.DEAD))
}

_new_task: Callable[[Iterable[object]], Task] = partial(tuple.__new__, Task)

AgentCheck = Callable[[int, float], bool]
"""True if the process with this PID, which wrote a lock at that time, has ended."""


def text(data: bytes) -> str:
    """Bytes of a control file as safe text."""
    line = data.decode("utf-8", "replace")
    return line if line.isprintable() else safe_line(line)


@lru_cache(4096)
def _thread_words(thread: bytes) -> tuple[str, str, str] | None:
    """Channel, host and both together of a thread ("channel host"), cached because threads repeat;
    None if it has another form."""
    if not is_thread(thread):
        return None
    channel, _, host = map(text, thread.lower().partition(b" "))
    return channel, host, f"{channel}/{host}"


def _parse_words(address: bytes) -> tuple[str, str, str, bytes]:
    """Channel, host, both together, and the user of an address. Raises Refused: it is damaged."""
    quad = parse_quad(address)
    channel, host = text(quad.channel), text(quad.host)
    return channel, host, f"{channel}/{host}", quad.user


def revision_prefix(control: stat_result, message: stat_result) -> str:
    """The part of revisions that all recipients of a file have: inode of the control file and time
    of the message, which stay as long as the message exists."""
    return f"{control.st_ino:x}.{message.st_mtime_ns:x}."


def revision(prefix: str, one: RecipientLine, diagnostic: int | None, *, is_stalled: bool) -> str:
    """The revision of a recipient: tag and slots, a checksum of the address and the offset of the
    last diagnostic, and whether the agent of a lock is gone. No change of another recipient of the
    file changes it."""
    stalled_mark = "!" if is_stalled else ""
    return f"{prefix}{one.head.hex()}.{crc32(one.address, diagnostic or 0):x}{stalled_mark}"


def items_of(
    entry: SpoolEntry, has_ended: AgentCheck, offsets: Collection[int] | None = None
) -> Iterator[Task | Missing | Problem]:
    """Yield the tasks of a control file, or of the recipients at some offsets in it, in order of
    their ids: for one that was expunged, that it is missing; for one that is damaged, a problem."""
    layout, (make_plain, make) = entry.layout, _task_makers(entry, has_ended)
    chosen: Sequence[int] = layout.recipients
    if offsets is not None:
        chosen = sorted(filter(layout.has_recipient, offsets))
    damaged = 0
    for offset in in_id_order(chosen):
        task = make_plain(offset)
        if task is not None:
            yield task
            continue
        try:
            yield make(parse_recipient(layout, offset, entry.line_at))
        except Refused as refusal:
            damaged += 1
            if damaged <= MAX_DAMAGE:
                what = f"{refusal} at offset {offset}"
                yield problem_at(entry.where, what, entry.file_stat)


def tasks_of(
    entry: SpoolEntry, has_ended: AgentCheck, offsets: Collection[int] | None = None
) -> Iterator[Task]:
    """Yield only the tasks of `items_of`."""
    return (item for item in items_of(entry, has_ended, offsets) if isinstance(item, Task))


def in_id_order(offsets: Sequence[int]) -> Iterator[int]:
    """Yield ascending offsets in the order of their digits, as ids are sorted. Those with the same
    first two digits are sorted at a time, so that few texts are in memory."""
    if len(offsets) < MAX_SORTED:
        yield from sorted(offsets, key=str)
        return
    for first in range(10, 100):
        some = [first // 10] if first % 10 == 0 and first // 10 in offsets[:10] else []
        scale = 1
        while scale <= offsets[-1]:
            low = bisect_left(offsets, first * scale)
            some += offsets[low : bisect_left(offsets, (first + 1) * scale)]
            scale *= 10
        yield from sorted(some, key=str)


def task_state(is_kept: bool, head: bytes) -> State | None:
    """The state of a recipient; None if it is no task any more.

    Of a message that only our links hold, what is done or failed has ended, and what waits is held:
    the scheduler does not know it."""
    state = state_of(head)
    if is_kept and state is State.PENDING:
        return State.HELD
    return None if is_kept and state in (State.DONE, State.DEAD) else state


def _task_makers(
    entry: SpoolEntry, has_ended: AgentCheck
) -> tuple[Callable[[int], Task | None], Callable[[RecipientLine], Task | Missing]]:
    """Return two functions that make the tasks of a control file.

    The first makes the task of a plain recipient at an offset straight from its line, in half the
    time: in the format of the router, waiting or finished, without a diagnostic; None for others.
    The second takes the others, also those that were expunged, which are missing. It raises Refused
    if the address is damaged."""
    name, is_kept, file_stat, payload = (
        entry.name,
        entry.is_kept,
        entry.file_stat,
        entry.message_path,
    )
    facts, diagnostics = _message_facts(entry), entry.layout.diagnostics
    created, prefix = entry.message.st_mtime, revision_prefix(file_stat, entry.message)
    layout, line_at = entry.layout, entry.line_at
    subjects: dict[bytes, str] = {b"": text(layout.log_id)}
    is_plain_file = layout.slots == PLAIN_SLOTS and not layout.notify_lines
    is_plain_file = is_plain_file and not is_kept and len(layout.subjects) == 1
    last_subject = layout.subjects[0] if is_plain_file else (0, b"")
    plain_end, plain_description = last_subject[0], text(last_subject[1] or layout.log_id)

    def make_plain(offset: int) -> Task | None:
        if offset >= plain_end or offset in diagnostics:
            return None
        raw = line_at(offset)
        state, address = _PLAIN_HEADS.get(raw[:PLAIN_START]), raw[PLAIN_START:]
        words = address.rsplit(b" ", 2)
        if state is None or len(words) < 3 or not words[2].isdigit():
            return None
        thread = _thread_words(words[0])
        if thread is None:
            return None
        channel, host, queue = thread
        user, notify = words[1].decode("utf-8", "replace"), line_at(offset + len(raw) + 1)
        extra = facts
        if notify[:1] == b"N":
            extra = {**facts, "notify": text(notify[2:])}
        # fmt: off
        return _new_task((
            f"{name}/{offset}", channel, state, created, queue, host, "", None, None, 0,
            plain_description, user if user.isprintable() else safe_line(user), payload,
            *NO_MAIL_FIELDS, "", None,
            f"{prefix}{raw[1:PLAIN_START].hex()}.{crc32(address, 0):x}", extra, None,
        ))
        # fmt: on

    def make(one: RecipientLine) -> Task | Missing:
        ident, state = f"{name}/{one.offset}", task_state(is_kept, one.head)
        if state is None:
            return Missing(ident)
        words = one.address.rsplit(b" ", 2)
        thread = _thread_words(words[0]) if len(words) == 3 and words[2].isdigit() else None
        channel, host, queue, user = (
            (*thread, words[1]) if thread is not None else _parse_words(one.address)
        )
        extra, error, lease, is_stalled, last = facts, "", None, False, None
        if one.dsn:
            extra = {**extra, "notify": text(one.dsn)}
        if one.alternative or not one.slots:
            extra = {**extra, **_fixed_facts(one)}
        if diagnostics and (last := diagnostics.get(one.offset)) is not None:
            diagnostic = parse_diagnostic(line_at(last))
            error = describe(diagnostic)
            extra = {**extra, **_diagnostic_facts(diagnostic)}
            if state is State.DEAD:
                extra |= {"dead_since": f"{diagnostic.time:.0f}", "dead_reason": error}
        if state is State.ACTIVE:
            pid = lock_pid(one.head)
            lease = Lease(f"PID {pid}" if pid else "", file_stat.st_mtime)
            is_stalled = pid is None or has_ended(pid, file_stat.st_mtime)
            extra = {**extra, STALLED_KEY: AGENT_GONE} if is_stalled else extra
        description = subjects.get(one.subject)
        if description is None:
            description = subjects[one.subject] = text(one.subject)
        # fmt: off
        return _new_task((
            ident, channel, state, created, queue, host, "", None, None, 0, description,
            text(user), payload, *NO_MAIL_FIELDS, error, lease,
            revision(prefix, one, last, is_stalled=is_stalled), extra, None,
        ))
        # fmt: on

    return make_plain, make


def _message_facts(entry: SpoolEntry) -> dict[str, str]:
    layout, number = entry.layout, names.message_number(entry.name) or 0
    values = {
        "spool id": names.spool_id(number, entry.message.st_mtime_ns),
        "message-id": text(layout.log_id),
        "sender": text(layout.sender),
        "obsoletes": text(b", ".join(layout.obsoletes)),
        FINISHED_KEY: FINISHED if entry.is_kept else "",
    }
    return {name: value for name, value in values.items() if value}


def _fixed_facts(one: RecipientLine) -> dict[str, str]:
    if not one.alternative:
        return {FIXED_KEY: NO_SLOT}
    return {"alternatives": text(one.alternative), FIXED_KEY: ALTERNATIVE}


def _diagnostic_facts(diagnostic: Diagnostic) -> dict[str, str]:
    parts = zip(("status", "report", "remote host"), diagnostic.notary[2:5], strict=False)
    facts = {name: text(value) for name, value in parts if value}
    lines = [line for line in diagnostic.message.split(b"\r") if line.strip()]
    if len(lines) > 1:  # the error is only the last one
        facts["diagnostic"] = " | ".join(map(text, lines))
    return facts


def describe(diagnostic: Diagnostic) -> str:
    """The last line of a diagnostic's message, without the sign of what the remote host said; else
    its report."""
    bare_lines = (line.removeprefix(b"->> ") for line in diagnostic.message.split(b"\r"))
    lines = [line for line in bare_lines if line.strip()]
    report = diagnostic.notary[3] if len(diagnostic.notary) > 3 else b""
    return clean_error((lines[-1] if lines else report).decode("utf-8", "replace"))


class RecipientFacts(NamedTuple):
    """What a scheduler knows of a recipient that is to do."""

    due: float | None = None
    """When it is tried next, epoch seconds UTC; 0: now; None: only an event starts it, or it is
    unknown."""
    attempts: int | None = None
    """Answers for its message at its host; None if unknown."""
    error: str = ""
    """The last line of the last answer; "" if there is none since the start of the scheduler."""
    why: str = ""
    """Why it is not being delivered, besides `due`."""
    expires: float | None = None
    """When it is given up, epoch seconds UTC; None: never, or unknown."""


class SchedulerFacts(Protocol):
    """Asks the running scheduler of a spool."""

    def read(self) -> object:
        """Ask it, unless what it has answered is current."""

    def find(self, name: str, task: Task) -> RecipientFacts:
        """What it has answered about a recipient of a control file."""

    def close(self) -> object:
        """Close the connection."""


def join(
    facts: SchedulerFacts, items: Iterable[Task | Missing | Problem]
) -> Iterator[Task | Missing | Problem]:
    """Yield the items; waiting and locked recipients with what the scheduler knows of them."""
    facts.read()
    for item in items:
        if isinstance(item, Task) and item.state in (State.PENDING, State.ACTIVE):
            yield _joined(item, facts.find(item.id.partition("/")[0], item))
        else:
            yield item


def _joined(task: Task, known: RecipientFacts) -> Task:
    extra, is_waiting = dict(task.extra), task.state is State.PENDING
    if known.why and is_waiting:
        extra[WAITS_KEY] = known.why
    if known.expires is not None:
        extra["expires"] = format_time(known.expires).replace(" ", "T")
    error = known.error or task.error
    if known.why and is_waiting and not error:
        error = f"{WAITING_PREFIX}{known.why}"
    due = known.due if is_waiting else task.due
    return task._replace(due=due, attempts=known.attempts, error=error, extra=extra)
