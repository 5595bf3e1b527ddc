"""The text of a task file, read and written: ten `NAME="value"` lines in a fixed order.

Source: NFTBan Queue and Mail Contract, "Task Queue System"; nftban_task_queue.sh for the order, the
character set and the numbers. A file of exactly that form is taken apart at its quotes; any other
goes through the strict reader, and the two agree wherever both answer.
"""

import os
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from engine import policy
from engine.model import EMPTY, Lease, State, Task
from engine.system.files import Refused, parse_assignments, revision
from engine.text.safe import plain, plain_error

SUFFIX = ".task"
LONGEST = 4096
"""Characters of a description or a path that a new task may have; with them it stays readable."""

NO_TASK_NAME = "not named like a task: expected ID.task"

DEAD_REASON = "max_retries_exceeded"
"""The only reason the contract knows."""

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = _LOWER + _LOWER.upper()
_SAFE = bytes(c for c in range(0x20, 0x7F) if chr(c) not in '"$\\`')
"""Printable ASCII without the four that a shell reads inside double quotes."""
_HARMLESS = _SAFE.decode()


def is_id(text: str) -> bool:
    """Whether a task may be called that: letters, digits, `_ : -`, at most 160 of them."""
    return 0 < len(text) <= 160 and text[0] not in "_:-" and not text.strip(_ID)


def is_kind(text: str) -> bool:
    """Whether a kind may be called that: a-z, 0-9 and `_`, at most 64 of them."""
    return 0 < len(text) <= 64 and not text.strip(_KIND)


def is_number(text: str) -> bool:
    """Whether it is a whole number as bash, too, would read it: no sign, no leading zero."""
    return 0 < len(text) <= 12 and not text.strip(_DIGITS) and (text[0] != "0" or text == "0")


def is_plain_path(text: str) -> bool:
    """Whether a path is written plainly, and needs no cleaning to stand in a task file."""
    if not text:
        return True
    return plain(text) == text and not {"", ".", ".."} & set(text.removeprefix("/").split("/"))


def require_plain_path(text: str) -> None:
    """Make sure that a new task may name this payload path; "" is none.

    Raises:
        Refused: it would need cleaning, and cleaned it would be another path; or it is too long.
    """
    _require_short("payload path", text)
    if not is_plain_path(text):
        raise Refused(
            f"payload path {text[:80]!r}: expected letters, digits, space, _ . - : / "
            "and no component that is empty or only dots"
        )


def _require_short(name: str, text: str) -> None:
    if len(text) > LONGEST:
        raise Refused(f"{name} of {len(text):,} characters: expected at most {LONGEST:,}")


_ID = _LETTERS + _DIGITS + "_:-"
_KIND = _LOWER + _DIGITS + "_"


FIELDS = (
    *("TASK_ID", "TASK_TYPE", "TASK_DESCRIPTION", "TASK_CREATED_EPOCH", "TASK_RETRIES"),
    *("TASK_NEXT_ATTEMPT_EPOCH", "TASK_LAST_ERROR", "TASK_PAYLOAD_FILE"),
    *("TASK_DLQ_EPOCH", "TASK_DLQ_REASON"),
)


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
    return ident if is_id(ident) else None


def stamp_of(name: str) -> int | None:
    """The time in an id, read as UTC epoch seconds; None where it begins with none.

    The NFTBan program writes local time there, though with a Z.
    """
    date, clock = name[:8], name[9:15]
    if name[8:9] + name[15:17] != "TZ-" or not (date + clock).isdecimal():
        return None
    day = int(date[6:])
    year, month = divmod(int(date[:4]) * 12 + int(date[4:6]) - 3, 12)  # a year begins in March
    days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day
    return (days - 719_469) * 86400 + int(clock[:2]) * 3600 + int(clock[2:4]) * 60 + int(clock[4:])


def parse(data: bytes, ident: str) -> Record:
    """What the file of task `ident` says.

    Raises:
        Refused: it is not a task file, or another task's; with line and expectation.
    """
    record = parse_canonical(data) or parse_strict(data)
    if record.id != ident:
        raise Refused(f"TASK_ID is {record.id}, expected {ident} as in its file name")
    return record


# Patterns would read a file as fast, but compiling them costs every start more than a scan.
_KEYS = tuple(f"{lead}{key}=" for lead, key in zip(("", *["\n"] * 9), FIELDS, strict=True))
_LIVE_KEYS, _DEAD_KEYS = (*_KEYS[:8], "\n"), (*_KEYS, "\n")


def parse_canonical(data: bytes) -> Record | None:
    """The quick way: None when the file is not of exactly the form that the contract shows."""
    if data.translate(None, _CANONICAL):
        return None
    pieces = data.decode("ascii").split('"')
    keys, values = tuple(pieces[::2]), pieces[1::2]
    if keys != _LIVE_KEYS and keys != _DEAD_KEYS:
        return None
    ident, kind, text, created, retries, due, error, payload, *dead = values
    numbers = created, retries, due, *dead[:1]
    if not (is_id(ident) and is_kind(kind) and all(map(is_number, numbers))):
        return None
    if "\n" in text or "\n" in error or "\n" in payload or (dead and "\n" in dead[1]):
        return None
    return Record(
        ident,
        kind,
        text,
        int(created),
        int(retries),
        int(due),
        error,
        payload,
        int(dead[0]) if dead else None,
        dead[1] if dead else "",
    )


_CANONICAL = _SAFE + b'\n"'


SETTLING = 60.0
"""Seconds for which a file that lacks fields may be one that somebody is still writing."""


def is_being_written(data: bytes, seen: os.stat_result, now: float) -> bool:
    """Whether more may come: the real program writes in place, a field at a time, this one last."""
    return b"\nTASK_PAYLOAD_FILE=" not in data and abs(now - seen.st_mtime) < SETTLING


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
    if not is_id(values["TASK_ID"]):
        raise Refused("TASK_ID is no task id, expected letters, digits, _ : -, at most 160")
    if not is_kind(values["TASK_TYPE"]):
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
    if not is_number(text):
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
    return plain(value) if value.strip(_HARMLESS) else value


def trusted_due(record: Record, seen: os.stat_result, now: float) -> float:
    """When a task is due, unless a clock that jumped said so."""
    return policy.trusted_due(float(record.due), seen.st_ctime, now)


def as_task(
    record: Record,
    state: State,
    seen: os.stat_result,
    lease: Lease | None,
    now: float,
    rev: str = "",
) -> Task:
    """The task that a file in a state's folder is; `seen` is the file's own state, `rev` its
    revision where that is known.
    """
    extra = EMPTY
    if record.dead_since is not None:
        extra = {"dead_since": str(record.dead_since), "dead_reason": record.dead_reason}
        extra.update(record.more)
    elif record.more:
        extra = dict(record.more)
    return Task(
        record.id,
        record.kind,
        state,
        float(record.created),
        due=trusted_due(record, seen, now) if record.due else 0.0,
        attempts=record.retries,
        description=record.description,
        payload=record.payload,
        error=record.error,
        lease=lease,
        rev=rev or revision(seen),
        extra=extra,
    )


def recalled(record: Record, task: Task, state: State) -> Task:
    """A task as it was when its file said this, to stand in a state."""
    extra = dict(record.more)
    if record.dead_since is not None:
        extra |= {"dead_since": str(record.dead_since), "dead_reason": record.dead_reason}
    return replace(
        task,
        kind=record.kind,
        state=state,
        created=float(record.created),
        due=float(record.due),
        attempts=record.retries,
        description=record.description,
        payload=record.payload,
        error=record.error,
        lease=None,
        extra=extra,
    )


def new_record(task: Task) -> Record:
    """How a task that is not stored yet will stand in its file.

    Raises:
        Refused: an id, kind or payload path that the file may not hold.
    """
    if not is_kind(task.kind):
        raise Refused(f"task type {task.kind[:40]!r}: expected a-z 0-9 _, at most 64")
    if not is_id(task.id):
        raise Refused(f"task id {task.id[:40]!r}: expected letters, digits, _ : -")
    _require_short("description", task.description)
    require_plain_path(task.payload)
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


_given = attrgetter("description", "attempts", "due", "error")
"""Of a task what its file may say otherwise after a verb."""


def changed(record: Record, old: Task, new: Task, now: float) -> Record:
    """What the file says after a task went from `old` to `new`: only what the verb changed.

    In the dead-letter queue it carries when and why it came there; on the way out it loses that.
    What is held keeps it. Into the trash and out of it nothing changes, whatever it says.

    Raises:
        Refused: a new description that the file may not hold.
    """
    if State.TRASH in (old.state, new.state) and _given(new) == _given(old):
        return record
    if new.description != old.description:
        _require_short("description", new.description)
    after = record._replace(
        description=record.description
        if new.description == old.description
        else plain(new.description),
        retries=record.retries if new.attempts == old.attempts else new.attempts or 0,
        due=record.due if new.due == old.due else whole(new.due),
        error=record.error if new.error == old.error else plain_error(new.error),
    )
    if new.state is State.HELD:
        pass
    elif new.state is not State.DEAD:
        after = after._replace(dead_since=None, dead_reason="")
    elif after.dead_since is None or old.state is State.ACTIVE:
        # A file moved out of dlq/ by hand still says when it died before; it must not expire by it.
        after = after._replace(due=0, dead_since=int(now), dead_reason=DEAD_REASON)
    if after == record:
        return record  # only its place differs: what comes back from the trash is itself
    return after._replace(
        description=_harmless(after.description),
        error=_harmless(after.error),
        payload=_harmless(after.payload),
        dead_reason=_harmless(after.dead_reason),
    )


def whole(due: float | None) -> int:
    """A due time in whole seconds, never earlier than it was meant."""
    return int(-(-(due or 0.0) // 1))
