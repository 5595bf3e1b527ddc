"""The next step on the queue screen, and why a row has left its list."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from engine.model import Problem, State, Task
from engine.operations.journal import Operation
from engine.text.figure import UNKNOWN
from engine.text.figures import format_count
from engine.text.safe import safe_line, state_name
from engine.verbs import VERBS
from tui.text.hints import Scope
from tui.text.times import format_age

STATE_DIGITS = {State.PENDING: "2", State.ACTIVE: "3", State.DEAD: "4"}
"""Digit keys that show the tasks of a state."""

RECENT_SECONDS = 12.0
"""Seconds after its end for which an operation explains that a row has left."""


class Situation(NamedTuple):
    """What the next step depends on."""

    state: State | None
    """None: the problems."""
    states: Mapping[State, str]
    counts: Mapping[State, int]
    rows: int
    """Rows of the list."""
    scope: Scope
    has_filter: bool = False
    is_one_cluster: bool = False
    """True if the filter selects the tasks of one error cluster."""
    unavailable: bool = False
    read_only: bool = False
    lacks_worker: bool = False
    lock_alarms: bool = False
    can_start_worker: bool = False
    problem: Problem | None = None
    """The problem under the cursor."""
    at: float = 0.0
    """Epoch seconds UTC."""


def next_step(now: Situation) -> tuple[str, str]:
    """A key and what it does; two empty texts if nothing is to be done."""
    if now.unavailable or not now.states or now.scope.filter_error:
        return "", ""
    if now.scope.ranged:
        return "v", "marks the rows of the range, Esc drops it"
    if now.scope.is_gone:
        return "j", "goes on to the next row"
    if not now.rows:
        return _step_without_rows(now)
    if now.problem is not None and now.problem.quarantined_at is not None:
        seconds = now.problem.quarantined_at - now.at
        if seconds <= 0:
            return "", "the next worker run moves it to quarantine"
        return "", f"worker moves it to quarantine in {seconds:.0f}s"
    if now.lock_alarms and now.state in (State.PENDING, State.ACTIVE):
        return ("5", "shows the locks") if now.read_only else ("U", "shows the evidence")
    if now.state is State.PENDING and now.lacks_worker and now.can_start_worker:
        return ("Enter", "shows why it waits") if now.read_only else ("W", "starts a worker")
    if now.state is State.DEAD and now.is_one_cluster:
        return _step_in_cluster(now)
    return _READ_ONLY_STEPS.get(now.state, _ENTER) if now.read_only else _STEPS[now.state]


def _step_in_cluster(now: Situation) -> tuple[str, str]:
    """The next step where all rows have the same error: replay all of them."""
    if now.read_only:
        return "t", "shows the log of the task"
    if now.scope.acts_on_all or now.scope.marked:
        return "R", "replays them, attempts reset"
    return "*", "selects all of this cluster; then R replays them"


_ENTER = ("Enter", "shows why it waits, and when it runs")

_STEPS: Mapping[State | None, tuple[str, str]] = {
    State.PENDING: _ENTER,
    State.ACTIVE: ("t", "shows the log of the task"),
    State.HELD: ("L", "releases it"),
    State.DEAD: ("c", "groups these errors before you retry"),
    State.DONE: ("Enter", "shows the task"),
    State.TRASH: ("R", "restores; X deletes permanently"),
    None: ("Enter", "shows the first bytes of the file"),
}
_READ_ONLY_STEPS: Mapping[State | None, tuple[str, str]] = {
    State.ACTIVE: _STEPS[State.ACTIVE],
    State.DEAD: ("c", "groups these errors"),
    None: _STEPS[None],
}


def _step_without_rows(now: Situation) -> tuple[str, str]:
    if now.has_filter:
        return "Esc", "clears the filter"
    for state in (State.DEAD, State.PENDING, State.ACTIVE):
        if now.counts.get(state) and state is not now.state:
            amount = format_count(now.counts[state], "task")
            name = state_name(now.states.get(state, state))
            return STATE_DIGITS[state], f"shows {amount} in {name}"
    return "1", "back to the overview"


def describe_departure(
    before: Task,
    after: Task | None,
    states: Mapping[State, str],
    operations: Iterable[Operation],
    now: float,
) -> str:
    """Why a row has left its list: the operation that did it, else the task's new state."""
    for operation in operations:
        ended = operation.ended
        verb = operation.intent.verb
        if verb not in VERBS or (ended is not None and not 0 <= now - ended < RECENT_SECONDS):
            continue
        if (before.state, None if after is None else after.state) in VERBS[verb].edges:
            when = format_age(now - ended) if ended is not None else "now"
            return f"{VERBS[verb].past} by {safe_line(operation.intent.who.name)} {when}"
    if after is None:
        return "gone, or no longer readable"
    return f"now in {state_name(states.get(after.state, after.state))}"


def purged_by(task_since: float | None, operations: Iterable[Operation]) -> str:
    """Who moved a task to the trash at a time, from the operations; "?" if that is not certain."""
    if task_since is None:
        return UNKNOWN
    names = {
        safe_line(one.intent.who.name)
        for one in operations
        if one.intent.verb == "purge"
        and one.started - 1 <= task_since
        and (one.ended is None or task_since <= one.ended + 1)
    }
    return names.pop() if len(names) == 1 else UNKNOWN
