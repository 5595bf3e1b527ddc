"""Verbs (retry, hold, release, purge, ...): pure functions from a task to the changed task."""

import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

from engine.model import Edge, Edges, State, Task, accept_only_now
from engine.values import NamedTuple

VerbFunction: TypeAlias = Callable[..., Task | None]
"""(task, now in epoch seconds UTC, the verb's own keyword arguments) -> the changed task, or None
to delete it from its store."""


def enqueue(
    kind: str, now: float, token: str, description: str = "", payload: str = "", mark: str = ""
) -> Task:
    """Return a new task that is due now. The description defaults to the kind.

    Its id is `<UTC stamp><microseconds><mark>-<kind>-<token>`: names sort in the order of the adds,
    of any kind, also for a program that sorts by name. Tasks with one key have one `mark`.
    The token, 8 random hex digits, separates tasks of one moment. In a whole second the
    microseconds are omitted, unless there is a mark."""
    second, moment = divmod(round(now * MOMENTS_PER_SECOND), MOMENTS_PER_SECOND)
    fraction = f"{moment:06}" if moment or mark else ""
    return Task(
        id=f"{_stamp(second)}{fraction}{mark}-{kind}-{token}",
        kind=kind,
        state=State.PENDING,
        created=float(second),
        description=description or kind,
        payload=payload,
    )


MOMENTS_PER_SECOND = 1_000_000
"""Moments of one second that ids tell apart."""

TOKEN_LENGTH = len("-01234567")
"""Characters of the token at the end of an id, with its hyphen. Tasks with one stamp are claimed in
its order, of any kind: in ids without microseconds its first four digits rise in the second."""


@lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))


def nack(task: Task, due: float, error: str) -> Task:
    """Count a failed attempt and schedule the next one for `due` (epoch seconds UTC)."""
    return task._replace(
        state=State.PENDING, due=due, attempts=(task.attempts or 0) + 1, error=error, lease=None
    )


def unclaim(task: Task) -> Task:
    """Return a claimed task unchanged: no attempt is counted."""
    return task._replace(state=State.PENDING, lease=None)


WAITING_PREFIX = "waits: "
"""Prefix of an "error" that is not a failure: why a task that was not attempted has to wait."""


def postpone(task: Task, due: float, why: str) -> Task:
    """Return a claimed task until `due` (epoch seconds UTC) without counting an attempt. The reason
    is stored as its error, unless that holds the error of a real attempt."""
    is_free = not task.error or task.error.startswith(WAITING_PREFIX)
    error = f"{WAITING_PREFIX}{why}" if is_free else task.error
    return task._replace(state=State.PENDING, due=due, error=error, lease=None)


def give_up_task(task: Task, error: str, counts: int = 0, end: State = State.DEAD) -> Task:
    """Give up a task: move it to the dead-letter queue and add `counts` to its attempts. `end`
    replaces DEAD for a store without a dead-letter queue."""
    attempts = (task.attempts or 0) + counts
    due = 0.0 if end is State.DEAD else task.due
    return task._replace(state=end, attempts=attempts, error=error, lease=None, due=due)


def complete(task: Task, state: State) -> Task:
    """Move a claimed task that was done to the state of its store for that; count the attempt."""
    return task._replace(state=state, attempts=(task.attempts or 0) + 1, lease=None)


def given_up_state(edges: Edges) -> State:
    """Where a given-up task goes: DEAD, or DONE in a store without a dead-letter queue."""
    return State.DEAD if (State.ACTIVE, State.DEAD) in edges else State.DONE


def retry(task: Task, now: float) -> Task:
    """Move a dead or done task back to the queue: due now, attempts and error reset."""
    return task._replace(state=State.PENDING, due=0.0, attempts=0, error="")


def promote(task: Task, now: float) -> Task:
    """Make a waiting task due now."""
    return task._replace(due=0.0)


def hold(task: Task, now: float) -> Task:
    """Hold a task until it is released; for an orphaned active task, count a failed attempt."""
    return _count_attempt(task)._replace(state=State.HELD)


def release(task: Task, now: float) -> Task:
    """Release a held task with its old due time, or an orphaned active one: due now, counted."""
    return _count_attempt(task)._replace(state=State.PENDING)


def kill(task: Task, now: float) -> Task:
    """Move an orphaned active task to the dead-letter queue and count the attempt."""
    return _count_attempt(task)._replace(state=State.DEAD, due=0.0)


def _count_attempt(task: Task) -> Task:
    """Count an attempt of an active task, make it due now and end its lease; others unchanged."""
    if task.state is not State.ACTIVE:
        return task
    return task._replace(attempts=(task.attempts or 0) + 1, due=0.0, lease=None)


BOUNCED = "killed by an operator"
EXPIRED = "expired by an operator"
REROUTED = "given to the router again by an operator"
"""The error that a verb gives to a task that it ends, by which its store tells the verbs apart."""


def bounce(task: Task, now: float) -> Task:
    """Give up a waiting or held task: its sender gets a report."""
    return task._replace(state=State.DEAD, error=BOUNCED, due=0.0)


def expire(task: Task, now: float) -> Task:
    """Give up a waiting or held task as too old: its sender gets a report."""
    return task._replace(state=State.DEAD, error=EXPIRED, due=0.0)


def reroute(task: Task, now: float) -> Task:
    """End a task, and give its message to the router as a new one for the same recipient."""
    return task._replace(state=State.DONE, error=REROUTED)


def edit(
    task: Task,
    now: float,
    description: str | None = None,
    due: float | None = None,
    destination: str | None = None,
    priority: int | None = None,
    data: str | None = None,
) -> Task:
    """Change what is given; `due` in epoch seconds UTC."""
    return task._replace(
        description=task.description if description is None else description,
        due=task.due if due is None else due,
        destination=task.destination if destination is None else destination,
        priority=task.priority if priority is None else priority,
        data=data,
    )


def purge(task: Task, now: float) -> Task:
    """Move to the trash, from which it can be restored."""
    return with_state(task, State.TRASH)


def restore(task: Task, now: float) -> Task:
    """Move out of the trash, to HELD if the former state is unknown."""
    return with_state(task, State.HELD)


def with_state(task: Task, state: State) -> Task:
    """Copy a task with another state and without its lease."""
    return task._replace(state=state, lease=None)


def expunge(task: Task, now: float) -> None:
    """Delete permanently."""
    return


def keep_error(edges: Edges, old: Task, new: Task | None) -> Task | None:
    """Keep the old error if the edge does not let it change: some formats store the last one."""
    edge = edges.get((old.state, None if new is None else new.state))
    if new is None or edge is None or "error" in edge.fields or new.error == old.error:
        return new
    return new._replace(error=old.error)


class VerbWords(NamedTuple):
    """What an act is called: by its key, plan, command and result."""

    name: str
    past: str
    """Past participle for the result: "12 purged"."""


class Verb(NamedTuple):
    """An operator action on tasks, available where the store has one of its edges."""

    name: str
    past: str
    """Past participle for the result: "12 purged"."""
    edges: tuple[tuple[State, State | None], ...]
    """The (from, to) states it may use; empty if each row has its own (undo)."""
    function: VerbFunction
    keeps_bytes: bool = False
    """True if the stored bytes of a task do not change."""
    excludes_suspicious: bool = False
    """True if suspicious tasks are excluded unless the operator includes them."""
    is_undoable: bool = True
    is_named: bool = False
    """True if only edges that name it (`Edge.verbs`) have it: it does more than change the task."""
    paced: VerbWords | None = None
    """What it is called when the tasks are sent at a rate; None if it is never paced."""

    def words(self, *, is_paced: bool) -> VerbWords:
        """What it is called when it is done now, or paced."""
        return self.paced if is_paced and self.paced else VerbWords(self.name, self.past)


PENDING, ACTIVE, HELD, DEAD, DONE, TRASH = State

VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("retry", "retried", ((DEAD, PENDING),), retry, paced=VerbWords("replay", "replayed")),
        Verb("rerun", "rerun", ((DONE, PENDING),), retry, paced=VerbWords("rerun", "rerun")),
        Verb("promote", "promoted", ((PENDING, PENDING),), promote),
        Verb("hold", "held", ((PENDING, HELD), (ACTIVE, HELD), (DEAD, HELD)), hold),
        Verb("release", "released", ((HELD, PENDING), (ACTIVE, PENDING)), release),
        Verb("kill", "killed", ((ACTIVE, DEAD),), kill),
        Verb("bounce", "bounced", ((PENDING, DEAD), (HELD, DEAD)), bounce, is_named=True),
        Verb("expire", "expired", ((PENDING, DEAD), (HELD, DEAD)), expire, is_named=True),
        Verb(
            "reroute",
            "rerouted",
            ((PENDING, DONE), (HELD, DONE), (DEAD, DONE)),
            reroute,
            is_undoable=False,
            is_named=True,
        ),
        Verb("edit", "edited", ((PENDING, PENDING), (HELD, HELD)), edit),
        Verb(
            "purge",
            "purged",
            ((DEAD, TRASH), (PENDING, TRASH), (HELD, TRASH), (DONE, TRASH)),
            purge,
            keeps_bytes=True,
            excludes_suspicious=True,
        ),
        Verb(
            "restore",
            "restored",
            ((TRASH, HELD), (TRASH, DEAD), (TRASH, PENDING), (TRASH, DONE)),
            restore,
            keeps_bytes=True,
        ),
        Verb(
            "expunge",
            "expunged",
            ((DEAD, None), (TRASH, None), (DONE, None), (PENDING, None)),
            expunge,
            keeps_bytes=True,
            excludes_suspicious=True,
            is_undoable=False,
        ),
        # Unchanged: undo has its own target for each row, which no verb can know.
        Verb("undo", "undone", (), lambda task, now: task),
    )
}
"""All verbs by name, in the order in which screens and help list them."""


def edges_of(edges: Edges, verb: str, state: State | None = None) -> Edges:
    """The edges of a store that a verb may use, from one state if that is given. A verb that edges
    name has only those, with its own warning; an edge that only starts a task now is no edit."""
    usable: dict[tuple[State | None, State | None], Edge] = {}
    for transition in VERBS[verb].edges:
        edge = edges.get(transition)
        if edge is None or state not in (None, transition[0]):
            continue
        if verb == "edit" and edge.value_problem is accept_only_now:
            continue
        if not VERBS[verb].is_named:
            usable[transition] = edge
        elif (warning := dict(edge.verbs).get(verb)) is not None:
            joined = "; ".join(filter(None, (warning, edge.warning)))
            usable[transition] = edge._replace(warning=joined)
    return usable
