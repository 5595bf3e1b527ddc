"""Data types shared by all formats: Task, State, Lease, Problem, Edge, Move, LockEvidence.

All are named tuples, so they cannot be changed. Dataclasses could be frozen too, but their module
takes 12 ms to import, more than Python itself, and a frozen one five times as long to construct."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Protocol, TypeAlias

from engine.values import NamedTuple


class _EmptyMapping(dict[str, str]):
    """A read-only empty mapping, safe as a shared default."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __setitem__(self, key: str, value: str) -> None:
        raise TypeError("this mapping is shared and stays empty")


EMPTY: Mapping[str, str] = _EmptyMapping()

MAIL_SEND_KIND = "mail_send"
"""The kind of task that delivers a mail (contract, "Task types")."""

NULL_SENDER = "<>"
"""`Task.sender` of a mail that is returned to no sender, such as a report."""


class State(StrEnum):
    """The states of a task. Each store maps them to its own words (`Store.states`)."""

    PENDING = "pending"
    """Waiting: to be attempted when `due` has passed. Ready and delayed tasks are both PENDING."""
    ACTIVE = "active"
    """Claimed: a worker is processing it."""
    HELD = "held"
    """Stopped by an operator until released."""
    DEAD = "dead"
    """In the dead-letter queue (DLQ): no further attempts."""
    DONE = "done"
    """Finished, not yet deleted."""
    TRASH = "trash"
    """Purged; can still be restored."""

    __hash__ = str.__hash__
    """As its text, which it equals; that of an Enum is Python code, called for each edge."""


class Lease(NamedTuple):
    """A claim on a task: its owner and its end."""

    owner: str
    """The store's name for the worker: a PID, a token, a host."""
    since: float
    """Epoch seconds UTC of the claim; 0 if unknown."""
    until: float | None = None
    """Epoch seconds UTC when it expires; None: it ends only with its owner."""
    token: str = ""


class Task(NamedTuple):
    """One unit of work, as scanned. To change it, `_replace` fields and `swap` it in its store.

    Times are epoch seconds UTC. A field that a store does not have keeps its default. `None` in
    `due` and `attempts`, and 0.0 in `created`, mean that the store does not know: a task with
    unknown `created` has no age, is never the oldest, and matches no age filter."""

    id: str
    kind: str
    state: State
    created: float
    queue: str = ""
    """Name of the queue within its place; "" if there is only one."""
    group: str = ""
    """What rate limits and fair claiming count by, besides the kind: a transport, a peer."""
    word: str = ""
    """The store's own word for the state, if that is finer than `state`."""
    due: float | None = 0.0
    """Earliest time of the next attempt; 0 means now."""
    attempts: int | None = 0
    """Number of attempts, as the store counts them."""
    priority: int = 0
    description: str = ""
    destination: str = ""
    payload: str = ""
    """Where further data is stored: a path or the store's own reference."""
    sender: str = ""
    """Of a mail: the sender of its envelope, or `NULL_SENDER`; "" for a task that is no mail."""
    recipients: tuple[str, ...] = ()
    """Of a mail: the recipients that still wait; `destination` is the first of them."""
    account: str | None = ""
    """Of a mail: the account that submitted it, such as a login or a local user; "": it has none,
    or none is known. None: not read yet."""
    bytes: int | None = None
    """Size of a mail in bytes; None if unknown."""
    error: str = ""
    """Error of the last attempt, cleaned by the store."""
    lease: Lease | None = None
    rev: str = ""
    """Revision: changes with every change of the stored task; "" if it is not stored yet."""
    extra: Mapping[str, str] = EMPTY
    """Other values to show. A dead task may have `dead_since` (epoch seconds) and `dead_reason`."""
    data: str | None = None
    """Its data, to change it, in the format's own form. A scan reads none: None keeps the data."""

    def __hash__(self) -> int:
        """Of the fields before `extra`: a mapping has none."""
        return hash(self[:-2])


NO_MAIL_FIELDS: tuple[str, tuple[str, ...], str | None, int | None] = ("", (), "", None)
"""`sender`, `recipients`, `account` and `bytes` of a task that is no mail."""


def own_word(task: Task, states: Mapping[State, str], words: Mapping[str, State] = {}) -> str:
    """The store's word for a task's state: the finer one (`Store.words`) if there is one."""
    if words.get(task.word) is task.state:
        return task.word
    return states.get(task.state, str(task.state))


def state_words(state: State, states: Mapping[State, str], words: Mapping[str, State]) -> list[str]:
    """All words of a store for one state, the state's own word first."""
    return [states[state], *(word for word, of in words.items() if of is state)]


def count_by_words(
    counts: Mapping[State, int],
    finer: Mapping[str, int],
    states: Mapping[State, str],
    words: Mapping[str, State],
) -> dict[str, int]:
    """Count tasks by the store's own words, from counts by state and by finer word (`finer`)."""
    by_word: dict[str, int] = {}
    for state, word in states.items():
        parts = {each: finer.get(each, 0) for each in state_words(state, states, words)[1:]}
        by_word |= {word: counts.get(state, 0) - sum(parts.values()), **parts}
    return by_word


ATTEMPT_KEY = "attempt"
"""Key in `Task.extra` of a claimed task: the number of the running attempt, for stores that count
an attempt when it is claimed. `attempts` counts only attempts that have ended, in every store."""
ATTEMPTS_ALLOWED_KEY = "attempts allowed"
"""Key in `Task.extra` of a task with its own maximum number of attempts."""
STALLED_BEFORE_KEY = "stalled before"
"""Key in `Task.extra` of a task that lost its worker before, which counts no attempt: how often."""
STALLED_KEY = "stalled?"
"""Key in `Task.extra` of an active task that has lost its worker by all signs: which sign."""
ALL_RECIPIENTS_KEY = "all recipients"
"""Key in `Task.extra` of a mail from the index whose `recipients` are only the first ones: the
number of all."""
DUE_AS_STORED_KEY = "at"
"""Key in `Task.extra`: its due time in the format's own form, of which `due` is a rounded value."""
WAITS_KEY = "waits"
"""Key in `Task.extra` of a pending or held task: why it does not start, besides its due time."""


def own_description(task: Task) -> str:
    """Its description; "" if that only repeats the sender and the recipients of a mail."""
    is_repeated = task.description == f"{task.sender} to {', '.join(task.recipients)}"
    return "" if is_repeated else task.description


def count_recipients(task: Task) -> int:
    """The number of a mail's open recipients, also if the index has only the first ones."""
    number = task.extra.get(ALL_RECIPIENTS_KEY, "")
    return int(number) if number.isdecimal() else len(task.recipients)


AttemptLimit: TypeAlias = Callable[[Task], int | None]
"""Returns the maximum number of attempts of a task; None if there is none, or it is unknown."""


def attempts_allowed(task: Task, configured: int | None = None) -> int | None:
    """Maximum number of attempts of a task: its own, else the configured one."""
    allowed = task.extra.get(ATTEMPTS_ALLOWED_KEY, "")
    return int(allowed) if allowed.isdecimal() else configured


def counted_attempts(task: Task) -> int | None:
    """Attempts as the store counts them, the running one included if it does; None: unknown."""
    return int(task.extra[ATTEMPT_KEY]) if ATTEMPT_KEY in task.extra else task.attempts


class Relative(NamedTuple):
    """The parent or a child of a task."""

    id: str
    """Its id, or the store's own name for it if it is no task of this store."""
    word: str
    """Its state in the store's words; the last known one if it is gone, "" without any."""
    text: str = ""
    """The value that it returned, or the error that it failed with; the start of a long one."""
    is_here: bool = True
    """False if it is gone, or no task of this store."""
    depth: int = 1
    """1 for a child, 2 for a child of that, and so on."""


class Relatives(NamedTuple):
    """The tasks that a task waits for, and the one that waits for it."""

    parent: Relative | None = None
    children: tuple[Relative, ...] = ()
    """The first ones: failed, not ended, done ones; each before its own children."""
    total: int = 0


class ConnectedWorker(NamedTuple):
    """A worker that a server lists among its clients."""

    name: str
    """As leases name their owner; "" if it has none."""
    address: str
    """Its host as the server sees it, or the socket."""
    queues: tuple[str, ...]
    age: float
    """Seconds since it connected."""
    text: str = ""
    """What it does, instead of address, age and queues."""


class Missing(NamedTuple):
    """A task that was asked for by name and no longer exists."""

    id: str
    """With a final slash: all tasks whose ids begin with it."""


class Problem(NamedTuple):
    """Something in a store that cannot be read as a task, or is in the wrong place."""

    where: str
    """The file, row or key, in the store's own terms."""
    what: str
    """What is wrong, in words for the operator."""
    state: State | None = None
    """The state whose folder contains it, if any."""
    since: float | None = None
    """When its file last changed, in epoch seconds UTC; None if unknown."""
    quarantined_at: float | None = None
    """From when a worker moves it to quarantine, in epoch seconds UTC; None if none does."""


FOR_ALL = "; for all: "
"""In the text of a problem: the command behind it corrects all problems with the same text."""


def fold_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return problems that one command corrects as one, named by the first and their number."""
    groups: dict[str, list[Problem]] = {}
    for problem in problems:
        key = problem.what if FOR_ALL in problem.what else problem.where
        groups.setdefault(key, []).append(problem)
    return [
        one[0]._replace(where=f"{one[0].where} and {len(one) - 1:,} more") if one[1:] else one[0]
        for one in groups.values()
    ]


class Part(NamedTuple):
    """One stored piece of a task: its file, its payload, the body of a mail."""

    name: str
    """The name to pass to `Store.read`; unique within the task."""
    where: str
    """The file, row or key."""
    size: int | None = None
    """Bytes; None if unknown."""
    facts: tuple[tuple[str, str], ...] = ()
    """Further (name, text) pairs in order; `modified` and `changed` are epoch seconds UTC."""
    refusal: str = ""
    """Why it must not be read; "" if it may be."""
    is_wire_format: bool = False
    """True if it is a mail in SMTP wire format: leading dots are doubled, a lone dot ends it."""
    errors: tuple[str, ...] = ()
    """The errors of failed attempts that it has, one line each, the latest last."""


def accept_only_now(name: str, value: object, now: float) -> str:
    """Refuse a due time in the future: another program decides when a task runs."""
    if isinstance(value, int | float) and value > now:
        return "the scheduler decides when: it can only be started now"
    return ""


class TaskBar(Protocol):
    """Type of `Edge.bars`."""

    def __call__(self, task: Task, now: float, /) -> str:
        """Why this one task cannot take an edge at `now` (epoch seconds UTC), in words for the
        operator; "" if it can."""


def bar_no_task(task: Task, now: float) -> str:
    """Bar no task: the default of `Edge.bars`."""
    return ""


class TaskTest(Protocol):
    """Type of `TaskWarning.applies`."""

    def __call__(self, task: Task, now: float, /) -> bool:
        """True for a task that the operator is warned of at `now` (epoch seconds UTC)."""


class TaskWarning(NamedTuple):
    """A warning of some tasks of a plan, shown with their number; not shown if there are none."""

    applies: TaskTest
    """Called as `Edge.bars` is, and compared as that is."""
    text: str
    """With `{count}` for the number of those tasks."""


class Edge(NamedTuple):
    """A state change that a store supports: the fields it may change, a refusal, warnings."""

    fields: frozenset[str] = frozenset()
    """Names of the Task fields that may change, besides `state`."""
    refusal: str = ""
    """Why it is refused now; "" if it is allowed."""
    warning: str = ""
    """Shown to the operator before confirming."""
    undoable: bool = True
    value_problem: Callable[[str, object, float], str] = lambda name, value, now: ""
    """Checks a new value of a field: (field name, value, epoch seconds UTC) -> what is wrong with
    it, in words for the operator; "" if it is valid."""
    exact: bool = True
    """False if the change is a request to a server, without compare-and-swap: it decides."""
    bars: TaskBar = bar_no_task
    """Plans exclude a task that it bars, and `Store.swap` refuses it. Called from any thread, also
    after the store is closed, so it reads nothing. Two that decide the same are equal: else the
    console would see changed edges at each scan."""
    verbs: tuple[tuple[str, str], ...] = ()
    """Verbs that do more along this edge than change the task, each with its own warning; verbs
    with `is_named` are offered only where they are here."""
    shared_field: str = ""
    """The name of a task field: the change also affects all other tasks with the same value there,
    such as those of one message. A plan adds them as rows. "": only the task itself."""
    warnings: tuple[TaskWarning, ...] = ()
    """Further warnings, each for those tasks of a plan to which it applies."""
    limit: int | None = None
    """The most tasks that a plan may change along it; None: any number."""
    instead: str = ""
    """What to use for more tasks."""
    renames: bool = False
    """True if the change gives a task another id, which `ChangeableStore.find_new_ids` finds."""


Edges: TypeAlias = Mapping[tuple[State | None, State | None], Edge]
"""From state and to state -> edge. None as from state: a new task; as to state: a deletion."""


class TaskCounts(NamedTuple):
    """The number of all tasks at one moment, counted without reading them."""

    states: Mapping[State, int]
    words: Mapping[str, int]
    """By those of the store's words that are finer than a state."""


class DueTasks(NamedTuple):
    """Some tasks that may run now."""

    number: int
    oldest: float
    """Creation time of the oldest, epoch seconds UTC."""


class ChangeSource(NamedTuple):
    """How to learn that a store has changed and must be scanned again."""

    paths: tuple[str, ...] = ()
    """Folders in which a file event occurs when a task moves."""
    wait: Callable[[float], Collection[str] | None] | None = None
    """For a store without folders: block up to so many seconds, then return the names of what has
    changed since the last call (or since opening), as a scan accepts them. An empty collection
    means no change; None means that something unknown changed: do a full scan."""
    rescan_seconds: float = 60.0
    """Seconds between full scans, even if no change is reported."""
    scan_cost: float = 0.0
    """Seconds for which the last full scan kept the store's disk or server busy; 0 if unknown. Full
    scans are spaced by this or by their CPU time, whichever is more."""
    next_due: float | None = None
    """Epoch seconds UTC when the next waiting task is due, as far as the last `take` knows."""
    revisions: Callable[[], Iterator[tuple[str, State, str]]] | None = None
    """Yields name, state and revision of all tasks, unsorted, without reading any; None if that
    costs as much as a full scan. The name is as a scan accepts it, and that of a task is its id."""
    counts: Callable[[], TaskCounts | None] | None = None
    """Returns the counts that the last `wait` made, None before it; None: only a scan counts."""
    can_interleave: bool = False
    """True if names can be looked up in the instance of the store whose full scan is running. For a
    name of many tasks it may then yield only those that have changed since it yielded them."""
    recheck_seconds: float = 0.0
    """Least seconds between lookups of rows on the screen of which no change was reported."""


class AttemptReport(NamedTuple):
    """What an attempt leaves besides its outcome, for stores that keep it."""

    result: str = ""
    """The value that its handler returned, as JSON; "" if it returned none."""
    trace: str = ""
    """The stack trace of its failure, or the output of its program."""


class Move(NamedTuple):
    """A change of a task: its scanned value, None if it is new; and the new one, None to delete."""

    old: Task | None
    new: Task | None
    image: bytes = b""
    """Bytes to store for `new`, as `Store.read` once returned them; empty: the store formats the
    task itself. With an image, any field may change."""
    report: AttemptReport | None = None
    """Of the attempt that ends with this move, see `ClaimRules.keeps_reports`."""


class Outcome(NamedTuple):
    """The result of a move."""

    move: Move
    rev: str = ""
    """The new revision; "" if the task was deleted or nothing changed."""
    error: Exception | None = None
    """Why nothing changed; None if the change is done and durable."""
    note: str = ""
    """How far a request has come (`Edge.exact`), or how it is known that it is done; "" if there is
    nothing to say."""


class Verdict(StrEnum):
    """State of a queue lock according to the evidence."""

    FREE = "free"
    HELD = "held"
    STALE = "stale"
    """Its holder no longer exists."""
    STUCK = "stuck"
    """Its holder is alive, but has sent no heartbeat for longer than the threshold."""
    UNKNOWN = "unknown"


class LockEvidence(NamedTuple):
    """A verdict on a queue lock and the facts behind it."""

    verdict: Verdict
    pid: int | None = None
    since: float | None = None
    """Epoch seconds UTC of the last heartbeat, which the holder renews while it works."""
    age: float = 0.0
    """Seconds since then, when the lock was examined."""
    reason: str = ""
    """The verdict as text."""
    signal_refusal: str = ""
    """Why the holder must not be signalled; "" only if it is proven, or there is no process."""
    facts: tuple[tuple[str, str], ...] = ()
    """Findings as (name, text) pairs in display order."""
    identity: str = ""
    """Identity of the lock: changes whenever its holder changes; "free" if there is no lock."""
    holders: tuple[int, ...] = ()
    """PIDs to end to free the lock, in this order, if `signal_refusal` is ""."""
    is_proven: bool = True
    """True if the verdict is based on kernel facts, not on times alone."""
    limit: float = 0.0
    """Seconds without a heartbeat after which the holder counts as stuck; 0 if unknown."""
    contradiction: str = ""
    """Two facts that make the verdict unsure, as a heartbeat before the process start; or ""."""
