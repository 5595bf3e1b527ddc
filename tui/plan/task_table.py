"""The tasks of a plan as a table; the steps of a replay, its stop rules, and recurring errors."""

from __future__ import annotations

from collections.abc import Iterator

from engine import policy
from engine.model import State
from engine.operations.plans import Row
from engine.replay.settings import RemainderPolicy, ReplayPace, phase_sizes
from engine.text.figure import UNKNOWN
from engine.text.safe import safe_error, safe_line
from tui.plan.plan_facts import PlanFacts
from tui.plan.plan_lines import PlanView, expected_outcome
from tui.text.graphs import bar
from tui.text.lines import BLANK_LINE, UNKNOWN_RUN, Line, Run, cut_line, fit_text
from tui.text.styles import STILL_LOOKS
from tui.text.table import REST, Choice, Column, Table, alarm_sign
from tui.text.task_list import MAX_NAME_CELLS, short_id
from tui.text.times import format_minutes

STEP_NAMES = ("canary", "batch", "rest")


def step_names(pace: ReplayPace | None, amount: int) -> list[tuple[str, int]]:
    """The steps of a replay with their sizes, without empty ones; none for one without a pace."""
    if pace is None:
        return []
    sizes = phase_sizes(pace, amount)
    names = (*STEP_NAMES[: len(sizes) - 1][:2], *("batch",) * (len(sizes) - 3), "rest")
    return [(name, size) for name, size in zip(names, sizes, strict=True) if size]


def _steps_of(facts: PlanFacts) -> dict[str, str]:
    """The step of each listed task that is included, by its id."""
    steps = step_names(facts.pace, facts.amount)
    listed = facts.counts.listed if steps and facts.counts else ()
    ids = [row.id for row in listed if not facts.plan.exclusion_reason(row)]
    steps_by_id: dict[str, str] = {}
    for at, (name, size) in enumerate(steps, 1):
        steps_by_id |= dict.fromkeys(ids[:size], f"{at} {name}")
        del ids[:size]
    return steps_by_id


def _columns(facts: PlanFacts, view: PlanView) -> Iterator[Column[Row]]:
    """The columns that have data; the last one has the rest of the width."""
    tasks, rows = facts.tasks, facts.counts.listed if facts.counts else ()
    marks, steps = {row.id: facts.mark_of(row.id) for row in rows}, _steps_of(facts)

    def name(row: Row) -> Run:
        is_out = facts.plan.exclusion_reason(row) or row.id in facts.drift
        return short_id(row.id), "ghost" if is_out else "accent"

    def age(since: float | None) -> Run:
        return format_minutes(view.now - since) if since and since > 0 else UNKNOWN, ""

    def created(row: Row) -> Run:
        return age(tasks[row.id].created if row.id in tasks else None)

    def died(row: Row) -> Run:
        return age(policy.died_at(tasks[row.id]) if row.id in tasks else None)

    def still(row: Row) -> Run:
        one = facts.clusters.get(marks[row.id])
        if one is None:
            return UNKNOWN_RUN if facts.clusters else ("", "")
        return one.now.answer.value, STILL_LOOKS[one.now.answer]

    yield Column("ID", 2, name, most=MAX_NAME_CELLS)
    yield Column("AGE", 6, created, right=True, rank=1)
    if any(task.state is State.DEAD for task in tasks.values()):
        yield Column("DIED", 6, died, right=True, rank=2)
    if any(marks.values()):
        yield Column("CLUSTER", 7, lambda row: (safe_line(marks[row.id]), "accent"), rank=3)
        if facts.clusters:
            yield Column("STILL?", 6, still, rank=4)
    if steps:
        yield Column("STEP", 8, lambda row: (steps.get(row.id, "-"), "muted"), rank=5)
    yield Column("ERROR", 24, lambda row: _what(facts, view, row), grows=REST)


def _what(facts: PlanFacts, view: PlanView, row: Row) -> Run:
    """Why a row is not acted on, or its error or description."""
    words, style = expected_outcome(facts.plan, row, view)
    task = facts.tasks.get(row.id)
    is_mixed = facts.counts is not None and len(facts.counts.transitions) > 1
    if style or task is None:
        return safe_line(words), style
    text = safe_error(task.error or task.description)
    return f"{safe_line(words)}: {text}" if is_mixed else text, "" if task.error else "muted"


def task_table(facts: PlanFacts, view: PlanView, width: int) -> tuple[Line, list[Choice]]:
    """The title line, and a row for each listed task."""
    rows = facts.counts.listed if facts.counts is not None else ()
    table = Table(
        [*_columns(facts, view)],
        margin=lambda row: alarm_sign(bool(row.default_exclusion or row.barred), "warn"),
    )
    head, lines = table.lines(rows, width)
    return head, [Choice(row.id, line) for row, line in zip(rows, lines, strict=True)]


# Beside and below the tasks

BAR_CELLS = 8


def side_lines(facts: PlanFacts, width: int) -> list[Line]:
    """The steps with their sizes, and the stop rules; nothing without a rate."""
    pace = facts.pace
    steps = step_names(pace, facts.amount)
    if pace is None or not steps:
        return []
    lines: list[Line] = [(("STEPS", "muted"),)]
    for at, (name, size) in enumerate(steps, 1):
        rate = "all now" if pace.rate is None else f"{pace.rate:g} per second"
        what = rate if name == "rest" else "waits for results"
        share = bar(size / max(1, facts.amount), BAR_CELLS)
        row: Line = (
            (f"{at} {name:<7}", ""),
            (f"{size:>4,} ", "strong"),
            (fit_text(share, BAR_CELLS), "accent"),
            (f" {what}", "muted"),
        )
        lines.append(cut_line(row, width))
    return [*lines, BLANK_LINE, (("STOPS AT", "muted"),), *_stop_lines(facts, pace, width)]


def _stop_lines(facts: PlanFacts, pace: ReplayPace, width: int) -> list[Line]:
    stops, lines = pace.stops, list[Line]()
    if stops.same is not None:
        marks = ", ".join(one.mark for one in facts.still_failing()[:2])
        lines.append(((f"{stops.same:,} x {marks or 'the same error'}", ""),))
    if stops.share is not None:
        lines.append(((f"{100 * stops.share:g} % of the last {stops.last:,} failed", ""),))
    if stops.pending is not None:
        lines.append(((f"more than {stops.pending:,} tasks pending", ""),))
    fate = "are held" if stops.rest is RemainderPolicy.HOLD else f"stay in {facts.source_name}"
    lines.append(((f"unsent tasks {fate}", "muted"),))
    return [cut_line(line, width) for line in lines]


MAX_STILL_LINES = 4
"""Errors that still happen in the pane below the tasks."""


def still_pane_lines(facts: PlanFacts, width: int) -> list[Line]:
    """The errors of the plan that still happen, with the evidence; nothing if none does."""
    lines: list[Line] = []
    for mark, amount, one in facts.still_failing()[:MAX_STILL_LINES]:
        evidence = one.now.evidence[0] if one.now.evidence else ""
        error = fit_text(safe_error(one.cluster.pattern), max(12, width - 24 - 52))
        row: Line = (
            (f"   {mark:<8}", "accent"),
            (f"{amount:>4,} of {one.cluster.count:<6,}", ""),
            (f"{error}  ", ""),
            (evidence, "muted"),
        )
        lines.append(cut_line(row, width))
    if lines:
        advice = "replay them after the cause is gone, or purge them: they would fail again"
        lines.append(((f"   {advice}", "muted"),))
    return lines
