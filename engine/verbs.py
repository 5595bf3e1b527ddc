"""What may be done to a task: pure functions from a task to the task it becomes, or to nothing."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from engine.model import Edges, State, Task

Act: TypeAlias = Callable[..., Task | None]
"""A task, the time (epoch seconds UTC), the verb's own values by name -> what the task becomes;
None: it leaves its store."""


def enqueue(kind: str, now: float, token: str, description: str = "", payload: str = "") -> Task:
    """A new task, due at once.

    Its id is `<stamp in UTC>-<kind>-<token>`; the token is what keeps two tasks of one second
    apart: 8 random hex digits. The description defaults to the kind.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return Task(
        id=f"{stamp}-{kind}-{token}",
        kind=kind,
        state=State.PENDING,
        created=float(int(now)),
        description=description or kind,
        payload=payload,
    )


def nack(task: Task, due: float, error: str) -> Task:
    """The attempt failed and counts; to be tried again from `due` (epoch seconds UTC) on."""
    return replace(
        task,
        state=State.PENDING,
        due=due,
        attempts=(task.attempts or 0) + 1,
        error=error,
        lease=None,
    )


def unclaim(task: Task) -> Task:
    """Given back untouched: no attempt was made, none counts."""
    return replace(task, state=State.PENDING, lease=None)


WAITS = "waits: "
"""How an error begins that is none: it says what keeps a task that nobody has attempted."""


def postpone(task: Task, due: float, why: str) -> Task:
    """Given back until `due` (epoch seconds UTC): no attempt was made, none counts.

    What keeps it stands where its error would; the error of a real attempt is left there.
    """
    says = f"{WAITS}{why}" if not task.error or task.error.startswith(WAITS) else task.error
    return replace(task, state=State.PENDING, due=due, error=says, lease=None)


def bury(task: Task, error: str, counts: int = 0, end: State = State.DEAD) -> Task:
    """Given up on: to the dead-letter queue, the attempts raised by `counts`.

    `end` is where it goes in a store that keeps no dead.
    """
    attempts = (task.attempts or 0) + counts
    due = 0.0 if end is State.DEAD else task.due
    return replace(task, state=end, attempts=attempts, error=error, lease=None, due=due)


def last_state(edges: Edges) -> State:
    """Where a task goes that is given up on: to the dead, where a store keeps such."""
    return State.DEAD if (State.ACTIVE, State.DEAD) in edges else State.DONE


def retry(task: Task, now: float) -> Task:
    """Out of the dead-letter queue as if new: due at once, attempts and error forgotten."""
    return replace(task, state=State.PENDING, due=0.0, attempts=0, error="")


def promote(task: Task, now: float) -> Task:
    """Once more now: whatever it was waiting for, it is due."""
    return replace(task, due=0.0)


def hold(task: Task, now: float) -> Task:
    """Parked until released; of abandoned work the attempt counts."""
    return replace(_given_up(task), state=State.HELD)


def release(task: Task, now: float) -> Task:
    """Waiting again: what was parked, when it was due; abandoned work at once, and it counts."""
    return replace(_given_up(task), state=State.PENDING)


def kill(task: Task, now: float) -> Task:
    """Abandoned work: to the dead-letter queue, because nobody is working on it any more."""
    return replace(_given_up(task), state=State.DEAD, due=0.0)


def _given_up(task: Task) -> Task:
    """What nobody works on any more has been attempted once, whatever came of it."""
    if task.state is not State.ACTIVE:
        return task
    return replace(task, attempts=(task.attempts or 0) + 1, due=0.0, lease=None)


def edit(
    task: Task,
    now: float,
    description: str | None = None,
    due: float | None = None,
    destination: str | None = None,
) -> Task:
    """With another description, to somebody else, or due at another time (epoch seconds UTC);
    None: as it is.
    """
    return replace(
        task,
        description=task.description if description is None else description,
        due=task.due if due is None else due,
        destination=task.destination if destination is None else destination,
    )


def purge(task: Task, now: float) -> Task:
    """Into the trash, from where it can be had back."""
    return moved(task, State.TRASH)


def restore(task: Task, now: float) -> Task:
    """Out of the trash; parked, where nobody says where it stood."""
    return moved(task, State.HELD)


def moved(task: Task, state: State) -> Task:
    """As it is in another place, in nobody's hand."""
    # A tenth of all that a plan costs would be `replace`, which takes four times as long.
    return Task(
        task.id,
        task.kind,
        state,
        task.created,
        task.queue,
        task.group,
        task.word,
        task.due,
        task.attempts,
        task.priority,
        task.description,
        task.destination,
        task.payload,
        task.error,
        None,
        task.rev,
        task.extra,
    )


def expunge(task: Task, now: float) -> None:
    """Gone for good."""
    return


def along(edges: Edges, old: Task, new: Task | None) -> Task | None:
    """What a verb makes of a task, by its store's edge: an error that this does not name stays.

    There are formats that keep the last error until there is another one.
    """
    edge = edges.get((old.state, None if new is None else new.state))
    if new is None or edge is None or "error" in edge.fields or new.error == old.error:
        return new
    return replace(new, error=old.error)


def keep(task: Task, now: float) -> Task:
    """As it is: what is taken back is said row by row, not by the verb."""
    return task


class Verb(NamedTuple):
    """Something an operator may do to a task, wherever its store has the edge for it."""

    name: str
    past: str
    """For the result: "12 purged"."""
    edges: tuple[tuple[State, State | None], ...]
    """From where to where it leads; none where each row says that itself."""
    act: Act
    keeps: bool = False
    """Whether what is stored of a task stays as it is, byte for byte."""
    careful: bool = False
    """Whether what looks odd is left out unless it is taken in."""
    safe: bool = True
    """Whether it can be taken back."""


VERBS: Mapping[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("retry", "retried", ((State.DEAD, State.PENDING),), retry),
        Verb("promote", "promoted", ((State.PENDING, State.PENDING),), promote),
        Verb(
            "hold",
            "held",
            ((State.PENDING, State.HELD), (State.ACTIVE, State.HELD), (State.DEAD, State.HELD)),
            hold,
        ),
        Verb(
            "release",
            "released",
            ((State.HELD, State.PENDING), (State.ACTIVE, State.PENDING)),
            release,
        ),
        Verb("kill", "killed", ((State.ACTIVE, State.DEAD),), kill),
        Verb(
            "edit",
            "edited",
            ((State.PENDING, State.PENDING), (State.HELD, State.HELD)),
            edit,
        ),
        Verb(
            "purge",
            "purged",
            (
                (State.DEAD, State.TRASH),
                (State.PENDING, State.TRASH),
                (State.HELD, State.TRASH),
            ),
            purge,
            keeps=True,
            careful=True,
        ),
        Verb(
            "restore",
            "restored",
            (
                (State.TRASH, State.HELD),
                (State.TRASH, State.DEAD),
                (State.TRASH, State.PENDING),
            ),
            restore,
            keeps=True,
        ),
        Verb(
            "expunge",
            "expunged",
            ((State.DEAD, None), (State.TRASH, None)),
            expunge,
            keeps=True,
            careful=True,
            safe=False,
        ),
        Verb("undo", "taken back", (), keep),
    )
}
"""Every verb by its name, in the order in which screens and help list them."""
