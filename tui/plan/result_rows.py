"""The tasks of an operation in a table: result, move, where each task is now, and the reason."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

from engine.live.inspector import Inspector
from engine.model import State
from engine.operations import plans
from engine.operations.execute import Report
from engine.operations.journal import Entry
from engine.operations.plans import RowResult, transition_of
from engine.store import Unavailable
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line, state_name
from engine.values import NamedTuple
from engine.verbs import VERBS
from tui.plan.plan_lines import MAX_LISTED_TASKS
from tui.session.running_operations import RESULT_WORDS
from tui.text.lines import Line, Run, cut_line, heading_line
from tui.text.table import REST, Column, Table
from tui.text.task_list import SHORT_ID_CELLS, short_id

MIN_REASON_CELLS = 30
"""Cells for a reason before the ids of tasks get more."""


class TaskResult(NamedTuple):
    """What became of one task of an operation."""

    id: str
    result: Run
    move: str
    """From state to state; "" if it is not known."""
    reason: str = ""


class TaskStates(NamedTuple):
    """Where tasks are now, by the index."""

    states: Mapping[str, State] = {}
    """By id; a task that is not among them is not in the queue, if `is_whole`."""
    is_whole: bool = False
    """All tasks of the place are read."""


async def read_states(inspector: Inspector, ids: Collection[str]) -> TaskStates:
    """The states of tasks now; none if the index cannot be read."""
    try:
        states, latest = await inspector.queries.states_of(ids), inspector.latest
    except Unavailable:
        return TaskStates()
    return TaskStates(states, latest.is_complete and not latest.unavailable)


def state_now(id: str, now: TaskStates, words: Mapping[State, str]) -> Run:
    """Where a task is now; `words`: the store's own words of states."""
    if (state := now.states.get(id)) is not None:
        return state_name(words.get(state, state)), ""
    return "not in queue" if now.is_whole else UNKNOWN, "muted"


def journal_results(
    entries: Sequence[Entry], verb: str, words: Mapping[State, str], past: str = "done"
) -> list[TaskResult]:
    """Results of an operation of the journal. `words`: of the store; `past`: of a changed task."""

    def word(state: State | None) -> str:
        return state_name(words.get(state, state)) if state else "nowhere"

    results = []
    for row, outcome in entries:
        is_move = verb in VERBS or row.target is not None
        start, goal = (transition_of(verb, row) if is_move else None) or (row.state, row.state)
        move = word(start) if start is goal else f"{word(start)} -> {word(goal)}"
        end = outcome.result if outcome else None
        name = past if end is RowResult.DONE else RESULT_WORDS[end] if end else "open"
        result: Run = (name, _LOOKS.get(end, "") if end else "warn")
        reason = outcome.reason if outcome else "not moved"
        results.append(TaskResult(plans.new_id_of(outcome) or row.id, result, move, reason))
    return results


_LOOKS: Mapping[RowResult, str] = {
    RowResult.DONE: "ok",
    RowResult.GONE: "warn",
    RowResult.FAILED: "error",
}


def report_results(report: Report, past: str) -> list[TaskResult]:
    """The first results of an operation that has just ended, unplanned results first; `past`: the
    word for done tasks, such as `retried`."""

    def results() -> Iterator[TaskResult]:
        for ident, why in report.failed:
            yield TaskResult(ident, ("failed", "error"), "", why)
        for ident, why in report.unapplied:
            yield TaskResult(ident, ("not applied", "warn"), "", why)
        for ident in report.gone:
            yield TaskResult(ident, ("skipped", "warn"), "", "changed since the plan")
        for ident in report.done:
            yield TaskResult(report.new_ids.get(ident) or ident, (past, "ok"), "")
        for ident, why in report.excluded:
            yield TaskResult(ident, ("excluded", "muted"), "", why)

    return list(islice(results(), MAX_LISTED_TASKS))


def result_table(
    results: Sequence[TaskResult],
    total: int,
    now: TaskStates,
    words: Mapping[State, str],
    width: int,
) -> list[Line]:
    """The table; `total`: all tasks of the operation, `words`: the store's own words of states. A
    move, or a state now, that all rows have is in the title; their cells are for whole ids."""

    def state(one: TaskResult) -> Run:
        return state_now(one.id, now, words)

    left, title = total - len(results), format_count(total, "task")
    title += f", the first {len(results):,}" if left > 0 else ""
    moves, states = {one.move for one in results}, {state(one)[0] for one in results}
    has_moves, has_states = len(moves) > 1, len(states) > 1 or UNKNOWN in states
    common = [*moves] * (not has_moves) + [f"now {word}" for word in states] * (not has_states)
    title += f": {', '.join(filter(None, common))}" if any(common) else ""
    cells = SHORT_ID_CELLS if has_moves or has_states else width // 2
    reason = min(MIN_REASON_CELLS, max((len(one.reason) for one in results), default=0))
    columns: list[Column[TaskResult]] = [
        Column("TASK", 8, lambda one: (short_id(one.id, cells), "accent"), most=99, keeps_end=True),
        Column("RESULT", 6, lambda one: one.result, most=11),
        Column("MOVE", 4, lambda one: (one.move, "muted"), most=20),
        Column("NOW", 4, state, most=12),
        Column("REASON", reason, lambda one: (safe_line(one.reason), "muted"), grows=REST),
    ]
    hidden = {"MOVE": not has_moves, "NOW": not has_states}
    table = Table([one for one in columns if not hidden.get(one.title)], (2, 1))
    head, lines = table.lines(results, width)
    more: list[Line] = [((f"   +{left:,} more", "muted"),)] if left > 0 else []
    return [cut_line(heading_line(title, width), width), head, *lines, *more]
