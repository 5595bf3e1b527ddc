"""What is typed to edit a task, understood: what would change, and how it would be stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from engine.model import Edge, Task
from engine.text import time_expressions
from engine.text.safe import plain, shown
from tui.format import present


class EditField(NamedTuple):
    """Something of a task that an operator may change where its store lets it."""

    label: str
    absent: str
    """What is said where the store has no such thing to change."""
    text: Callable[[Task], str]
    """What a task says of it, to be typed over."""


FIELDS: Mapping[str, EditField] = {
    "description": EditField(
        "description",
        "this queue keeps no description of its own",
        lambda task: shown(task.description),
    ),
    "destination": EditField(
        "to",
        "this queue keeps no recipient that could be changed",
        lambda task: shown(task.destination),
    ),
    "due": EditField("due", "this queue keeps no due time that could be changed", lambda task: ""),
}
"""By the name of what `engine.verbs.edit` takes, in the order in which they are asked for."""


AS_TYPED = "as it will be stored"
"""What is said below a text that is stored as it was typed."""


class Wanted(NamedTuple):
    """What was typed, understood."""

    values: Mapping[str, Any]
    """New values by the names of `FIELDS`, `due` in epoch seconds UTC; only what changes."""
    wrong: str = ""
    """What is wrong with it; "" when nothing is."""
    said: Mapping[str, str] = {}
    """What is to be said below each field that was asked about."""


def offered(edge: Edge) -> tuple[str, ...]:
    """The names of the fields that a store lets be edited along an edge."""
    return tuple(name for name in FIELDS if name in edge.fields)


def not_kept(edge: Edge, typed: Mapping[str, str]) -> str:
    """Why what was typed cannot be stored at all here, whatever it says; "" when it can."""
    absent = (name for name, text in typed.items() if text.strip() and name not in edge.fields)
    return next((FIELDS[name].absent for name in absent), "")


def understood(task: Task | None, edge: Edge, typed: Mapping[str, str], now: float) -> Wanted:
    """What is typed for a task, or for several (None), by names of `FIELDS`; what is empty stays.

    `edge` is the store's, from where they stand to where they stand.
    """
    values: dict[str, Any] = {}
    said: dict[str, str] = {}
    wrong = not_kept(edge, typed)
    for name in offered(edge):
        try:
            value, said[name] = _READ[name](name, task, typed.get(name, ""), now)
        except ValueError as error:
            value, said[name] = None, "?"
            wrong = wrong or str(error)
        if value is not None:
            wrong = wrong or edge.wrong(name, value, now)
            values[name] = value
    return Wanted(values, wrong, said)


def _read_text(name: str, task: Task | None, typed: str, now: float) -> tuple[str | None, str]:
    if not typed:
        return None, "empty: it stays as it is" if task else "empty: each keeps its own"
    if task is not None and typed == FIELDS[name].text(task):
        return None, "as it is"
    return typed, AS_TYPED


def _read_description(
    name: str, task: Task | None, typed: str, now: float
) -> tuple[str | None, str]:
    value, about = _read_text(name, task, typed, now)
    # Whoever keeps a description keeps it as the contract's files do.
    if value is not None and (folded := plain(value)) != value:
        about = f"a spool stores: {folded}"
    return value, about


def _read_address(name: str, task: Task | None, typed: str, now: float) -> tuple[str | None, str]:
    return _read_text(name, task, typed.strip(), now)


def _read_due(name: str, task: Task | None, typed: str, now: float) -> tuple[float | None, str]:
    if not typed.strip():
        return None, _as_it_is(task, now)
    when = float(int(time_expressions.ahead(typed, now)))
    past = ", so at once" if when <= now else ""
    changes = task is None or when != task.due
    return when if changes else None, present.moment(when, now) + past


_READ: Mapping[str, Callable[[str, Task | None, str, float], tuple[Any, str]]] = {
    "description": _read_description,
    "destination": _read_address,
    "due": _read_due,
}
"""What a field's text means: its new value, None where it stays, and what is said below it."""


def _as_it_is(task: Task | None, now: float) -> str:
    if task is None:
        return "empty: each keeps its own"
    if task.due is None:
        return "empty: it stays as it is"
    is_due = task.due <= now
    return f"empty: it stays {'at once' if is_due else present.moment(task.due, now)}"
