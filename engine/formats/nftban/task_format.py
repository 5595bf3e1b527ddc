"""Parse and render task files: ten `NAME="value"` lines in a fixed order.

Source: NFTBan Queue and Mail Contract, "Task Queue System"; nftban_task_queue.sh for the order, the
character set and the numbers. A file of exactly that form is matched by one regular expression; any
other goes through the strict parser. Where both accept a file, they agree.
"""

import os
import re
from collections.abc import Callable
from functools import cache
from itertools import count
from operator import attrgetter

from engine import policy
from engine.model import EMPTY, Lease, State, Task
from engine.system.files import Refused, file_revision, parse_assignments
from engine.text.safe import contract_error, contract_text, shell_text
from engine.values import NamedTuple

SUFFIX = ".task"
MAX_TEXT_LENGTH = 4096
"""Maximum characters of a description or path of a new task."""

NOT_A_TASK_NAME = "not named like a task: expected ID.task"

TRASHED_SINCE = "trash_since"
"""Key in the `extra` of a task in the trash: when it was moved there, epoch seconds UTC."""

DEAD_REASON = "max_retries_exceeded"
"""The only reason in the contract."""

_DIGITS = "0123456789"
_LOWER = "abcdefghijklmnopqrstuvwxyz"
_LETTERS = _LOWER + _LOWER.upper()
_HARMLESS = "".join(chr(c) for c in range(0x20, 0x7F) if chr(c) not in '"$\\`')
"""Printable ASCII without the four characters that a shell expands inside double quotes."""


def is_id(text: str) -> bool:
    """True if the text is a valid task id: letters, digits, `_ : -`, at most 160."""
    return 0 < len(text) <= 160 and text[0] not in "_:-" and not text.strip(_ID)


def is_kind(text: str) -> bool:
    """True if the text is a valid task type: a-z, 0-9 and `_`, at most 64."""
    return 0 < len(text) <= 64 and not text.strip(_KIND)


def is_number(text: str) -> bool:
    """True if the text is a whole number for bash too: no sign, no leading zero."""
    return 0 < len(text) <= 12 and not text.strip(_DIGITS) and (text[0] != "0" or text == "0")


def is_plain_path(text: str) -> bool:
    """True if a path needs no cleaning before it is written to a task file."""
    names = text.removeprefix("/").split("/")
    return not text or (contract_text(text) == text and not {"", ".", ".."} & {*names})


def require_plain_path(text: str) -> None:
    """Require that a new task may name this payload path; "" is none.

    Raises:
        Refused: it is too long, or cleaning would change it to another path.
    """
    _require_short("payload path", text)
    if not is_plain_path(text):
        raise Refused(
            f"payload path {text[:80]!r}: expected letters, digits, space, _ . - : / "
            "and no component that is empty or only dots"
        )


def _require_short(name: str, text: str) -> None:
    if excess := describe_excess(name, text):
        raise Refused(excess)


def describe_excess(name: str, text: str) -> str:
    """Why a text is too long for a task file; "" if it is not."""
    if len(text) <= MAX_TEXT_LENGTH:
        return ""
    return f"{name} of {len(text):,} characters: expected at most {MAX_TEXT_LENGTH:,}"


_ID = _LETTERS + _DIGITS + "_:-"
_KIND = _LOWER + _DIGITS + "_"

FIELDS = (
    "TASK_ID",
    "TASK_TYPE",
    "TASK_DESCRIPTION",
    "TASK_CREATED_EPOCH",
    "TASK_RETRIES",
    "TASK_NEXT_ATTEMPT_EPOCH",
    "TASK_LAST_ERROR",
    "TASK_PAYLOAD_FILE",
    "TASK_DLQ_EPOCH",
    "TASK_DLQ_REASON",
)


class Record(NamedTuple):
    """The fields of a task file; times in epoch seconds UTC."""

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
    extra_fields: tuple[tuple[str, str], ...] = ()
    """TASK_* fields that the contract does not name; kept unchanged."""


KEY_FIELD = "TASK_KEY"
"""The field of a key: a task is added once while one with its key waits. Not in the contract."""

MAX_KEY_LENGTH = 200
"""Maximum characters of a key."""


def mark_of_key(key: str) -> str:
    """The part of an id that tasks with one key share: a digest, so that one listing of names finds
    them, also after another program wrote the file without the key."""
    from hashlib import blake2b  # only for tasks with a key

    return f"k{blake2b(key.encode(), digest_size=8).hexdigest()}"


_marked = re.compile("[0-9]{8}T[0-9]{6}Z[0-9]{6}(k[0-9a-f]{16})-").match


def mark_in_name(name: str) -> str:
    """The mark of a key in a file name or an id; "" if there is none."""
    match = name[22:23] == "k" and _marked(name)  # most have none, found in a third of the time
    return match[1] if match else ""


def require_key(key: str) -> None:
    """Require that a text may be the key of a task.

    Raises:
        Refused: it is too long, or a file would not keep it as it is.
    """
    if len(key) > MAX_KEY_LENGTH or shell_text(key) != key:
        expected = f'expected at most {MAX_KEY_LENGTH} printable characters, none of " $ ` \\'
        raise Refused(f"key {key[:40]!r}: {expected}")


def id_in_name(name: str) -> str | None:
    """Return the task id in a file name; None if it is not a task file's name."""
    if not name.endswith(SUFFIX):
        return None
    ident = name[: -len(SUFFIX)]
    return ident if is_id(ident) else None


def time_in_id(name: str) -> int | None:
    """Return the time in an id, read as UTC epoch seconds; None if missing.

    The NFTBan program writes local time there, although with a Z.
    """
    date, clock = name[:8], name[9:15]
    if name[8:9] + name[15:16] != "TZ" or not (date + clock).isdecimal():
        return None
    day = int(date[6:])
    year, month = divmod(int(date[:4]) * 12 + int(date[4:6]) - 3, 12)  # years begin in March
    days = year * 365 + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day
    return (days - 719_469) * 86400 + int(clock[:2]) * 3600 + int(clock[2:4]) * 60 + int(clock[4:])


FEW_FILES = 20
"""Files that a process parses without the regular expression: compiling it takes half a
millisecond, which `process-next` would pay for one task."""

_parsed = count()


def parse_task(data: bytes, ident: str) -> Record:
    """Parse the file of task `ident`.

    Raises:
        Refused: it is not a task file, or another task's; with line and expectation.
    """
    is_one_of_many = next(_parsed) >= FEW_FILES
    record = (parse_canonical(data) if is_one_of_many else None) or parse_strict(data)
    if record.id != ident:
        raise Refused(f"TASK_ID is {record.id}, expected {ident} as in its file name")
    return record


def parse_canonical(data: bytes) -> Record | None:
    """Parse a file of exactly the contract's form; None for any other. Fast."""
    try:
        match = canonical_form()(data.decode())
    except UnicodeDecodeError:
        return None
    if match is None:
        return None
    ident, kind, text, created, retries, due, error, payload, dead, reason = match.groups()
    fields = ident, kind, text, int(created), int(retries), int(due), error, payload
    return Record(*fields) if dead is None else Record(*fields, int(dead), reason)


@cache
def canonical_form() -> Callable[[str], re.Match[str] | None]:
    """Return the full match of a file of exactly the contract's form, with texts in any script; its
    groups are the texts between the quotes, the last two None in a file of eight lines."""
    ident, kind = "([A-Za-z0-9][A-Za-z0-9_:-]{0,159})", "([a-z0-9_]{1,64})"
    text, number = r'([^\x00-\x1f"$\\`\x7f-\x9f]*)', "(0|[1-9][0-9]{0,11})"
    values = ident, kind, text, number, number, number, text, text, number, text
    lines = [f'{key}="{value}"\n' for key, value in zip(FIELDS, values, strict=True)]
    return re.compile(f"{''.join(lines[:8])}(?:{''.join(lines[8:])})?").fullmatch


SETTLING_SECONDS = 5.0
"""Seconds for which more may follow in a file that lacks optional fields only."""


def is_being_written(data: bytes, file_stat: os.stat_result, now: float) -> bool:
    """True if more may follow: the NFTBan program writes in place, field by field, this one
    last."""
    return b"\nTASK_PAYLOAD_FILE=" not in data and abs(now - file_stat.st_mtime) < SETTLING_SECONDS


_REQUIRED = ("TASK_ID", "TASK_TYPE", "TASK_DESCRIPTION", "TASK_CREATED_EPOCH")


def parse_strict(data: bytes) -> Record:
    """Parse every form that all shells read the same way; optional fields get their default.

    Raises:
        Refused: with line or field and what was expected.
    """
    values = parse_assignments(data, known=lambda key: key.startswith("TASK_"))
    for key in _REQUIRED:
        if key not in values:
            raise Refused(f"{key} is missing")
    if not is_id(values["TASK_ID"]):
        raise Refused("TASK_ID is not a task id, expected letters, digits, _ : -, at most 160")
    if not is_kind(values["TASK_TYPE"]):
        raise Refused("TASK_TYPE is not a task type, expected a-z 0-9 _, at most 64")
    dead = _number(values, "TASK_DLQ_EPOCH") if "TASK_DLQ_EPOCH" in values else None
    return Record(
        values["TASK_ID"],
        values["TASK_TYPE"],
        values["TASK_DESCRIPTION"],
        created=_number(values, "TASK_CREATED_EPOCH"),
        retries=_number(values, "TASK_RETRIES"),
        due=_number(values, "TASK_NEXT_ATTEMPT_EPOCH"),
        error=values.get("TASK_LAST_ERROR", ""),
        payload=values.get("TASK_PAYLOAD_FILE", ""),
        dead_since=dead,
        dead_reason=values.get("TASK_DLQ_REASON", ""),
        extra_fields=tuple((key, value) for key, value in values.items() if key not in FIELDS),
    )


def _number(values: dict[str, str], key: str) -> int:
    text = values.get(key, "0")
    if not is_number(text):
        raise Refused(f"{key} is {text[:20]!r}, expected a whole number without leading zeros")
    return int(text)


# One %-format takes half the time of an f-string with so many fields.
_LIVE = "".join(f'{key}="%s"\n' for key in FIELDS[:8])
_DEAD = "".join(f'{key}="%s"\n' for key in FIELDS[8:])


def render_task(record: Record) -> bytes:
    """Return the file's bytes, in the contract's order, without anything that a shell would
    expand."""
    text = _LIVE % record[:8]
    if record.dead_since is not None:
        text += _DEAD % record[8:10]
    for key, value in record.extra_fields:
        text += f'{key}="{_shell_safe(value)}"\n'
    return text.encode()


def _shell_safe(value: str) -> str:
    return shell_text(value) if value.strip(_HARMLESS) else value


def trusted_due(record: Record, file_stat: os.stat_result, now: float) -> float:
    """Return when a task is due; see `policy.limit_due` for times from a wrong clock."""
    return policy.limit_due(float(record.due), file_stat.st_ctime, now)


def task_from_record(
    record: Record,
    state: State,
    file_stat: os.stat_result,
    lease: Lease | None,
    now: float,
    rev: str = "",
) -> Task:
    """Return the task in a file; `file_stat` is the file's stat, `rev` its revision if known."""
    ident, kind, description, created, retries, due, error, payload, dead_since, _, more = record
    extra = EMPTY
    if dead_since is not None:
        extra = {"dead_since": str(dead_since), "dead_reason": record.dead_reason, **dict(more)}
    elif more:
        extra = dict(more)
    return Task(
        ident,
        kind,
        state,
        float(created),
        due=trusted_due(record, file_stat, now) if due else 0.0,
        attempts=retries,
        description=description,
        payload=payload,
        error=error,
        lease=lease,
        rev=rev or file_revision(file_stat),
        extra=extra,
    )


def task_from_image(record: Record, task: Task, state: State) -> Task:
    """Return a task with the values of its former file, in a state."""
    extra = dict(record.extra_fields)
    if record.dead_since is not None:
        extra |= {"dead_since": str(record.dead_since), "dead_reason": record.dead_reason}
    return task._replace(
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
    """Return the file content for a new task.

    Raises:
        Refused: an id, kind or payload path that the file cannot contain.
    """
    if not is_kind(task.kind):
        raise Refused(f"task type {task.kind[:40]!r}: expected a-z 0-9 _, at most 64")
    if not is_id(task.id):
        raise Refused(f"task id {task.id[:40]!r}: expected letters, digits, _ : -")
    _require_short("description", task.description)
    if task.payload:
        require_plain_path(task.payload)
    return Record(
        task.id,
        task.kind,
        shell_text(task.description),
        created=int(task.created),
        retries=task.attempts or 0,
        due=whole_seconds(task.due) if task.due else 0,
        error=contract_error(task.error) if task.error else "",
        payload=task.payload,
        extra_fields=((KEY_FIELD, key),) if (key := task.extra.get(KEY_FIELD, "")) else (),
    )


_given = attrgetter("description", "attempts", "due", "error")
"""The fields that a verb may change."""


def change_record(record: Record, old: Task, new: Task, now: float) -> Record:
    """Return the new content after a task went from `old` to `new`: only what the verb changed.

    In the dead-letter queue it has the time and the reason; outside it loses them, except in HELD.
    A move into or out of the trash changes nothing.

    Raises:
        Refused: a new description that the file cannot contain.
    """
    if State.TRASH in (old.state, new.state) and _given(new) == _given(old):
        return record
    if new.description != old.description:
        _require_short("description", new.description)
    after = record._replace(
        description=record.description
        if new.description == old.description
        else shell_text(new.description),
        retries=record.retries if new.attempts == old.attempts else new.attempts or 0,
        due=record.due if new.due == old.due else whole_seconds(new.due),
        error=record.error if new.error == old.error else contract_error(new.error),
    )
    if new.state is State.HELD:
        pass
    elif new.state is not State.DEAD:
        after = after._replace(dead_since=None, dead_reason="")
    elif after.dead_since is None or old.state is State.ACTIVE:
        # A file moved out of dlq/ by hand still has its former time of death; it must not expire by
        # that.
        after = after._replace(due=0, dead_since=int(now), dead_reason=DEAD_REASON)
    if after == record:
        return record  # only its folder differs: a task restored from the trash has the same bytes
    return after._replace(
        description=_shell_safe(after.description),
        error=_shell_safe(after.error),
        payload=_shell_safe(after.payload),
        dead_reason=_shell_safe(after.dead_reason),
    )


def whole_seconds(due: float | None) -> int:
    """Return a due time in whole seconds, rounded up."""
    return int(-(-(due or 0.0) // 1))
