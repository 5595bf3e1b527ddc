"""What is typed to edit a task, understood: what would change, and how it would be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from engine import moments
from engine.model import Task
from engine.policy import FURTHEST
from engine.text import plain, shown
from tui import present


class Wanted(NamedTuple):
    """What was typed, understood."""

    values: Mapping[str, Any]
    """The new `description` and `due` (epoch seconds UTC); only those that change."""
    wrong: str = ""
    """What is wrong with it; "" when nothing is."""
    description: str = ""
    """What is to be said below that field."""
    due: str = ""
    """The same of when it is due."""


def understood(task: Task | None, description: str, due: str, now: float) -> Wanted:
    """What is typed into the two fields for a task, or for several (None); empty ones leave it."""
    values: dict[str, Any] = {}
    about = "empty: it stays as it is" if task else "empty: each keeps its own"
    if description and (task is None or description != shown(task.description)):
        values["description"] = description
        about = "as it will be stored"
        if (folded := plain(description)) != description:
            about = f"a spool stores: {folded}"
    elif description:
        about = "as it is"
    if not due.strip():
        return Wanted(values, "", about, _as_it_is(task, now))
    try:
        when = float(int(moments.ahead(due, now)))
    except ValueError as error:
        return Wanted(values, str(error), about, "?")
    if when - now > FURTHEST:
        days = f"at most {FURTHEST / 86400:g} days from now: no task waits longer"
        return Wanted(values, f"due {days}", about, present.moment(when, now))
    if task is None or when != task.due:
        values["due"] = when
    past = ", so at once" if when <= now else ""
    return Wanted(values, "", about, present.moment(when, now) + past)


def _as_it_is(task: Task | None, now: float) -> str:
    if task is None:
        return "empty: each keeps its own"
    if task.due is None:
        return "empty: it stays as it is"
    is_due = task.due <= now
    return f"empty: it stays {'at once' if is_due else present.moment(task.due, now)}"
