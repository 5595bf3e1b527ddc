"""The nouns: what a task is, where it can stand, and what a store says about it.

Everything here is a frozen value. Task is a slotted dataclass; the small carriers around it are
named tuples, because defining one costs a tenth of the time, and every start of a command pays it.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeAlias


class _Nothing(dict[str, str]):
    """An empty mapping that may be a default: nobody can put anything into it."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __setitem__(self, key: str, value: str) -> None:
        raise TypeError("this mapping is shared and stays empty")


EMPTY: Mapping[str, str] = _Nothing()


class State(StrEnum):
    """Where a task stands in its life. Each store has its own word for it (`Store.states`)."""

    PENDING = "pending"
    """To be attempted once `due` has come: ready and delayed are one state."""
    ACTIVE = "active"
    """Claimed: somebody is working on it."""
    HELD = "held"
    """Parked by an operator until released."""
    DEAD = "dead"
    """Given up on: the dead-letter queue."""
    DONE = "done"
    """Finished, not yet swept away."""
    TRASH = "trash"
    """Purged, still to be had back."""


class Lease(NamedTuple):
    """Who works on a task, and until when nobody else may."""

    owner: str
    """As the store names workers: a PID, a token, a host."""
    since: float
    """Epoch seconds UTC of the claim."""
    until: float | None = None
    """Epoch seconds UTC when it lapses by itself; None: only with its owner."""
    token: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """One unit of work, as it was seen. To change it, `replace` it and `swap` it into its store.

    Times are epoch seconds UTC. A field that a store does not have stays at its default; `None` in
    `due` and `attempts` means that this store does not know, and so does 0.0 in `created`: such a
    task has no age, is never the oldest, and no age that is asked for is its own.
    """

    id: str
    kind: str
    state: State
    created: float
    queue: str = ""
    """Which queue of a place; "" where there is only one."""
    group: str = ""
    """What limits and fairness go by besides the kind: a transport, a thread, a peer."""
    word: str = ""
    """The store's own word for where it stands, when that is finer than its state."""
    due: float | None = 0.0
    """Not to be attempted before; 0 is at once."""
    attempts: int | None = 0
    """How many attempts are counted so far, as its store counts them."""
    priority: int = 0
    description: str = ""
    destination: str = ""
    payload: str = ""
    """Where further data lies: a path, or the store's own reference."""
    error: str = ""
    """What the last attempt said, cleaned by the store."""
    lease: Lease | None = None
    rev: str = ""
    """Changes whenever the stored task does; "" when it is not stored yet."""
    extra: Mapping[str, str] = field(default=EMPTY, hash=False)
    """What else the store shows; `dead_since` (epoch seconds) and `dead_reason` for a dead task."""


def own_word(task: Task, states: Mapping[State, str], words: Mapping[str, State] = {}) -> str:
    """The store's own word for where a task is: the finer one (`Store.words`) if it has one."""
    if words.get(task.word) is task.state:
        return task.word
    return states.get(task.state, str(task.state))


def words_of(state: State, states: Mapping[State, str], words: Mapping[str, State]) -> list[str]:
    """All words of a store for the tasks of one state, the state's own word first."""
    return [states[state], *(word for word, of in words.items() if of is state)]


def counted_by_words(
    counts: Mapping[State, int],
    finer: Mapping[str, int],
    states: Mapping[State, str],
    words: Mapping[str, State],
) -> dict[str, int]:
    """Tasks by the store's own words, from those by states and those by finer words (`finer`)."""
    found: dict[str, int] = {}
    for state, word in states.items():
        parts = {each: finer.get(each, 0) for each in words_of(state, states, words)[1:]}
        found |= {word: counts.get(state, 0) - sum(parts.values()), **parts}
    return found


ATTEMPT = "attempt"
"""In the `extra` of a claimed task: the number of the attempt under way, in a store that counts an
attempt when it is claimed. `attempts` has those that have ended, in every store."""


def attempts_counted(task: Task) -> int | None:
    """How many attempts the store itself counts by now; None where it does not know."""
    return int(task.extra[ATTEMPT]) if ATTEMPT in task.extra else task.attempts


class Missing(NamedTuple):
    """A task that was asked for and stands nowhere any more."""

    id: str


class Problem(NamedTuple):
    """Something in a store that cannot be read as a task, or stands where it should not."""

    where: str
    """Which file, row or key, in the store's own terms."""
    what: str
    """What is wrong with it, in words for the operator."""
    state: State | None = None
    """The state whose folder it lies in, where it lies in one."""


class Part(NamedTuple):
    """One piece of a task as its store keeps it: its file, its payload, the body of a mail."""

    name: str
    """What it is asked for by; no other piece of the task has it."""
    where: str
    """Which file, row or key."""
    size: int | None = None
    """Bytes; None when that is not known."""
    facts: tuple[tuple[str, str], ...] = ()
    """What else is known, as pairs of a name and words, in the order to be read; `modified` and
    `changed` are epoch seconds UTC."""
    refused: str = ""
    """Why it is not read; "" when it may be."""
    wire: bool = False
    """Whether it is a mail in the form in which it goes over SMTP: a leading dot is doubled, and a
    line with a dot alone ends it."""


def anything_goes(name: str, value: object, now: float) -> str:
    """No value is wrong by itself."""
    return ""


class Edge(NamedTuple):
    """One way a task may go in a store: which fields may change on it, and what to say before."""

    fields: frozenset[str] = frozenset()
    """Names of the Task fields that a swap along this edge may change, besides where it stands."""
    refused: str = ""
    """Why it is refused now; "" when it is open."""
    warning: str = ""
    """What the operator should know before confirming."""
    undoable: bool = True
    wrong: Callable[[str, object, float], str] = anything_goes
    """What is wrong with a new value of one of its fields at a time (epoch seconds UTC), in words
    for the operator; "" when nothing is."""


Edges: TypeAlias = Mapping[tuple[State | None, State | None], Edge]
"""From where to where; None before it is stored and after it has left."""


class ChangeSource(NamedTuple):
    """How to know when a store should be looked at again."""

    paths: tuple[str, ...] = ()
    """Folders in which something happens when a task moves."""
    wait: Callable[[float], Collection[str] | None] | None = None
    """For a store without folders: blocks up to so many seconds; the names of what has changed
    since it was last asked, or since the store was opened, as `look` takes them. None of them:
    nothing has; None instead of them: something has that it cannot name, so look at everything."""
    unwatched: float = 60.0
    """Seconds after which everything is looked at again, whatever the bell says."""
    due: float | None = None
    """Epoch seconds UTC when the next waiting task comes due, as far as the last `take` saw."""


class Move(NamedTuple):
    """A task as it was seen and as it shall be; None for before its life and after it."""

    old: Task | None
    new: Task | None
    image: bytes = b""
    """What `new` is to be stored as, byte for byte: what `Store.read` once gave of it; empty where
    the store shall write it. With it, any field may change."""


class Outcome(NamedTuple):
    """What became of a move."""

    move: Move
    rev: str = ""
    """The new revision; "" when the task has left, or nothing happened."""
    error: Exception | None = None
    """Why nothing happened; None when it is done and durable."""


class Verdict(StrEnum):
    """What the evidence says about a queue's lock."""

    FREE = "free"
    HELD = "held"
    STALE = "stale"
    """Its owner is gone."""
    STUCK = "stuck"
    """Its owner lives, but has shown no sign of life for longer than the threshold."""
    UNKNOWN = "unknown"


class LockEvidence(NamedTuple):
    """What could be found out about a lock, and what follows from it."""

    verdict: Verdict
    pid: int | None = None
    since: float | None = None
    """Epoch seconds UTC of its last sign of life (it is renewed while its holder works)."""
    age: float = 0.0
    """Seconds since then, at the moment of looking."""
    reason: str = ""
    """The verdict in words."""
    doubt: str = ""
    """Why its holder must not be signalled; "" only where that process is proven to be the one
    that took the lock, or where there is none to signal."""
    facts: tuple[tuple[str, str], ...] = ()
    """What was found out, as pairs of a name and words, in the order to be read."""
    seen: str = ""
    """Which lock this was: changes whenever it changes hands. "free" where there was none."""
    holders: tuple[int, ...] = ()
    """PIDs that stand between us and the lock: whom to end, in this order, where there is no doubt.
    """
    proven: bool = True
    """Whether the verdict follows from what the kernel says, not from times alone."""
