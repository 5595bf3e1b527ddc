"""Make tasks of recipient lines: one task for each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from os import stat_result
from zlib import crc32

from engine.model import STALLED_KEY, Lease, Missing, Problem, State, Task
from engine.stores.zmailer import names
from engine.stores.zmailer.control_file import (
    Diagnostic,
    RecipientLine,
    parse_diagnostic,
    parse_quad,
    parse_recipient,
    split_address,
)
from engine.stores.zmailer.folders import SpoolEntry, problem_at
from engine.stores.zmailer.marks import lock_pid, state_of
from engine.system.files import Refused
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

MAX_SORTED = 10_000
"""Offsets that are sorted together."""

_new_task: Callable[[Iterable[object]], Task] = partial(tuple.__new__, Task)

AgentCheck = Callable[[int, float], bool]
"""True if the process with this PID, which wrote a lock at that time, has ended."""


def text(data: bytes) -> str:
    """Bytes of a control file as safe text."""
    line = data.decode("utf-8", "replace")
    return line if line.isprintable() else safe_line(line)


@lru_cache(4096)
def _thread_words(thread: bytes) -> tuple[str, str, str]:
    """Channel, host and both together of a thread, cached because threads repeat."""
    channel, _, host = map(text, thread.lower().partition(b" "))
    return channel, host, f"{channel}/{host}"


def _address_words(address: bytes) -> tuple[str, str, str, str]:
    """Channel, host, both together, and the user of an address.

    Raises:
        Refused: it is damaged.
    """
    thread, user = split_address(address)
    if thread:
        return *_thread_words(thread), text(user)
    quad = parse_quad(address)
    channel, host = text(quad.channel), text(quad.host)
    return channel, host, f"{channel}/{host}", text(quad.user)


def revision_prefix(control: stat_result, message: stat_result) -> str:
    """The part of revisions that all recipients of a file have: inode of the control file and time
    of the message, which stay as long as the message exists.
    """
    return f"{control.st_ino:x}.{message.st_mtime_ns:x}."


def revision(prefix: str, one: RecipientLine, diagnostic: int | None, *, is_stalled: bool) -> str:
    """The revision of a recipient: tag and slots, a checksum of the address and the offset of the
    last diagnostic, and whether the agent of a lock is gone. No change of another recipient of the
    file changes it.
    """
    rest, gone = crc32(one.address, diagnostic or 0), "!" if is_stalled else ""
    return f"{prefix}{one.head.hex()}.{rest:x}{gone}"


def items_of(
    entry: SpoolEntry, has_ended: AgentCheck, offsets: Collection[int] | None = None
) -> Iterator[Task | Missing | Problem]:
    """Yield the tasks of a control file, or of the recipients at some offsets in it, in order of
    their ids: for one that was expunged, that it is missing; for one that is damaged, a problem.
    """
    layout, make = entry.layout, _TaskMaker(entry, has_ended).make
    wanted = layout.recipients
    if offsets is not None:
        wanted = sorted(filter(layout.has_recipient, offsets))
    for offset in in_id_order(wanted):
        try:
            one = parse_recipient(layout, offset, entry.line_at)
            yield make(one)
        except Refused as refusal:
            yield problem_at(entry.where, f"{refusal} at offset {offset}", entry.seen)


def tasks_of(
    entry: SpoolEntry, has_ended: AgentCheck, offsets: Collection[int] | None = None
) -> Iterator[Task]:
    """Yield only the tasks of `items_of`."""
    return (item for item in items_of(entry, has_ended, offsets) if isinstance(item, Task))


def in_id_order(offsets: Sequence[int]) -> Iterator[int]:
    """Yield ascending offsets in the order of their digits, as ids are sorted. Those with the same
    first digit are sorted at a time, so that few texts are in memory.
    """
    if len(offsets) < MAX_SORTED:
        yield from sorted(offsets, key=str)
        return
    for first in range(1, 10):
        some: list[int] = []
        scale = 1
        while scale <= offsets[-1]:
            low = bisect_left(offsets, first * scale)
            some += offsets[low : bisect_left(offsets, (first + 1) * scale)]
            scale *= 10
        yield from sorted(some, key=str)


def task_state(is_kept: bool, head: bytes) -> State | None:
    """The state of a recipient; None if it is no task any more.

    Of a message that only our links hold, what is done or failed has ended, and what waits is held:
    the scheduler does not know it.
    """
    state = state_of(head)
    if is_kept and state is State.PENDING:
        return State.HELD
    return None if is_kept and state in (State.DONE, State.DEAD) else state


class _TaskMaker:
    """Makes the tasks of one control file."""

    def __init__(self, entry: SpoolEntry, has_ended: AgentCheck) -> None:
        self._entry, self._has_ended = entry, has_ended
        self._facts = _message_facts(entry)
        self._created = entry.message.st_mtime
        self._prefix = revision_prefix(entry.seen, entry.message)
        self._subjects: dict[bytes, str] = {b"": text(entry.layout.log_id)}

    def make(self, one: RecipientLine) -> Task | Missing:
        """The task of a recipient, or that it is missing if it was expunged.

        Raises:
            Refused: its address is damaged.
        """
        entry, offset = self._entry, one.offset
        ident, state = f"{entry.name}/{offset}", task_state(entry.is_kept, one.head)
        if state is None:
            return Missing(ident)
        channel, host, thread, user = _address_words(one.address)
        extra, error, lease, is_stalled = self._facts, "", None, False
        if one.dsn:
            extra = {**extra, "notify": text(one.dsn)}
        if one.alternative or not one.slots:
            extra = {**extra, **_fixed_facts(one)}
        last = entry.layout.diagnostics.get(offset)
        if last is not None:
            diagnostic = parse_diagnostic(entry.line_at(last))
            error = describe(diagnostic)
            extra = {**extra, **_diagnostic_facts(diagnostic)}
            if state is State.DEAD:
                extra |= {"dead_since": f"{diagnostic.time:.0f}", "dead_reason": error}
        if state is State.ACTIVE:
            pid, since = lock_pid(one.head), entry.seen.st_mtime
            lease = Lease(f"PID {pid}" if pid else "", since)
            is_stalled = pid is None or self._has_ended(pid, since)
            extra = {**extra, STALLED_KEY: AGENT_GONE} if is_stalled else extra
        description = self._subjects.get(one.subject)
        if description is None:
            description = self._subjects[one.subject] = text(one.subject)
        rev = revision(self._prefix, one, last, is_stalled=is_stalled)
        # In the order of the fields: the constructor takes three times as long.
        # fmt: off
        return _new_task((
            ident, channel, state, self._created, thread, host, "", None, None, 0, description,
            user, entry.message_path, error, lease, rev, extra, None,
        ))
        # fmt: on


def _message_facts(entry: SpoolEntry) -> dict[str, str]:
    """The extra values that all tasks of a message have."""
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
    """The extra values of a recipient that cannot be changed."""
    if not one.alternative:
        return {FIXED_KEY: NO_SLOT}
    return {"alternatives": text(one.alternative), FIXED_KEY: ALTERNATIVE}


def _diagnostic_facts(diagnostic: Diagnostic) -> dict[str, str]:
    """The extra values of a recipient with a diagnostic."""
    parts = zip(("status", "report", "remote host"), diagnostic.notary[2:5], strict=False)
    found = {name: text(value) for name, value in parts if value}
    lines = [line for line in diagnostic.message.split(b"\r") if line.strip()]
    if len(lines) > 1:  # the error is only the last one
        found["diagnostic"] = " | ".join(map(text, lines))
    return found


def describe(diagnostic: Diagnostic) -> str:
    """The last line of a diagnostic's message, without the sign of what the remote host said; else
    its report.
    """
    said = (line.removeprefix(b"->> ") for line in diagnostic.message.split(b"\r"))
    lines = [line for line in said if line.strip()]
    report = diagnostic.notary[3] if len(diagnostic.notary) > 3 else b""
    return clean_error((lines[-1] if lines else report).decode("utf-8", "replace"))
