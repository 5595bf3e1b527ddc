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


def rescue_tasks(
    store: Store,
    retry: RetryPolicy,
    now: float,
    reason: str,
    dead: Callable[[Task], bool] = lambda task: True,
    giving_up: Callable[[Task], None] = lambda task: None,
) -> list[Outcome]:
    """Count one failed attempt for each claimed task for which `dead` is true; by default for all,
    which is only right while holding the queue lock.

    `retry` is for tasks without a policy of their own. Without that count, a task that kills its
    worker each time would be retried for ever. `giving_up` is called with each task that will not
    be retried, before it is stored, unless the store would refuse the change."""
    end = verbs.given_up_state(store.edges)
    orphans = [
        task
        for task in store.scan({store.states[State.ACTIVE]})
        if isinstance(task, Task) and task.state is State.ACTIVE and dead(task)
    ]
    ready, unready = [], []
    for task in orphans:
        policy = store.claim_rules.retry_policy(task) or retry.of_kind(task.kind)
        new = task_after_failure(task, reason, policy, now, end)
        try:
            if new.state is end:
                require_edge(store.edges, task, new, now)
                giving_up(new)
            ready.append(Move(task, new))
        except (StoreError, OSError) as error:
            # it stays claimed until `giving_up` succeeds
            unready.append(Outcome(Move(task, new), error=error))
    return [*unready, *store.swap_all(ready)]
