"""Plans: what the operator saw is acted on, or left alone; and every row is accounted for."""

from collections.abc import Callable
from dataclasses import replace

from engine import operations, plans, verbs
from engine.model import Edge, Edges, State
from engine.operations import Report
from engine.plans import Plan, Row
from engine.store import Store
from engine.stores.memory import EDGES
from tests.engine.builders import NOW, a_task, clock, dead_tasks, tasks_in


def test_a_plan_is_what_was_seen() -> None:
    """A plan holds id, state and revision of each task as it was seen, each once."""
    seen = [a_task(1, rev="a"), a_task(2, rev="b", state=State.HELD), a_task(1, rev="a")]
    plan = plans.freeze("hold", seen, NOW)
    rows = (Row(seen[0].id, State.PENDING, "a"), Row(seen[1].id, State.HELD, "b"))
    assert plan == Plan("hold", rows, NOW, oldest=NOW - 3600, newest=NOW - 3600)


def test_what_is_as_it_was_seen_is_done(open_store: Callable[[], Store]) -> None:
    """A plan that nobody interferes with is carried out on every row."""
    store = open_store()
    plan = plans.freeze("retry", dead_tasks(store, 3), NOW)
    report = operations.apply(open_store(), plan, clock)
    assert report == Report(plan, tuple(row.id for row in plan.rows), (), ())
    assert {task.state for task in tasks_in(store)} == {State.PENDING}


def test_what_differs_is_left_alone(open_store: Callable[[], Store]) -> None:
    """A task that moved, left, or was moved there and back since it was seen is gone."""
    store = open_store()
    moved, left, back, same = dead_tasks(store, 4)
    plan = plans.freeze("purge", [moved, left, back, same], NOW)
    store.swap(moved, verbs.retry(moved, NOW))
    store.swap(left, None)
    trashed = verbs.purge(back, NOW)
    rev = store.swap(back, trashed)
    store.swap(replace(trashed, rev=rev), replace(trashed, state=State.DEAD, rev=rev))
    report = operations.apply(store, plan, clock)
    assert report.done == (same.id,)
    assert set(report.gone) == {moved.id, left.id, back.id}
    assert report.failed == ()


def test_a_row_in_a_state_without_the_verb_fails(open_store: Callable[[], Store]) -> None:
    """A row from whose state the verb does not lead has failed, with the reason."""
    store = open_store()
    store.swap(None, a_task())
    report = operations.apply(store, plans.freeze("release", tasks_in(store), NOW), clock)
    assert report.failed == ((a_task().id, "not from pending"),)


def test_a_verb_is_offered_where_an_edge_is_open() -> None:
    """A verb is offered in a state from which the store has an open edge for it; where the edge is
    refused now, the reason is the store's own."""
    refused: Edges = {(State.PENDING, State.HELD): Edge(refused="the spool is read-only")}
    assert plans.offered(EDGES, "hold", State.PENDING) is None
    assert plans.offered(EDGES, "promote", State.DEAD) == "not from dead"
    assert plans.offered({}, "hold", State.PENDING) == "no hold from pending here"
    assert plans.offered(refused, "hold", State.PENDING) == "the spool is read-only"


def test_a_task_without_an_age_makes_a_plan_no_older() -> None:
    """The oldest and the newest are of those tasks whose age is known; it is 0 of none."""
    tasks = [a_task(1, created=0.0), a_task(2), a_task(3, created=NOW - 60), a_task(4, created=0.0)]
    plan = plans.freeze("purge", tasks, NOW)
    assert (plan.oldest, plan.newest) == (NOW - 3600, NOW - 60)
    assert plans.freeze("purge", tasks[:1], NOW).oldest == 0.0
    assert plan.rows[0].odd == ""
