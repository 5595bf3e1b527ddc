"""The text of a task file, read and written: ten `NAME="value"` lines in a fixed order.

Source: NFTBan Queue and Mail Contract, "Task Queue System"; nftban_task_queue.sh for the order, the
character set and the numbers. A file of exactly that form is read by one pattern; any other goes
through the strict reader, and the two agree wherever both answer.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from engine.files import Refused, parse_assignments
from engine.model import State, Task
from engine.text import plain, plain_error

SUFFIX = ".task"
DEAD_REASON = "max_retries_exceeded"
"""The only reason the contract knows."""

_TEXT = r"[ !#%-\[\]-_a-~]*"  # printable ASCII without the four that a shell reads: " $ \ `
_NUMBER = r"0|[1-9][0-9]{0,11}"
_ID = r"[A-Za-z0-9][A-Za-z0-9_:-]{0,159}"
_KIND = r"[a-z0-9_]{1,64}"

_canonical = re.compile(
    f'TASK_ID="({_ID})"\n'
    f'TASK_TYPE="({_KIND})"\n'
    f'TASK_DESCRIPTION="({_TEXT})"\n'
    f'TASK_CREATED_EPOCH="({_NUMBER})"\n'
    f'TASK_RETRIES="({_NUMBER})"\n'
    f'TASK_NEXT_ATTEMPT_EPOCH="({_NUMBER})"\n'
    f'TASK_LAST_ERROR="({_TEXT})"\n'
    f'TASK_PAYLOAD_FILE="({_TEXT})"\n'
    f'(?:TASK_DLQ_EPOCH="({_NUMBER})"\nTASK_DLQ_REASON="({_TEXT})"\n)?'
).fullmatch
_is_id = re.compile(_ID).fullmatch
_is_kind = re.compile(_KIND).fullmatch
_is_number = re.compile(_NUMBER).fullmatch
_is_safe = re.compile(_TEXT).fullmatch


class Record(NamedTuple):
    """What a task file says, field by field; times in epoch seconds UTC."""

    id: str
    kind: str
    description: str
    created: int
    retries: int
    due: int
    error: str
    payload: str
    dead_since: int | None = None
    dead_reason: str = ""
    more: tuple[tuple[str, str], ...] = ()
    """TASK_* fields that the contract does not name; kept as they are."""


def id_of(name: str) -> str | None:
    """The task id that a file name stands for; None when it is no task file's name."""
    if not name.endswith(SUFFIX):
        return None
    ident = name[: -len(SUFFIX)]
    return ident if _is_id(ident) else None


def parse(data: bytes, ident: str) -> Record:
    """What the file of task `ident` says.

    Raises:
        Refused: it is not a task file, or another task's; with line and expectation.
    """
    record = parse_canonical(data) or parse_strict(data)
    if record.id != ident:
        raise Refused(f"TASK_ID is {record.id}, expected {ident} as in its file name")
    return record


def parse_canonical(data: bytes) -> Record | None:
    """The quick way: None when the file is not of exactly the form that the contract shows."""
    try:
        match = _canonical(data.decode("ascii"))
    except UnicodeDecodeError:
        return None
    if match is None:
        return None
    ident, kind, text, created, retries, due, error, payload, dead, reason = match.groups()
    return Record(
        ident,
        kind,
        text,
        int(created),
        int(retries),
        int(due),
        error,
        payload,
        None if dead is None else int(dead),
        reason or "",
    )


FIELDS = (
    *("TASK_ID", "TASK_TYPE", "TASK_DESCRIPTION", "TASK_CREATED_EPOCH", "TASK_RETRIES"),
    *("TASK_NEXT_ATTEMPT_EPOCH", "TASK_LAST_ERROR", "TASK_PAYLOAD_FILE"),
    *("TASK_DLQ_EPOCH", "TASK_DLQ_REASON"),
)
_REQUIRED = ("TASK_ID", "TASK_TYPE", "TASK_DESCRIPTION", "TASK_CREATED_EPOCH")


def parse_strict(data: bytes) -> Record:
    """The careful way: every form that all shells read alike; fields not required default.

    Raises:
        Refused: with line or field and what was expected.
    """
    values = parse_assignments(data, known=lambda key: key.startswith("TASK_"))
    for key in _REQUIRED:
        if key not in values:
            raise Refused(f"{key} is missing")
    if not _is_id(values["TASK_ID"]):
        raise Refused("TASK_ID is no task id")
    if not _is_kind(values["TASK_TYPE"]):
        raise Refused("TASK_TYPE is no type, expected a-z 0-9 _, at most 64")
    dead = _number(values, "TASK_DLQ_EPOCH") if "TASK_DLQ_EPOCH" in values else None
    return Record(
        values["TASK_ID"],
        values["TASK_TYPE"],
        values["TASK_DESCRIPTION"],
        _number(values, "TASK_CREATED_EPOCH"),
        _number(values, "TASK_RETRIES"),
        _number(values, "TASK_NEXT_ATTEMPT_EPOCH"),
        values.get("TASK_LAST_ERROR", ""),
        values.get("TASK_PAYLOAD_FILE", ""),
        dead,
        values.get("TASK_DLQ_REASON", ""),
        tuple((key, value) for key, value in values.items() if key not in FIELDS),
    )


def _number(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not _is_number(text):
        raise Refused(f"{key} is {text[:20]!r}, expected a whole number without leading zeros")
    return int(text)


# One %-format is half the time of an f-string over so many fields.
_LIVE = "".join(f'{key}="%s"\n' for key in FIELDS[:8])
_DEAD = "".join(f'{key}="%s"\n' for key in FIELDS[8:])


def render(record: Record) -> bytes:
    """The file's bytes, in the contract's order, with nothing in it that a shell would expand."""
    text = _LIVE % record[:8]
    if record.dead_since is not None:
        text += _DEAD % record[8:10]
    for key, value in record.more:
        text += f'{key}="{_harmless(value)}"\n'
    return text.encode("ascii")


def _harmless(value: str) -> str:
    return value if _is_safe(value) else plain(value)


def new_record(task: Task) -> Record:
    """How a task that is not stored yet will stand in its file.

    Raises:
        Refused: an id, kind or payload path that the file may not hold.
    """
    if not _is_kind(task.kind):
        raise Refused(f"task type {task.kind[:40]!r}: expected a-z 0-9 _, at most 64")
    if not _is_id(task.id):
        raise Refused(f"task id {task.id[:40]!r}: expected letters, digits, _ : -")
    if plain(task.payload) != task.payload:
        # Cleaning a path would make it another path.
        raise Refused(
            f"payload path {task.payload[:80]!r}: expected letters, digits, space, _ . - : /"
        )
    return Record(
        task.id,
        task.kind,
        plain(task.description),
        int(task.created),
        task.attempts or 0,
        whole(task.due),
        plain_error(task.error),
        task.payload,
    )


def changed(record: Record, old: Task, new: Task, now: float) -> Record:
    """What the file says after a task went from `old` to `new`: only what the verb changed.

    In the dead-letter queue it carries when and why it came there; on the way out it loses that.
    Held and trashed files stay as they are.
    """
    if new.state in (State.HELD, State.TRASH):
        return record
    after = record._replace(
        description=record.description
        if new.description == old.description
        else plain(new.description),
        retries=new.attempts or 0,
        due=record.due if new.due == old.due else whole(new.due),
        error=record.error if new.error == old.error else plain_error(new.error),
    )
    if new.state is not State.DEAD:
        after = after._replace(dead_since=None, dead_reason="")
    elif after.dead_since is None:
        after = after._replace(due=0, dead_since=int(now), dead_reason=DEAD_REASON)
    if after == record:
        return record  # only its place differs: what comes back from the trash is itself
    return after._replace(
        description=_harmless(after.description),
        error=_harmless(after.error),
        payload=_harmless(after.payload),
    )


def whole(due: float | None) -> int:
    """A due time in whole seconds, never earlier than it was meant."""
    return int(-(-(due or 0.0) // 1))
