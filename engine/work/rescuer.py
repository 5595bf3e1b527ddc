"""Gives work back that nobody is doing any more; each rescue counts as one attempt, once."""

from __future__ import annotations

from collections.abc import Callable

from engine import verbs
from engine.model import Move, Outcome, State, Task
from engine.policy import RetryPolicy
from engine.store import Store, StoreError, permit


def outcome_of_failure(
    task: Task, error: str, retry: RetryPolicy, now: float, end: State = State.DEAD
) -> Task:
    """What a failed attempt makes of a task: pending again after its wait, or given up on.

    `end` is where the store keeps what is given up on (`verbs.last_state`).
    """
    wait = retry.wait(task, now)
    if wait is None:
        return verbs.bury(task, error, retry.last_counts, end)
    return verbs.nack(task, int(now) + wait, error)


def abandoned(task: Task) -> bool:
    """Any claimed task: for whoever holds the lock without which nobody claims."""
    return True


def rescue(
    store: Store,
    retry: RetryPolicy,
    now: float,
    reason: str,
    dead: Callable[[Task], bool] = abandoned,
    giving_up: Callable[[Task], None] = lambda task: None,
) -> list[Outcome]:
    """Fail every claimed task once of which `dead` says that nobody works on it any more.

    Without the count, a task that kills its worker each time would be tried for ever. `giving_up`
    is told of each that will not be tried again, before the store is; of none that the store would
    leave where it is.
    """
    end = verbs.last_state(store.edges)
    orphans = [
        task
        for task in store.look({store.states[State.ACTIVE]})
        if isinstance(task, Task) and task.state is State.ACTIVE and dead(task)
    ]
    moves = [Move(task, outcome_of_failure(task, reason, retry, now, end)) for task in orphans]
    ready, kept = [], []
    for move in moves:
        try:
            if move.new is not None and move.new.state is end:
                permit(store.edges, move.old, move.new)
                giving_up(move.new)
            ready.append(move)
        except (StoreError, OSError) as error:
            kept.append(Outcome(move, error=error))  # it stays claimed, until it can be given up
    return [*kept, *store.swap_all(ready)]
