"""Text of schedules: their rows in the table, details, and JSON."""

from __future__ import annotations

from collections.abc import Sequence

from engine.places.schedules import Schedule
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_line
from tui.text.lines import UNKNOWN_RUN, Line, Run, fact_lines
from tui.text.table import REST, Column, Table, alarm_sign
from tui.text.task_row import time_fields
from tui.text.times import format_minutes, format_time_with_age

NO_SCHEDULES = "no schedules: the queues of this place have no job scheduler or repeatable job"


def _next_run(one: Schedule, now: float) -> Run:
    if one.unknown.get("next", "").startswith(UNKNOWN):
        return UNKNOWN_RUN
    if one.next is None:
        is_wrong = bool(one.problem)
        return ("stopped", "error") if is_wrong else ("ended", "muted")
    wait = one.next - now
    return (format_minutes(wait), "") if wait > 0 else (f"due {format_minutes(-wait)}", "warn")


def _last_run(one: Schedule, now: float) -> Run:
    if one.last is None:
        return UNKNOWN_RUN
    return format_minutes(max(0.0, now - one.last)), ""


def _runs_left(one: Schedule) -> Run:
    if "left" in one.unknown:
        return UNKNOWN_RUN
    return ("-", "muted") if one.left is None else (f"{one.left:,}", "")


def schedule_table(now: float) -> Table[Schedule]:
    """The table of schedules at a time, epoch seconds UTC."""
    return Table(
        (
            Column("SCHEDULE", 20, lambda one: (safe_line(one.id), "strong"), grows=24),
            Column("RULE", 17, lambda one: (f"{one.rule} {one.zone}".rstrip(), ""), grows=16),
            Column("LAST", 6, lambda one: _last_run(one, now), right=True),
            Column("NEXT", 10, lambda one: _next_run(one, now), right=True),
            Column("LEFT", 5, _runs_left, right=True),
            Column("JOB", 8, lambda one: (one.name, ""), grows=8, rank=2),
            Column("MADE BY", 16, lambda one: (one.made_by, "muted"), grows=REST, rank=1),
        ),
        margin=lambda one: alarm_sign(bool(one.problem)),
    )


def detail_lines(one: Schedule, now: float, width: int) -> list[Line]:
    """All that is known of a schedule."""
    interval = one.rule.startswith("every ")
    zone = one.zone or ("-" if interval else "that of the machine of the worker")

    def when(moment: float | None, name: str) -> str:
        if moment is not None:
            return format_time_with_age(moment, now)
        why = one.unknown.get(name, "")
        return why if name == "next" else f"{UNKNOWN} {why}"

    unlimited = "no limit" if one.has_limit is False else UNKNOWN
    left = f"{one.left:,}" if one.left is not None else f"{unlimited} {one.unknown.get('left', '')}"
    rows = [
        ("schedule", safe_line(one.id)),
        ("rule", f"{UNKNOWN} {one.problem}" if "rule" in one.unknown else one.rule),
        ("time zone", zone),
        ("last run", when(one.last, "last")),
        ("next run", when(one.next, "next")),
        ("runs left", left.rstrip()),
        ("ends", "never" if one.end is None else format_time_with_age(one.end, now)),
        ("job", one.name),
        ("made by", one.made_by),
        *([("problem", one.problem)] if one.problem else []),
    ]
    return fact_lines(rows, width, looks={"problem": "error"})


def describe_total(rows: Sequence[Schedule], total: int) -> str:
    """How many there are: `1,000+` if more are not shown."""
    return f"{len(rows):,}{'+' if total > len(rows) else ''}"


def json_row(one: Schedule) -> dict[str, object]:
    """A schedule for JSON output."""
    return {
        "id": one.id,
        "queue": one.queue,
        "job": one.name,
        "rule": None if "rule" in one.unknown else one.rule,
        "zone": one.zone or None,
        **time_fields("last", one.last),
        **time_fields("next", one.next),
        "left": one.left,
        "limited": one.has_limit,
        **time_fields("end", one.end),
        "made_by": one.made_by,
        "problem": one.problem or None,
        "unknown": dict(one.unknown),
    }
