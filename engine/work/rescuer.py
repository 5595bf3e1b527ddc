"""Rescue abandoned tasks: give each back as one failed attempt."""

from __future__ import annotations

from collections.abc import Callable

from engine import verbs
from engine.model import Move, Outcome, State, Task
from engine.policy import RetryPolicy
from engine.store import Store, StoreError, require_edge


def task_after_failure(
    task: Task, error: str, retry: RetryPolicy, now: float, end: State = State.DEAD
) -> Task:
    """Return a task after a failed attempt: pending again after its backoff, or in its final state.

    `end` is the final state of the store (`verbs.given_up_state`)."""
    due = retry.next_due(task, now)
    if due is None:
        return verbs.give_up_task(task, error, retry.final_attempts, end)
    return verbs.nack(task, due, error)


def is_abandoned(task: Task) -> bool:
    """Default test: every claimed task is abandoned. Only valid while holding the queue lock."""
    return True


def rescue_tasks(
    store: Store,
    retry: RetryPolicy,
    now: float,
    reason: str,
    dead: Callable[[Task], bool] = is_abandoned,
    giving_up: Callable[[Task], None] = lambda task: None,
) -> list[Outcome]:
    """Count one failed attempt for each claimed task for which `dead` is true.

    `retry` is for tasks without a policy of their own. Without that count, a task that kills its
    worker each time would be retried for ever.
    `giving_up` is called with each task that will not be retried, before it is stored, unless the
    store would refuse the change."""
    end = verbs.given_up_state(store.edges)
    orphans = [
        task
        for task in store.scan({store.states[State.ACTIVE]})
        if isinstance(task, Task) and task.state is State.ACTIVE and dead(task)
    ]
    store_policy = store.claim_rules.retry_policy
    moves = [
        Move(
            task,
            task_after_failure(
                task, reason, store_policy(task) or retry.of_kind(task.kind), now, end
            ),
        )
        for task in orphans
    ]
    ready, unready = [], []
    for move in moves:
        try:
            if move.new is not None and move.new.state is end:
                require_edge(store.edges, move.old, move.new, now)
                giving_up(move.new)
            ready.append(move)
        except (StoreError, OSError) as error:
            # it stays claimed until `giving_up` succeeds
            unready.append(Outcome(move, error=error))
    return [*unready, *store.swap_all(ready)]
