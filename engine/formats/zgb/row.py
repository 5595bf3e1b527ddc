"""Convert between rows of "mail_queue" and tasks."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from engine.formats.zgb.connection import VALUE_LIMIT_BYTES
from engine.formats.zgb.place import (
    ERROR_LIMIT_CHARS,
    KINDS,
    PARKED_AHEAD_SECONDS,
    PARKED_DUE_SECONDS,
    Cell,
    TimeFormat,
    ZgbDatabase,
    parse_time,
)
from engine.formats.zgb.schema import OWN_COLUMNS, TableShape
from engine.model import ATTEMPT_KEY, EMPTY, Lease, State, Task
from engine.store import MAX_PART_BYTES, Unsupported
from engine.text.safe import safe_line
from engine.values import NamedTuple

STATUSES = ("pending", "sending", "failed")

FAILED_WORD = "failed"
"""The state word of a job that failed and is not parked. Its state is PENDING, or DEAD if only an
operator retries."""

STATES: Mapping[State, str] = {
    State.PENDING: "pending",
    State.ACTIVE: "sending",
    State.HELD: "held",
    State.DEAD: "parked",
    State.TRASH: "trash",
}
"""HELD and TRASH are in the sidecar database; `parked` is a failed job that is due in the far
future."""

NUMBER_LIMIT = 1 << 63
"""Upper bound of the numbers that a SQLite column holds."""

ATTEMPT_LIMIT = 1 << 31
"""Upper bound for a plausible number of attempts: one a second, for a lifetime."""

_match_id = re.compile(r"(0|[1-9]\d{0,18})-([a-z]+)", re.ASCII).fullmatch
_match_whole = re.compile(r"0|[1-9]\d{0,18}", re.ASCII).fullmatch

MAX_IMAGE_BYTES = MAX_PART_BYTES
"""Maximum bytes of a row as text."""


class InvalidRow(ValueError):
    """A row that is not a job; the message names the column and what was expected."""


EMPTY_CELLS: Mapping[str, Cell] = MappingProxyType({})


class JobRow(NamedTuple):
    """A job as stored in its row. Times are epoch seconds UTC."""

    key: int
    number: int
    kind: str
    status: str
    attempts: int
    """Counted when a job is claimed, so the running attempt is included."""
    next_at: float
    locked: float | None
    error: str
    created: float
    updated: float | None
    cells: tuple[Cell, ...]
    """The columns of the job as stored."""
    foreign_cells: Mapping[str, Cell] = EMPTY_CELLS
    """Columns of other programs, if the row came from an image."""

    @property
    def id(self) -> str:
        """The task's id: a number has one job of each kind."""
        return f"{self.number}-{self.kind}"

    @property
    def rev(self) -> str:
        """A string that changes with the row; while it is being sent, only with the claim.

        Another program may touch a foreign column at any time; that must not lose the record that a
        mail was sent."""
        if self.status == "sending":
            identifying: tuple[Cell, ...] = (*self[:5], self.locked)
        else:
            identifying = (self.key, *self.cells)
        return hash_values(identifying)


def hash_values(identifying: object) -> str:
    """Return a short hash of exactly these values."""
    data = repr(identifying).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def parse_row(values: Sequence[Cell], shape: TableShape) -> JobRow:
    """Parse a row as selected: its key, then every column. Raises InvalidRow: a column has an
    invalid value."""
    key, *cells = values
    if not cells:
        raise InvalidRow(f"a value has more than {VALUE_LIMIT_BYTES:,} bytes, the limit")
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
        _parse_count("registration_number", stored, NUMBER_LIMIT),
        str(kind),
        status=str(status),
        attempts=_parse_count("attempts", stored, ATTEMPT_LIMIT),
        next_at=_parse_time("next_attempt_at", stored, shape),
        locked=None if locked is None else _parse_time("locked_until", stored, shape),
        error=str(stored["last_error"] or ""),
        created=_parse_time("created_at", stored, shape)
        if stored.get("created_at") is not None
        else 0.0,
        updated=_parse_time("updated_at", stored, shape)
        if stored.get("updated_at") is not None
        else None,
        cells=tuple(cells),
    )


def _parse_count(name: str, stored: Mapping[str, Cell], limit: int) -> int:
    value = stored[name]
    if isinstance(value, str) and _match_whole(value):
        value = int(value)  # a column that was declared as text
    if not isinstance(value, int) or value < 0:
        raise InvalidRow(f"{name} is {value!r:.40}, expected a whole number of at least 0")
    if value >= limit:
        raise InvalidRow(f"{name} is {value!r:.40}, expected less than {limit:,}")
    return value


def _parse_time(name: str, stored: Mapping[str, Cell], shape: TableShape) -> float:
    value, form = stored[name], shape.forms[name]
    try:
        moment = parse_time(value, form.zone)
    except (ValueError, OverflowError) as error:
        raise InvalidRow(f"{name}: {error}") from error
    # SQLite sorts numbers before text: in the wrong form a job would be due always, or never. 0,
    # the usual default, is in the past in either form.
    if value != 0 and isinstance(value, str) is not form.is_text:
        expected = "text" if form.is_text else "a number"
        raise InvalidRow(f"{name} is {value!r:.40}, expected {expected} like the other rows")
    return moment


def parse_id(ident: str) -> tuple[int, str] | None:
    """Return number and kind of a task's id; None if it is not a valid id."""
    match = _match_id(ident)
    if match is None or match[2] not in KINDS or int(match[1]) >= NUMBER_LIMIT:
        return None
    return int(match[1]), match[2]


def describe_job(number: int, kind: str) -> str:
    """Describe a job: the format has no description."""
    return f"{kind} mail of registration {number}"


def state_of(row: JobRow, now: float, place: ZgbDatabase) -> State:
    """Return the state of a job in "mail_queue"."""
    if row.status == "sending":
        return State.ACTIVE
    if row.status == "failed" and (is_parked_time(row.next_at, now) or not place.auto_retry):
        return State.DEAD
    return State.PENDING


def is_parked_time(moment: float, now: float) -> bool:
    """True if a job that is due then counts as parked."""
    return moment > now + PARKED_AHEAD_SECONDS


def task_of(row: JobRow, now: float, place: ZgbDatabase) -> Task:
    """Build the task of a row in "mail_queue"."""
    state = state_of(row, now, place)
    far = is_parked_time(row.next_at, now)
    extra: Mapping[str, str] = EMPTY
    if state is State.DEAD:
        extra = {"dead_reason": "parked" if far else "failed"}
        if row.updated is not None:
            extra["dead_since"] = str(int(row.updated))
    lease = None
    if state is State.ACTIVE:
        until = row.locked or 0.0
        lease = Lease("", max(0.0, until - place.lease), until, row.rev)
        extra = {ATTEMPT_KEY: str(row.attempts)}
    return Task(
        id=row.id,
        kind=row.kind,
        state=state,
        created=row.created,
        word=FAILED_WORD if row.status == "failed" and not far else "",
        due=0.0 if state is State.DEAD else row.next_at,
        # The engine counts an attempt when it has ended.
        attempts=max(0, row.attempts - 1) if state is State.ACTIVE else row.attempts,
        description=describe_job(row.number, row.kind),
        error=safe_line(row.error),
        lease=lease,
        rev=row.rev,
        extra=extra,
    )


def sidecar_task(
    row: JobRow, state: State, since: float, rev: str, now: float, place: ZgbDatabase
) -> Task:
    """Build the task of a row in the sidecar database; `since`: when it came there."""
    task = task_of(row, now, place)
    extra = {"trash_since": str(int(since))} if state is State.TRASH else EMPTY
    return task._replace(state=state, rev=rev, extra=extra)


def new_values(task: Task, shape: TableShape, now: float) -> dict[str, Cell]:
    """Return the columns of a new job. Raises Unsupported: the task has a value that a row cannot
    hold."""
    its = parse_id(task.id)
    if its is None or its[1] != task.kind:
        raise Unsupported(
            f"{task.id!r:.80} of kind {task.kind!r:.40} is not a job here: expected NUMBER-KIND "
            f"with kind {' or '.join(KINDS)}"
        )
    unsupported = {
        "queue": task.queue,
        "group": task.group,
        "destination": task.destination,
        "payload": task.payload,
        "priority": task.priority,
        "description": task.description.removeprefix(describe_job(*its)),
    }
    if set_names := [name for name, value in unsupported.items() if value]:
        raise Unsupported(f"a job here has no {', '.join(set_names)}")
    values: dict[str, Cell] = {
        "registration_number": its[0],
        "mail_type": task.kind,
        "status": "pending",
        "attempts": _attempts(task),
        "next_attempt_at": shape.forms["next_attempt_at"].format(_due(task), now),
        "last_error": task.error[:ERROR_LIMIT_CHARS] or None,
    }
    return {**values, **_time_values(shape, created_at=task.created, updated_at=now)}


def changed_row(
    row: JobRow, old: Task, new: Task, now: float, shape: TableShape, place: ZgbDatabase
) -> JobRow:
    """Return the row after a change, for either database; the key and foreign columns stay. Raises
    Unsupported: the task has a value that a row cannot hold."""
    values: dict[str, Cell] = {"attempts": _attempts(new)}
    if new.error != old.error:
        values["last_error"] = new.error[:ERROR_LIMIT_CHARS] or None
    status, due = _new_status(row, old, new, now, place)
    values["status"] = status
    if due is not None:
        values["next_attempt_at"] = shape.forms["next_attempt_at"].format(due, now)
    if old.state is State.ACTIVE:
        values["locked_until"] = None
    if State.TRASH not in (old.state, new.state):
        # A job that is restored from the trash keeps its values.
        values |= _time_values(shape, updated_at=now)
    return with_values(row, values, shape)


def _new_status(
    row: JobRow, old: Task, new: Task, now: float, place: ZgbDatabase
) -> tuple[str, float | None]:
    """Return the new status and due time; None: unchanged."""
    due = None if new.due == old.due else _due(new)
    if new.state is State.TRASH:
        return row.status, due
    if new.state is State.DEAD:
        dead = state_of(row, now, place) is State.DEAD
        return (row.status, None) if dead else ("failed", PARKED_DUE_SECONDS)
    if old.state is State.ACTIVE:
        # A job that is given back untried has not failed.
        failed = (new.attempts or 0) > (old.attempts or 0)
        ahead = is_parked_time(row.next_at if due is None else due, now)
        return "failed" if failed and not ahead else "pending", due
    parked = state_of(row, now, place) is State.DEAD
    if parked and (new.state is State.PENDING or due is not None):
        return "pending", _due(new)
    return "pending" if due is not None and is_parked_time(due, now) else row.status, due


def restored_row(
    row: JobRow, state: State, now: float, shape: TableShape, place: ZgbDatabase
) -> JobRow:
    """Return a row from a saved image, adapted to a state and without its lease."""
    values: dict[str, Cell] = {}
    if row.status == "sending":
        values |= {"status": "pending", "locked_until": None}
        row = with_values(row, values, shape)
    current_state = state_of(row, now, place)
    if state is State.DEAD and current_state is not State.DEAD:
        values |= {
            "status": "failed",
            "next_attempt_at": shape.forms["next_attempt_at"].format(PARKED_DUE_SECONDS),
        }
    elif state is State.PENDING and current_state is State.DEAD:
        values |= {"status": "pending", "next_attempt_at": shape.forms["next_attempt_at"].format(0)}
    return with_values(row, values, shape)


def with_values(row: JobRow, values: Mapping[str, Cell], shape: TableShape) -> JobRow:
    """Return a row with some columns changed."""
    cells = {**dict(zip(shape.names, row.cells, strict=True)), **values}
    changed = parse_row((row.key, *(cells[name] for name in shape.names)), shape)
    return changed._replace(foreign_cells=row.foreign_cells)


def _attempts(task: Task) -> int:
    if not isinstance(task.attempts, int) or not 0 <= task.attempts < ATTEMPT_LIMIT:
        raise Unsupported(f"attempts is {task.attempts!r}, expected a whole number of at least 0")
    return task.attempts


def _due(task: Task) -> float:
    if task.due is None or not 0 <= task.due <= PARKED_DUE_SECONDS:
        raise Unsupported(f"due is {task.due!r}, expected epoch seconds up to the year 9999")
    return task.due


def _time_values(shape: TableShape, **moments: float) -> dict[str, Cell]:
    forms: Mapping[str, TimeFormat] = shape.forms
    return {name: forms[name].format(int(at)) for name, at in moments.items() if name in forms}


# ---- as text


def complete_image(row: JobRow, shape: TableShape, foreign_cells: Mapping[str, Cell]) -> bytes:
    """Return a row as `image_of`. Raises Unsupported: it is too large."""
    image = image_of(row, shape, foreign_cells)
    if len(image) > MAX_IMAGE_BYTES:
        what = f"the row of {row.id} has {len(image):,} bytes as text"
        raise Unsupported(f"{what}, at most {MAX_IMAGE_BYTES:,} can be kept")
    return image


def image_of(row: JobRow, shape: TableShape, foreign_cells: Mapping[str, Cell]) -> bytes:
    """Return a row as JSON: its columns by name, and these of other programs."""
    cells = {**dict(zip(shape.names, row.cells, strict=True)), **foreign_cells}
    encoded = {
        name: {"hex": cell.hex()} if isinstance(cell, bytes) else cell
        for name, cell in cells.items()
    }
    return json.dumps({"id": row.id, "key": row.key, "row": encoded}, indent=1).encode()


def parse_image(image: bytes, shape: TableShape) -> JobRow:
    """Parse the result of `build_image`; columns added since are empty, removed ones are dropped.
    Raises Unsupported: these bytes are not the image of a row."""
    try:
        document = json.loads(image)
        cells = {str(name): _decode_cell(value) for name, value in document["row"].items()}
        row = parse_row((document["key"], *(cells.get(name) for name in shape.names)), shape)
        return row._replace(foreign_cells={k: v for k, v in cells.items() if k not in OWN_COLUMNS})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Unsupported(f"not the image of a job: {error}") from error


def _decode_cell(value: object) -> Cell:
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise ValueError("a number of more than 64 bits")  # SQLite cannot hold it
    if value is None or isinstance(value, int | float | str):
        return value
    raise ValueError(f"no column holds {value!r:.40}")
