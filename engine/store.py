"""The `Store` protocol that every storage format implements, in three parts by caller: read,
change, claim; and its errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Protocol, TypeAlias

from engine.model import (
    ChangeSource,
    Edge,
    Edges,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    Relatives,
    State,
    Task,
)
from engine.policy import RetryPolicy
from engine.values import NamedTuple

MAX_PART_BYTES = 1 << 20
"""Bytes: the most that `Store.read` returns of one part of a task."""

DATA_PART = "data"
"""The part with the data of a task, in a store with an edge that names the field `data`."""

PREVIEW_BYTES = 4096
"""Bytes: the most that is read of an unreadable file or row."""


class StoreError(Exception):
    """Base of all store errors. Each subclass is named for what the caller can do about it."""


class Unavailable(StoreError):
    """The whole store cannot be reached now: try again later."""


class Gone(StoreError):
    """The task no longer exists with that state and revision: scan again."""


class Full(StoreError):
    """The store accepts no more tasks: make room first."""


class Unsupported(StoreError):
    """This store never supports the operation, or not with this value."""


class ControlTarget(NamedTuple):
    """One thing that a control acts on, such as a queue, with its own value."""

    name: str
    now: str = ""
    """As `Control.now`."""
    refusal: str = ""
    """As `Control.refusal`."""
    bounds: tuple[int, int] | None = None
    """As `Control.bounds`."""


class Control(NamedTuple):
    """An action on a whole queue: pause, resume, flush, break the lock."""

    summary: str
    target: str = ""
    """What the argument `target` means; "" if it takes none."""
    value: str = ""
    """What the argument `value` means, with its unit; "" if it takes none."""
    refusal: str = ""
    """Why it is refused now; "" if it is allowed."""
    now: str = ""
    """The present value, to undo a change; "" if it has none."""
    choices: tuple[tuple[str, str], ...] = ()
    """The only permitted values, if few, with their meanings; with "" the value is optional."""
    bounds: tuple[int, int] | None = None
    """Minimum and maximum of a value that is a whole number."""
    no_limit: str = ""
    """The value that means no limit; "" if there is none."""
    has_forecast: bool = False
    """True if `Store.forecast` can report what it would do."""
    is_pause: bool = False
    """True if it stops and restarts the whole queue; its choices are resume, then pause."""
    targets: tuple[ControlTarget, ...] = ()
    """What it acts on, if the store knows all of it; then any other target is refused, and `now`,
    `refusal` and `bounds` are those of each. () if a target is typed, or it takes none."""

    def for_target(self, name: str) -> Control:
        """This control as it is for one of its targets; unchanged if it is not one of them."""
        for one in self.targets:
            if one.name == name:
                why, bounds = self.refusal or one.refusal, one.bounds or self.bounds
                return self._replace(now=one.now, refusal=why, bounds=bounds, targets=())
        return self

    @property
    def has_paused(self) -> bool:
        """True if this control has paused the queue, or one of its targets."""
        if not self.is_pause or len(self.choices) != 2:
            return False
        return self.choices[1][0] in (self.now, *(one.now for one in self.targets))


class Outlook(NamedTuple):
    """What a control would do now, without doing it."""

    words: str
    """One line per change, or one line for all."""
    amount: int = 1
    """How many tasks, links or files would change."""


class StoreSample(NamedTuple):
    """The number of all tasks, and some of them."""

    counts: Mapping[State, int]
    words: Mapping[str, int] | None
    """The number of tasks of each of `Store.words`; None if only a full scan can count them."""
    tasks: Iterator[Task | Problem]
    """They are read while it is iterated."""
    is_whole: bool = False
    """True if they are all tasks, and all problems."""


def accept_all(kind: str, group: str) -> bool:
    """Accept every task: the default of `Store.take`."""
    return True


SeenTask: TypeAlias = tuple[str, State, str]
"""Id, state and revision of a scanned task."""


class ReadableStore(Protocol):
    """The part of a store that shows its tasks; it never writes. For the index and the screens.

    One thread at a time uses an instance, and its methods block; each raises Unavailable if the
    whole store cannot be reached. Two instances share nothing but the files, rows or keys on which
    both work. What is not abstract is true of any store, and a format overrides what it can do
    better or cheaper."""

    states: Mapping[State, str]
    """The supported states in the order of a task's life, each with the format's own word."""
    words: Mapping[str, State] = {}
    """The format's own words that are finer than a state (`Task.word`), each with its state."""
    edges: Edges = {}
    """The supported state changes, which may change; without any, it only shows its tasks."""
    controls: Mapping[str, Control] = {}
    changes: ChangeSource = ChangeSource()
    expected_tasks: int = 0
    """Estimated number of tasks that the running full scan will yield; 0 if unknown."""

    @abstractmethod
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Yield all tasks, or only the named ones. Never writes.

        Names are task ids, names from the change source, or a state's word for all tasks in it. For
        a name of many tasks, a store may yield only those that have changed since this instance
        has yielded them all, if its change source says so (`can_interleave`).

        A full scan first yields a sample of each state in any order, then every task of each state
        in id order, the sample included."""

    def read_accounts_first(self) -> None:
        """Have each scan read accounts that a listing of its server does not have: those of some
        mails, which takes longer. Without it, `Task.account` of these mails may be None."""
        return

    def scan_failed(self, state_names: Collection[str]) -> Iterator[Task | Missing | Problem]:
        """Yield all tasks of these states that have an error; others too, if that costs less."""
        return self.scan(state_names)

    def count_tasks(self) -> Mapping[State, int]:
        """Return the number of tasks in each state, as cheaply as the format allows."""
        counts = dict.fromkeys(self.states, 0)
        for answer in self.scan(self.states.values()):
            if isinstance(answer, Task):
                counts[answer.state] += 1
        return counts

    def read_trash(self, most: int) -> bool:
        """Read at most so many tasks of the trash that `trash_bytes` would have to read, so that
        it does not take long; False if there are more. None are read where no sizes are kept."""
        return True

    def trash_bytes(self) -> int:
        """The bytes of all tasks in the trash, as `size` counts them; as cheaply as possible."""
        taken = 0
        if State.TRASH in self.states:
            for answer in self.scan({self.states[State.TRASH]}):
                if isinstance(answer, Task) and answer.state is State.TRASH:
                    with suppress(Gone):
                        taken += self.size(answer)
        return taken

    def sample(self, number: int) -> StoreSample:
        """Count the tasks, and read some of them: a few of each state in any order, then about
        `number`: the first in the order of a full scan, or those that cost least."""
        words = None if self.words else dict[str, int]()
        return StoreSample(self.count_tasks(), words, _scan_start(self, number))

    @abstractmethod
    def parts(self, task: Task) -> Iterator[Part]:
        """Yield the pieces of a task, itself first, without opening any. Raises `Gone`."""

    def size(self, task: Task) -> int:
        """Bytes used by the task and by all that is deleted with it; opens no file.

        Raises:
            Gone: the task no longer exists.
            Unavailable: the size cannot be determined now."""
        sizes = [part.size for part in self.parts(task)]
        if None in sizes:
            raise Unavailable(f"{task.id}: the size of a part is not known")
        return sum(filter(None, sizes))

    @abstractmethod
    def read(self, task: Task, part: str = "") -> bytes:
        """Read a part of a task, at most its first `MAX_PART_BYTES`.

        The default part is the first one, the task itself, which is read in full.

        Raises:
            Gone: the task or this part no longer exists.
            Unsupported: this part must not be read; the message has the reason."""

    def read_all(self, tasks: Iterable[Task]) -> Iterator[bytes | StoreError]:
        """Read the default part of many tasks; for each, in order, its bytes or why not."""
        for task in tasks:
            try:
                yield self.read(task)
            except StoreError as error:
                yield error

    def relatives(self, task: Task, limit: int) -> Relatives:
        """Read the parent of a task and at most `limit` of its children; most formats have none."""
        return Relatives()

    def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of something that cannot be read as a task, at most `PREVIEW_BYTES`.

        Raises:
            Gone: it no longer exists.
            Unsupported: there are no bytes to read."""
        raise Unsupported("there are no bytes to read")

    def close(self) -> None:
        """Release file descriptors, connections and locks; the tasks stay."""
        return


def _scan_start(store: ReadableStore, number: int) -> Iterator[Task | Problem]:
    for answer in store.scan():
        number -= store.expected_tasks > 0  # the sample of a full scan comes before this is known
        if number < 0:
            return
        if not isinstance(answer, Missing):
            yield answer


class ChangeableStore(ReadableStore, Protocol):
    """The part that changes tasks: one by one by `swap` only. For plans, undo and controls."""

    max_verified: int = 100
    """Tasks of a plan that are verified, saved with one fsync and then swapped at a time: each may
    need two file descriptors."""

    def verify(self, known_tasks: Iterable[SeenTask]) -> Iterator[Task | Problem]:
        """Yield those of the given tasks that still have the same state and revision.

        Use it just before `swap`. A store may keep the yielded tasks open (file descriptors, locks)
        until they are swapped or until the next call, so pass few at a time. A `Problem` names, by
        its id, a task that cannot be checked now.

        As the caller is about to write, this may complete or roll back a change that a dead process
        left half done; such a task then differs and is not yielded."""
        expected = set(known_tasks)
        for answer in self.scan({ident for ident, _, _ in expected}):
            if isinstance(answer, Task) and (answer.id, answer.state, answer.rev) in expected:
                yield answer

    def swap(self, old: Task | None, new: Task | None) -> str:
        """Replace `old` by `new` if `old` is unchanged (compare-and-swap); return the new revision.

        The change is durable on return. One exception: a finished task that is removed may reappear
        after a power cut, and is then run a second time. Along an edge that is not `exact`, the
        change is only requested: the server decides whether and when it happens.

        Raises:
            Gone: the task no longer matches `old`; nothing changed.
            Unsupported: no such edge, a refused edge, an edge that bars this task, or a field that
                the edge does not name.
            Full: the store accepts no more tasks.
            Unavailable: it cannot be changed now; nothing changed, unless the message says so or
                the connection to a server was cut."""
        (outcome,) = self.swap_all([Move(old, new)])
        if outcome.error is not None:
            raise outcome.error
        return outcome.rev

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Swap tasks with few fsyncs (group commit); yield each outcome when it is durable."""
        for move in moves:
            yield Outcome(move, error=Unsupported("this store only shows its tasks"))

    def find_new_ids(self, ids: Collection[str], seconds: float) -> Mapping[str, str]:
        """The new ids, by the former ones, of tasks to which a change gave another one
        (`Edge.renames`); "" for one that was changed so, and whose new id is not seen yet. Those of
        which neither is known within about so many seconds are not in it.

        Raises:
            Unavailable: they cannot be looked for now."""
        return {}

    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        """Parse an image (bytes from `read`) into the task it was, in the given state; for undo.

        A `Move` to this task with the same image restores it byte for byte.

        Raises:
            Unsupported: the image is not of this task."""
        raise Unsupported(f"{task.id}: this store restores no task")

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Run a control on the whole queue; return what happened, as text.

        Raises:
            Unsupported: no such control, it is refused now, or it does not accept these arguments.
            Unavailable: it cannot be done now."""
        raise Unsupported(f"no control {name!r} here")

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """Report what a control would do now, if its `has_forecast` is set. Changes nothing.

        Raises:
            Unsupported, Unavailable: see `control`."""
        raise Unsupported(f"no control {name!r} here that counts what it would change")


ClaimFilter: TypeAlias = Callable[[str, str], bool]
"""(kind, group) -> True if such a task may be claimed now."""

SwapAndTake: TypeAlias = Callable[
    [Sequence[Move], float, str, int, ClaimFilter], tuple[list[Outcome], list[Task]]
]
"""(moves, now, owner, limit, filter) -> outcomes and claimed tasks: store outcomes as
`Store.swap_all` does, and claim up to `limit` tasks as `Store.take` does, but maybe fewer than are
due: `take` finds the others. The outcomes are in order, without their new revisions."""


class ClaimRules(NamedTuple):
    """How a worker treats the claimed tasks of a store."""

    retry_policy: Callable[[Task], RetryPolicy | None] = lambda task: None
    """Returns a claimed task's own policy; None: the configured one."""
    read_data: Callable[[Task], bytes | None] = lambda task: None
    """Reads all data of a claimed task, None without any; raises Gone or Unavailable."""
    done_state: State | None = None
    """The state of a task that was done; None: it is deleted."""
    retry_seconds: float = 60.0
    """Seconds until a refused operation is tried again; then twice as long, up to 15 times."""
    claims_lots: bool = False
    """True if `Store.take` claims many tasks at a time: its filter is then asked for each of them
    before the first is claimed, and its limit is the number that the worker can start now."""
    swap_and_take: SwapAndTake | None = None
    """Stores outcomes and claims the next tasks in one step; None: there is no such step."""
    return_abandoned: Callable[[float], float] | None = None
    """Returns the tasks of ended workers to pending by the store's own rules, and the time at which
    it wants to be called again; both epoch seconds UTC. A busy worker calls it too. Raises
    Unavailable. None: the worker does it (`engine.work.outcomes`)."""
    keeps_reports: bool = False
    """True if the store keeps what an attempt leaves (`Move.report`)."""
    limit_ends: Callable[[], float | None] = lambda: None
    """When due tasks under a rate limit may be claimed, epoch seconds UTC, or None; raises
    Unavailable."""


class Store(ChangeableStore, Protocol):
    """A store as a format implements it, and as a worker needs it: it also claims tasks."""

    claim_rules: ClaimRules = ClaimRules()

    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        """Claim up to `limit` due tasks in the store's own order; none if other programs work.

        `wants(kind, group)` is called before each claim, so its answer may change in between.
        The revision of a claimed task may be that of its claim alone: then it changes only if the
        claim is lost, not when another client edits the task."""
        return iter(())

    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        """Extend the leases of claimed tasks to `until` (epoch seconds UTC), by compare-and-swap.

        Yield an outcome for each, in order: `move.new` is the task with its new lease and revision,
        or the error is Gone, if the claim was lost, or Unavailable, if it is not known whether the
        lease was extended: then the next call decides. Where leases cannot be extended, yield each
        task unchanged. If it raises Unavailable, no lease was extended."""
        return (Outcome(Move(task, task), task.rev) for task in tasks)


GUARDED_FIELDS = tuple(
    name for name in Task._fields if name not in ("state", "word", "lease", "rev", "extra")
)
"""The task fields that may change only if the edge names them; the store sets the others."""
_guarded_values = attrgetter(*GUARDED_FIELDS)


def enqueue_all(store: ChangeableStore, tasks: Iterable[Task]) -> Iterator[Outcome]:
    """Add new tasks in group commits (a spool: one fsync for 100); yield each durable outcome."""
    return store.swap_all(Move(None, task) for task in tasks)


def refuse_all(edges: Edges, why: str) -> Edges:
    """Return the edges, each with this refusal; unchanged if it is ""."""
    return {states: edge._replace(refusal=why) for states, edge in edges.items()} if why else edges


def require_edge(
    edges: Edges, old: Task | None, new: Task | None, now: float, *, whole: bool = False
) -> Edge:
    """Return the edge from `old` to `new` if it is open now (epoch seconds UTC), also to this task,
    and names every field that differs.

    With `whole` any field may differ: `new` comes from an image that the store itself wrote.

    Raises:
        Unsupported: with the reason."""
    start = None if old is None else old.state
    end = None if new is None else new.state
    edge = edges.get((start, end))
    if edge is None:
        raise Unsupported(f"this store has no way from {start or 'none'} to {end or 'none'}")
    if edge.refusal:
        raise Unsupported(edge.refusal)
    task = new if old is None else old
    if task is not None and (why := edge.bars(task, now)):
        raise Unsupported(why)
    if not whole and old is not None and new is not None:
        before, after = _guarded_values(old), _guarded_values(new)
        if before != after:
            pairs = zip(GUARDED_FIELDS, before, after, strict=True)
            wrong = sorted({name for name, a, b in pairs if a != b} - edge.fields)
            if wrong:
                raise Unsupported(f"moving from {start} to {end} cannot change: {', '.join(wrong)}")
    return edge
