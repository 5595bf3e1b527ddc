"""Gives work back that nobody is doing any more; each rescue counts as one attempt, once."""

from __future__ import annotations

from engine import verbs
from engine.model import Move, Outcome, State, Task
from engine.policy import RetryPolicy
from engine.store import Store


def outcome_of_failure(task: Task, error: str, retry: RetryPolicy, now: float) -> Task:
    """What a failed attempt makes of a task: pending again after its wait, or dead."""
    wait = retry.backoff(task.attempts or 0)
    if wait is None:
        return verbs.bury(task, error, retry.last_counts)
    return verbs.nack(task, int(now) + wait, error)


def rescue(store: Store, retry: RetryPolicy, now: float, reason: str) -> list[Outcome]:
    """Fail every claimed task once: whoever calls this knows that no claim is alive.

    Without the count, a task that kills its worker each time would be tried for ever.
    """
    orphans = [
        task
        for task in store.look({store.states[State.ACTIVE]})
        if isinstance(task, Task) and task.state is State.ACTIVE
    ]
    moves = [Move(task, outcome_of_failure(task, reason, retry, now)) for task in orphans]
    return list(store.swap_all(moves))
