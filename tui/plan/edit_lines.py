"""Parse the fields of the edit form: new values, errors, and a preview of the stored value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.model import Edge, Task
from engine.text import time_expressions
from engine.text.decode import parse_digits
from engine.text.figure import UNKNOWN
from engine.text.figures import format_bytes
from engine.text.json_text import compact_json, lay_out_json
from engine.text.safe import safe_line, shell_text
from engine.values import NamedTuple
from tui.text.times import format_time_with_age


class EditField(NamedTuple):
    """A task field that can be edited if the store allows it."""

    label: str
    absent: str
    """Message if the store has no such field."""
    text: Callable[[Task], str]
    """The task's present value, as the initial input."""


FIELDS: Mapping[str, EditField] = {
    "description": EditField(
        "description",
        "this queue has no description field",
        lambda task: safe_line(task.description),
    ),
    "destination": EditField(
        "to", "this queue has no recipient field", lambda task: safe_line(task.destination)
    ),
    "due": EditField("due", "this queue has no editable due time", lambda task: ""),
    "priority": EditField(
        "priority", "this queue has no priorities", lambda task: f"{task.priority}"
    ),
    "data": EditField("data", "this queue has no editable data", lambda task: _data_text(task)),
}
"""Fields by the parameter names of `engine.verbs.edit`, in the order of the form."""

MAX_DIFFERENCE_CHARS = 24
"""Characters around the first difference of two texts that are shown."""

STORED_AS_TYPED = "stored as typed"


class EditResult(NamedTuple):
    """Result of parsing the form."""

    values: Mapping[str, Any]
    """New values by the names of `FIELDS`, `due` in epoch seconds UTC; only changed fields."""
    error: str = ""
    previews: Mapping[str, str] = {}


def editable_fields(edge: Edge) -> tuple[str, ...]:
    """Names of the fields that an edge allows to edit."""
    return tuple(name for name in FIELDS if name in edge.fields)


def why_not_stored(edge: Edge, typed: Mapping[str, str]) -> str:
    """Why the queue cannot store a non-empty field; "" if it can."""
    absent = (name for name, text in typed.items() if text.strip() and name not in edge.fields)
    return next((FIELDS[name].absent for name in absent), "")


def parse_fields(task: Task | None, edge: Edge, typed: Mapping[str, str], now: float) -> EditResult:
    """Parse the input for one task, or for several (None); an empty field means "no change". `edge`
    is the store's edge from the state to itself."""
    values: dict[str, Any] = {}
    previews: dict[str, str] = {}
    wrong = why_not_stored(edge, typed)
    for name in editable_fields(edge):
        try:
            value, previews[name] = _PARSERS[name](name, task, typed.get(name, ""), now)
        except ValueError as error:
            value, previews[name] = None, UNKNOWN
            wrong = wrong or str(error)
        if value is not None:
            wrong = wrong or edge.value_problem(name, value, now)
            values[name] = value
    return EditResult(values, wrong, previews)


def _parse_text(name: str, task: Task | None, typed: str, now: float) -> tuple[str | None, str]:
    if not typed:
        return None, "empty: unchanged"
    if task is not None and typed == FIELDS[name].text(task):
        return None, "unchanged"
    return typed, STORED_AS_TYPED


def _parse_description(
    name: str, task: Task | None, typed: str, now: float
) -> tuple[str | None, str]:
    value, preview = _parse_text(name, task, typed, now)
    # All stores with a description keep it as `shell_text` makes it.
    if value is not None and (folded := shell_text(value)) != value:
        preview = f"stored as: {folded}"
    return value, preview


def _parse_due(name: str, task: Task | None, typed: str, now: float) -> tuple[float | None, str]:
    if not typed.strip():
        return None, _unchanged_due(task, now)
    when = float(int(time_expressions.parse_future_time(typed, now)))
    past = ", so now" if when <= now else ""
    changes = task is None or when != task.due
    return when if changes else None, format_time_with_age(when, now) + past


def _parse_priority(name: str, task: Task | None, typed: str, now: float) -> tuple[int | None, str]:
    if not typed.strip():
        return None, "empty: unchanged"
    value = parse_digits(typed.strip())
    if value is None:
        raise ValueError(f"priority {safe_line(typed)!r:.40}, expected a whole number")
    changes = task is None or value != task.priority
    return value if changes else None, STORED_AS_TYPED if changes else "unchanged"


def _data_text(task: Task) -> str:
    """The data that was read for the edit, laid out; "" if it is no JSON."""
    try:
        return lay_out_json(task.data or "")
    except ValueError:
        return ""


def _parse_data(name: str, task: Task | None, typed: str, now: float) -> tuple[str | None, str]:
    if not typed.strip():
        return None, "empty: unchanged"
    if task is None or task.data is None:
        raise ValueError("data can be changed of one task at a time")
    value, old_text = compact_json(typed), _data_text(task)
    if old_text and value in (compact_json(old_text), compact_json(task.data)):
        return None, f"unchanged, {format_bytes(len(task.data.encode(errors='replace')))}"
    return value, describe_difference(compact_json(task.data) if old_text else task.data, value)


def describe_difference(old: str, new: str) -> str:
    """The sizes of two texts, and the first difference: `7 B -> 8 B, at 5: 1} -> 12}`."""
    pairs = enumerate(zip(old, new, strict=False))
    at = next((n for n, (a, b) in pairs if a != b), min(len(old), len(new)))
    sizes = [format_bytes(len(text.encode(errors="replace"))) for text in (old, new)]
    start = max(0, at - MAX_DIFFERENCE_CHARS // 3)
    parts = [safe_line(text[start : start + MAX_DIFFERENCE_CHARS]) for text in (old, new)]
    return f"{' -> '.join(sizes)}, first difference at {at + 1:,}: {' -> '.join(parts)}"


_PARSERS: Mapping[str, Callable[[str, Task | None, str, float], tuple[Any, str]]] = {
    "description": _parse_description,
    "destination": lambda name, task, typed, now: _parse_text(name, task, typed.strip(), now),
    "due": _parse_due,
    "priority": _parse_priority,
    "data": _parse_data,
}
"""Parsers by field: each returns the new value (None: no change) and the preview text."""


def _unchanged_due(task: Task | None, now: float) -> str:
    if task is None or task.due is None:
        return "empty: unchanged"
    is_due = task.due <= now
    return f"empty: unchanged, {'due now' if is_due else format_time_with_age(task.due, now)}"
