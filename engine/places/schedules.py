"""Schedules of a place: rules by which a server adds tasks, each with its next run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from engine.operations.controls import ControlResult
from engine.operations.journal import Operation
from engine.values import NamedTuple

RUN, REMOVE, EDIT = "run", "remove", "edit"
SCHEDULE_VERBS: Mapping[str, str] = {
    RUN: "add one task now, like its runs; its next run stays",
    REMOVE: "remove it and its next run",
    EDIT: "change its rule or its end; its next run is replaced",
}
"""What can be done to a schedule."""

RULE_FIELDS: Mapping[str, str] = {
    "pattern": "a pattern of cron, of five fields or six",
    "every": "a duration such as 10m, instead of a pattern",
    "tz": "a time zone such as Europe/Berlin, or none",
    "limit": "a number of runs, or none",
    "end": "a time to come such as 2027-01-31, or none",
}
"""What an edit can change, and what is expected."""
NONE = "none"
"""The value of an edit that removes zone, limit or end."""


class Schedule(NamedTuple):
    """A schedule as it was read; times are epoch seconds UTC."""

    id: str
    """Names it at the place: QUEUE/KEY."""
    queue: str
    name: str
    """The name of its tasks."""
    rule: str
    """A pattern of cron, or `every 10m`; "?" if it is not known."""
    zone: str
    """The time zone of its pattern; "" for that of the worker's machine, or without a pattern."""
    next: float | None
    last: float | None
    """When its last run was started."""
    left: int | None
    """Runs that are left."""
    has_limit: bool | None
    """True if its runs are limited; None: unknown."""
    end: float | None
    """When the schedule ends; None: never, or not known."""
    made_by: str
    """The kind of schedule, and the version of its queue."""
    unknown: Mapping[str, str]
    """By the name of a field that is not known (next, last, left, rule): why."""
    problem: str
    """Why it has stopped before its end, or what is broken; "" if all is well."""
    rev: str
    """Revision of its rule, its data and options; runs do not change it."""


class ScheduleList(NamedTuple):
    """Schedules of a place, the next ones of each queue first."""

    rows: Sequence[Schedule] = ()
    total: int = 0
    """Number of schedules; more than rows if they were cut."""
    problems: Sequence[str] = ()
    """Queues whose schedules cannot be read, each with the reason."""


ScheduleChanges = Mapping[str, str]
"""New values by the names of `RULE_FIELDS`, as typed."""


def change_options(changes: ScheduleChanges) -> list[str]:
    """The options of the command with the same changes."""
    return [word for name, value in changes.items() for word in (f"--{name}", value)]


class PlaceSchedules(NamedTuple):
    """Functions on the schedules of a place; all of them block.

    Each raises `StoreError`, with one line: `Unavailable` if the server cannot be used, `Gone` if
    others have changed the schedule, `Unsupported` if it is refused."""

    read: Callable[[int], ScheduleList]
    """Returns all schedules, or about so many: those of large queues are cut."""
    plan: Callable[[str, Schedule, ScheduleChanges], Sequence[tuple[str, str]]]
    """Returns names and values that describe a verb's effect on a schedule as it was seen."""
    change: Callable[[str, Schedule, ScheduleChanges, str], ControlResult]
    """Runs a verb on a schedule as it was seen, with a reason."""
    plan_undo: Callable[[Operation], Sequence[tuple[str, str]]]
    """Returns names and values that describe the undo of a change."""
    undo: Callable[[Operation, str], ControlResult]
    """Undoes a change, with a reason."""
    command: tuple[str, ...]
    """Words of the command with the same verbs, without the verb."""
