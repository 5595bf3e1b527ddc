"""A task as a flat row for other programs: what `--json`, copies and exports write."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence

from engine.model import Task
from engine.text.safe import shown

FIELDS = (
    *("id", "state", "kind", "queue", "created", "due", "attempts", "priority", "description"),
    *("destination", "error", "payload", "owner", "since", "rev"),
)
"""The columns of a row, besides what else its store shows."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet would run."""


def row(task: Task, word: str) -> dict[str, object]:
    """A task by the names of its fields; times in epoch seconds UTC, `state` the store's word."""
    lease = task.lease
    return {
        "id": task.id,
        "state": word,
        "kind": task.kind,
        "queue": task.queue,
        "created": task.created or None,
        "due": task.due,
        "attempts": task.attempts,
        "priority": task.priority,
        "description": task.description,
        "destination": task.destination,
        "error": task.error,
        "payload": task.payload,
        "owner": lease.owner if lease else None,
        "since": lease.since if lease else None,
        "rev": task.rev,
        **task.extra,
    }


def json_line(values: Mapping[str, object]) -> str:
    """One line of JSON; every control character in it is escaped."""
    return json.dumps(values) + "\n"


def csv_lines(rows: Iterable[Mapping[str, object]], columns: Sequence[str]) -> str:
    """Lines of CSV (RFC 4180). A cell that a spreadsheet would run as a formula begins with `'`."""
    text = io.StringIO()
    table = csv.writer(text)
    for values in rows:
        table.writerow([_cell(values.get(name)) for name in columns])
    return text.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    text = shown(str(value))
    return f"'{text}" if isinstance(value, str) and text.startswith(_FORMULA) else text
