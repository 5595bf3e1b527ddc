"""A task as a flat row for other programs: used by `--json`, copies and exports."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence

from engine.model import Task
from engine.text.safe import safe_line
from engine.text.times import format_time

ROW_FIELDS = (
    "id",
    "state",
    "kind",
    "queue",
    "created",
    "created_at",
    "due",
    "due_at",
    "attempts",
    "priority",
    "description",
    "destination",
    "sender",
    "recipients",
    "account",
    "bytes",
    "error",
    "payload",
    "owner",
    "since",
    "since_at",
    "rev",
    "extra",
)
"""Columns of an exported row. Other JSON output also has each value of `extra` as a key."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A cell that begins so would be run as a formula by a spreadsheet."""


def task_row(task: Task, word: str) -> dict[str, object]:
    """A task by field name; times are in epoch seconds UTC, and in RFC 3339 as `..._at`. `state` is
    the store's word, `since` the time at which it got there: of a task in work, dead, held or in
    the trash, as far as the store records it. No store records it for a pending one."""
    lease = task.lease
    entered = [
        float(text)
        for name, text in task.extra.items()
        if name.endswith("_since") and text.replace(".", "", 1).isdecimal()
    ]
    since = lease.since or None if lease else next(iter(entered), None)
    return {
        "id": task.id,
        "state": word,
        "kind": task.kind,
        "queue": task.queue,
        **time_fields("created", task.created or None),
        **time_fields("due", task.due),
        **({} if task.due else {"due_at": None}),  # 0: due since ever, at no time
        "attempts": task.attempts,
        "priority": task.priority,
        "description": task.description,
        "destination": task.destination,
        "sender": task.sender,
        "recipients": list(task.recipients),
        "account": task.account,
        "bytes": task.bytes,
        "error": task.error,
        "payload": task.payload,
        "owner": lease.owner if lease else None,
        **time_fields("since", since),
        "rev": task.rev,
        "extra": dict(task.extra),
        **task.extra,
    }


def time_fields(name: str, when: float | None) -> dict[str, object]:
    """A time for JSON output: epoch seconds UTC as `name`, and RFC 3339 as `name`_at."""
    text = "" if when is None else format_time(when).replace(" ", "T")
    at = None if not text or text.startswith("epoch") else text
    return {name: None if when is None else round(when, 3), f"{name}_at": at}


def with_times(values: Mapping[str, object], *names: str) -> dict[str, object]:
    """Values for JSON output, in which the keys of these names are times: as `time_fields`."""
    dated: dict[str, object] = {}
    for name, value in values.items():
        if name in names and (value is None or isinstance(value, int | float)):
            dated |= time_fields(name, value)
        else:
            dated[name] = value
    return dated


def json_line(values: Mapping[str, object]) -> str:
    """One line of JSON; every control character in it is escaped."""
    return json.dumps(values) + "\n"


def added_line(task: Task) -> str:
    """The row of a new task as JSON, without the line end."""
    return json.dumps(task_row(task, task.word or "pending"))


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Lines of CSV (RFC 4180). A cell that a spreadsheet would run as a formula begins with `'`."""
    text = io.StringIO()
    import csv  # loaded on demand: the overview needs only the times

    table = csv.writer(text)
    for values in rows:
        table.writerow([_cell(values.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, Mapping | list | tuple):
        value = json.dumps(value) if value else ""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = safe_line(str(value))
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA_STARTS) else text
