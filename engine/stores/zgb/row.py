"""Rows of the queue and the tasks that they are: read one way, written the other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from engine.model import ATTEMPT, EMPTY, Lease, State, Task
from engine.store import Unsupported
from engine.stores.zgb.place import ERROR_LIMIT, FAR, KINDS, PARKED, ZgbDatabase
from engine.stores.zgb.schema import TableShape
from engine.stores.zgb.times import Cell, TimeFormat, read
from engine.text.safe import shown

STATUSES = ("pending", "sending", "failed")

FAILED = "failed"
"""The word for a job that failed and was not parked: its state is that of pending jobs, or that of
parked ones where only an operator retries."""

STATES: Mapping[State, str] = {
    State.PENDING: "pending",
    State.ACTIVE: "sending",
    State.HELD: "held",
    State.DEAD: "parked",
    State.TRASH: "trash",
}
"""Of these, the last two words stand in our own database, and `parked` is a failed job that is due
in the far future."""

NUMBERS = 1 << 63
"""Above all numbers that a column of SQLite holds."""

ATTEMPTS = 1 << 31
"""Above all attempts that could have been made: one a second, for a lifetime."""

_id = re.compile(r"(0|[1-9]\d{0,18})-([a-z]+)", re.ASCII).fullmatch
_whole = re.compile(r"0|[1-9]\d{0,18}", re.ASCII).fullmatch

ERROR_READ = 10_000
"""Characters of an error that a task has; the rest stays in its row."""


class InvalidRow(ValueError):
    """A row that is no job; the words say which column, and what was expected."""


class JobRow(NamedTuple):
    """A job as its row tells it. Times are epoch seconds UTC."""

    key: int
    number: int
    kind: str
    status: str
    attempts: int
    """Counted when a job is claimed, so with the one that goes on."""
    next_at: float
    locked: float | None
    error: str
    created: float
    updated: float | None
    cells: tuple[Cell, ...]
    """Every column, as it stands there."""

    @property
    def id(self) -> str:
        """What the task is called: a number has one job of each kind."""
        return f"{self.number}-{self.kind}"

    @property
    def rev(self) -> str:
        """Changes with the row; while it is being sent, only with the claim.

        Whoever touches a foreign column meanwhile must not make us forget that a mail was sent.
        """
        if self.status == "sending":
            seen: tuple[Cell, ...] = (*self[:5], self.locked)
        else:
            seen = (self.key, *self.cells)
        return digest(seen)


def digest(seen: object) -> str:
    """A short name for exactly these values."""
    data = repr(seen).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def parse(values: Sequence[Cell], shape: TableShape) -> JobRow:
    """A row as it was selected: its key, then every column.

    Raises:
        Odd: a value is none that it could have.
    """
    key, *cells = values
    stored = dict(zip(shape.names, cells, strict=True))
    if not isinstance(key, int):
        raise InvalidRow(f"its key is {key!r:.40}, expected a number")
    locked = stored["locked_until"]
    status, kind = stored["status"], stored["mail_type"]
    if status not in STATUSES:
        raise InvalidRow(f"status is {status!r:.40}, expected one of {', '.join(STATUSES)}")
    if kind not in KINDS:
        raise InvalidRow(f"mail_type is {kind!r:.40}, expected {' or '.join(KINDS)}")
    return JobRow(
        key,
        _count("registration_number", stored, NUMBERS),
        str(kind),
        str(status),
        _count("attempts", stored, ATTEMPTS),
        _time("next_attempt_at", stored, shape),
        None if locked is None else _time("locked_until", stored, shape),
        str(stored["last_error"] or ""),
        _time("created_at", stored, shape) if stored.get("created_at") is not None else 0.0,
        _time("updated_at", stored, shape) if stored.get("updated_at") is not None else None,
        tuple(cells),
    )


def _count(name: str, stored: Mapping[str, Cell], limit: int) -> int:
    value = stored[name]
    if isinstance(value, str) and _whole(value):
        value = int(value)  # a column that was declared as text
    if not isinstance(value, int) or value < 0:
        raise InvalidRow(f"{name} is {value!r:.40}, expected a whole number from 0 on")
    if value >= limit:
        raise InvalidRow(f"{name} is {value!r:.40}, expected less than {limit:,}")
    return value


def _time(name: str, stored: Mapping[str, Cell], shape: TableShape) -> float:
    value, form = stored[name], shape.forms[name]
    try:
        moment = read(value, form.zone)
    except (ValueError, OverflowError) as error:
        raise InvalidRow(f"{name}: {error}") from error
    # Numbers sort before all text: in the wrong form it would be due always, or never. That of no
    # time at all, which a column has by its default, is over in either.
    if value != 0 and isinstance(value, str) is not form.text:
        expected = "text" if form.text else "a number"
        raise InvalidRow(f"{name} is {value!r:.40}, expected {expected} like the other rows")
    return moment


def parsed_id(ident: str) -> tuple[int, str] | None:
    """Number and kind of a task's id; None when it is none."""
    found = _id(ident)
    if found is None or found[2] not in KINDS or int(found[1]) >= NUMBERS:
        return None
    return int(found[1]), found[2]


def describe(number: int, kind: str) -> str:
    """What a job is, in words: the format has none of its own."""
    return f"{kind} mail of registration {number}"


def state_of(row: JobRow, now: float, place: ZgbDatabase) -> State:
    """Where a job stands among theirs."""
    if row.status == "sending":
        return State.ACTIVE
    if row.status == "failed" and (is_far(row.next_at, now) or not place.auto_retry):
        return State.DEAD
    return State.PENDING


def is_far(moment: float, now: float) -> bool:
    """Whether a job that is due then was parked."""
    return moment > now + FAR


def task_of(row: JobRow, now: float, place: ZgbDatabase) -> Task:
    """The task that a row of theirs is."""
    state = state_of(row, now, place)
    far = is_far(row.next_at, now)
    extra: Mapping[str, str] = EMPTY
    if state is State.DEAD:
        extra = {"dead_reason": "parked" if far else "failed"}
        if row.updated is not None:
            extra["dead_since"] = str(int(row.updated))
    lease = None
    if state is State.ACTIVE:
        until = row.locked or 0.0
        lease = Lease("", max(0.0, until - place.lease), until, row.rev)
        extra = {ATTEMPT: str(row.attempts)}
    return Task(
        id=row.id,
        kind=row.kind,
        state=state,
        created=row.created,
        word=FAILED if row.status == "failed" and not far else "",
        due=0.0 if state is State.DEAD else row.next_at,
        # The engine counts an attempt when it is over.
        attempts=max(0, row.attempts - 1) if state is State.ACTIVE else row.attempts,
        description=describe(row.number, row.kind),
        error=shown(row.error[:ERROR_READ]),
        lease=lease,
        rev=row.rev,
        extra=extra,
    )


def task_aside(
    row: JobRow, state: State, since: float, rev: str, now: float, place: ZgbDatabase
) -> Task:
    """The task that a row is which stands in our own database since then."""
    there = task_of(row, now, place)
    extra = {"trash_since": str(int(since))} if state is State.TRASH else EMPTY
    return replace(there, state=state, rev=rev, extra=extra)


def new_values(task: Task, shape: TableShape, now: float) -> dict[str, Cell]:
    """The columns of a new job.

    Raises:
        Unsupported: there is no room for what it says.
    """
    its = parsed_id(task.id)
    if its is None or its[1] != task.kind:
        raise Unsupported(
            f"{task.id!r:.80} of kind {task.kind!r:.40} is no job here: expected NUMBER-KIND, "
            f"and the kind to be {' or '.join(KINDS)}"
        )
    says = {
        "queue": task.queue,
        "group": task.group,
        "destination": task.destination,
        "payload": task.payload,
        "priority": task.priority,
        "description": task.description.removeprefix(describe(*its)),
    }
    if kept := [name for name, value in says.items() if value]:
        raise Unsupported(f"a job here has no {', '.join(kept)}")
    values: dict[str, Cell] = {
        "registration_number": its[0],
        "mail_type": task.kind,
        "status": "pending",
        "attempts": _attempts(task),
        "next_attempt_at": shape.forms["next_attempt_at"].write(_due(task), now),
        "last_error": task.error[:ERROR_LIMIT] or None,
    }
    return {**values, **_stamps(shape, created_at=task.created, updated_at=now)}


def changes(
    row: JobRow, old: Task, new: Task, now: float, shape: TableShape, place: ZgbDatabase
) -> JobRow:
    """The row of a task as it is to stand, here or in our own database; key and others as they are.

    Raises:
        Unsupported: there is no room for what it says.
    """
    values: dict[str, Cell] = {"attempts": _attempts(new)}
    if new.error != old.error:
        values["last_error"] = new.error[:ERROR_LIMIT] or None
    status, due = _standing(row, old, new, now, place)
    values["status"] = status
    if due is not None:
        values["next_attempt_at"] = shape.forms["next_attempt_at"].write(due, now)
    if old.state is State.ACTIVE:
        values["locked_until"] = None
    if State.TRASH not in (old.state, new.state):
        # What comes back from the trash shall be as it was.
        values |= _stamps(shape, updated_at=now)
    return with_values(row, values, shape)


def _standing(
    row: JobRow, old: Task, new: Task, now: float, place: ZgbDatabase
) -> tuple[str, float | None]:
    """Status, and when it is due; None: as it is."""
    due = None if new.due == old.due else _due(new)
    if new.state is State.TRASH:
        return row.status, due
    if new.state is State.DEAD:
        dead = state_of(row, now, place) is State.DEAD
        return (row.status, None) if dead else ("failed", PARKED)
    if old.state is State.ACTIVE:
        # Who gives it back untouched has not failed at it.
        failed = (new.attempts or 0) > (old.attempts or 0)
        ahead = is_far(row.next_at if due is None else due, now)
        return "failed" if failed and not ahead else "pending", due
    parked = state_of(row, now, place) is State.DEAD
    if parked and (new.state is State.PENDING or due is not None):
        return "pending", _due(new)
    return "pending" if due is not None and is_far(due, now) else row.status, due


def stood(row: JobRow, state: State, now: float, shape: TableShape, place: ZgbDatabase) -> JobRow:
    """A row as it once was, to stand in a state: nobody works on it any more."""
    values: dict[str, Cell] = {}
    if row.status == "sending":
        values |= {"status": "pending", "locked_until": None}
        row = with_values(row, values, shape)
    here = state_of(row, now, place)
    if state is State.DEAD and here is not State.DEAD:
        values |= {
            "status": "failed",
            "next_attempt_at": shape.forms["next_attempt_at"].write(PARKED),
        }
    elif state is State.PENDING and here is State.DEAD:
        values |= {"status": "pending", "next_attempt_at": shape.forms["next_attempt_at"].write(0)}
    return with_values(row, values, shape)


def with_values(row: JobRow, values: Mapping[str, Cell], shape: TableShape) -> JobRow:
    """A row with some of its columns changed."""
    cells = {**dict(zip(shape.names, row.cells, strict=True)), **values}
    return parse((row.key, *(cells[name] for name in shape.names)), shape)


def _attempts(task: Task) -> int:
    if not isinstance(task.attempts, int) or not 0 <= task.attempts < ATTEMPTS:
        raise Unsupported(f"attempts is {task.attempts!r}, expected a whole number from 0 on")
    return task.attempts


def _due(task: Task) -> float:
    if task.due is None or not 0 <= task.due <= PARKED:
        raise Unsupported(f"due is {task.due!r}, expected epoch seconds up to the year 9999")
    return task.due


def _stamps(shape: TableShape, **moments: float) -> dict[str, Cell]:
    forms: Mapping[str, TimeFormat] = shape.forms
    return {name: forms[name].write(int(at)) for name, at in moments.items() if name in forms}


# ---- as text


def image_of(row: JobRow, shape: TableShape) -> bytes:
    """A row in full, as it is shown and kept: every column by its name, foreign ones too."""
    cells = dict(zip(shape.names, map(_plain, row.cells), strict=True))
    return json.dumps({"id": row.id, "key": row.key, "row": cells}, indent=1).encode()


def from_image(image: bytes, shape: TableShape) -> JobRow:
    """The row that `image_of` told of; columns that came since are empty, others are left out.

    Raises:
        Unsupported: these bytes are of no row.
    """
    try:
        said = json.loads(image)
        cells = {str(name): _cell(value) for name, value in said["row"].items()}
        return parse((said["key"], *(cells.get(name) for name in shape.names)), shape)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unsupported(f"these bytes are of no job: {error}") from error


def _plain(cell: Cell) -> object:
    return {"hex": cell.hex()} if isinstance(cell, bytes) else cell


def _cell(value: object) -> Cell:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number of more than 64 bits")  # SQLite cannot hold it
    if value is None or isinstance(value, int | float | str):
        return value
    raise ValueError(f"no column holds {value!r:.40}")
