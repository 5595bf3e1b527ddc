"""The seam: what every store of tasks promises, and the errors it answers with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias

from engine.model import (
    ChangeSource,
    Edge,
    Edges,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    State,
    Task,
)

SHOWN = 1 << 20
"""Bytes of one part of a task that are read at most, to be shown."""

GLIMPSE = 4096
"""Bytes of something broken that are read at most."""


class StoreError(Exception):
    """What a store could not do; each kind is named for what the caller can do about it."""


class Unavailable(StoreError):
    """The store as a whole cannot be reached now: try later."""


class Gone(StoreError):
    """The task is not there as it was seen: look again."""


class Full(StoreError):
    """The store takes no more tasks: make room first."""


class Unsupported(StoreError):
    """This store never does that, or not with this value."""


class Control(NamedTuple):
    """Something that can be done to a queue as a whole: pause, resume, flush, break the lock."""

    summary: str
    target: str = ""
    """What `target` names in this control; "" when it takes none."""
    value: str = ""
    """What `value` means, with its unit; "" when it takes none."""
    refused: str = ""
    """Why it is refused now; "" when it is open."""
    now: str = ""
    """The value that it has now, so that it can be set back; "" where it has none."""
    choices: tuple[tuple[str, str], ...] = ()
    """The values that it takes where those are few, each with what it means: no other is taken.
    With "" among them it can do without one."""
    bounds: tuple[int, int] | None = None
    """The least and the most of a value that is a whole number."""
    foretells: bool = False
    """Whether `Store.forecast` reports what it would do."""
    pauses: bool = False
    """Whether it is what stops and restarts the whole queue; its choices are those two: to let it
    go on, then to stop it."""

    @property
    def has_paused(self) -> bool:
        """Whether it has stopped the queue, as far as it says."""
        return self.pauses and len(self.choices) == 2 and self.now == self.choices[1][0]


class Outlook(NamedTuple):
    """What a control would do now."""

    words: str
    """One line for each thing, or one line for all of them."""
    amount: int = 1
    """How many tasks, links or files it would change."""


def anything(kind: str, group: str) -> bool:
    """Accept every task: the default of `Store.take`."""
    return True


Seen: TypeAlias = tuple[str, State, str]
"""A task as it was seen: its id, its state and its revision."""


class Store(Protocol):
    """Tasks somewhere outside, and the one way to change them.

    An instance belongs to one thread and blocks; two instances share only what they store in.
    """

    states: Mapping[State, str]
    """The states it knows, in the order of a task's life, by its own words."""
    words: Mapping[str, State]
    """Its own words that are finer than a state (`Task.word`), each with the state whose tasks it
    names a part of."""
    edges: Edges
    """What may be done here, now; may change while the store is open."""
    controls: Mapping[str, Control]
    doorbell: ChangeSource
    expected: int
    """How many tasks the whole look that goes on will say, about; 0 while that is not known."""

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Everything once as a stream, or only what is named. Never writes.

        Names are ids, names as the doorbell gave them, or a state's word for all that stand there.

        A whole look begins with a peek at some tasks of each state in any order, which come again
        in their places: each state in the order of ids.

        Raises:
            Unavailable: the store as a whole cannot be reached.
        """
        ...

    def still(self, seen: Iterable[Seen]) -> Iterator[Task | Problem]:
        """The tasks that are as they were seen; those that are not are left out.

        To be followed by their swap: a store may keep them in hand until then, or until it is asked
        again; so few at a time. A problem is of one that cannot be looked at now, by its id.

        Whoever asks is about to write: what a process that has ended left half moved of them may be
        finished or taken back by it, and is not as it was seen then.

        Raises:
            Unavailable: the store as a whole cannot be reached.
        """
        ...

    def parts(self, task: Task) -> Iterator[Part]:
        """What there is of a task; the first part is the task itself. None of them is opened.

        Raises:
            Gone: it is not there any more.
        """
        ...

    def size(self, task: Task) -> int:
        """Bytes that it takes up with what leaves together with it; nothing is opened.

        Raises:
            Gone: it is not there any more.
            Unavailable: that cannot be found out now.
        """
        ...

    def read(self, task: Task, part: str = "") -> bytes:
        """A part of a task as its store holds it, at most its first `SHOWN` bytes.

        Without a name it is the first: the task itself, in full.

        Raises:
            Gone: the task, or that part of it, is not there any more.
            Unsupported: that part is not to be read, with the reason.
        """
        ...

    def recall(self, task: Task, image: bytes, state: State) -> Task:
        """A task as it was when `read` gave these bytes of it, to stand in a state.

        With the same bytes as its image, a move puts it there as it was.

        Raises:
            Unsupported: these bytes are not of that task.
        """
        ...

    def glimpse(self, problem: Problem) -> bytes:
        """The first bytes of what cannot be read as a task, at most `GLIMPSE`.

        Raises:
            Gone: it is not there any more.
            Unsupported: there is nothing in it that could be read.
        """
        ...

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Claim up to `limit` due tasks, each as it is asked for, in the store's own order.

        `wants(kind, group)` is asked again before each claim, so that it may change its mind.
        """
        ...

    def swap(self, old: Task | None, new: Task | None) -> str:
        """Put `new` where `old` was seen, if it still is; answers with the new revision.

        Durable when it answers, but for the leaving of a task that is done: a power cut may bring
        it back, and it is done once more.

        Raises:
            Gone: the task is not there as `old` says; nothing changed.
            Unsupported: no such edge, a refused one, or a field that the edge does not name.
            Full: the store takes no more tasks.
        """
        ...

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """Many swaps in few durable steps; each outcome is yielded once it is durable."""
        ...

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Do something to the queue as a whole; answers with what happened, in words.

        Raises:
            Unsupported: there is no such control, it is refused now, or not with these words.
            Unavailable: it cannot be done now.
        """
        ...

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """What a control that `foretells` would do now. Changes nothing.

        Raises:
            Unsupported, Unavailable: as `control`.
        """
        ...

    def close(self) -> None:
        """Let go of what the instance holds; the tasks stay."""
        ...


class Wants(Protocol):
    """Whether a task of this kind and group may be claimed now."""

    def __call__(self, kind: str, group: str, /) -> bool:
        """Answer for one task, just before it would be claimed."""
        ...


GUARDED = (
    *("id", "kind", "created", "queue", "group", "due", "attempts", "priority"),
    *("description", "destination", "payload", "error"),
)
"""The fields that an edge must name before a swap may change them; the rest is the store's own."""
_values = attrgetter(*GUARDED)


def permit(edges: Edges, old: Task | None, new: Task | None, *, whole: bool = False) -> Edge:
    """The edge from `old` to `new`, if it is open and every field that differs is named by it.

    With `whole` any field may differ: what is put there is what the store itself once held.

    Raises:
        Unsupported: with the reason.
    """
    start = None if old is None else old.state
    end = None if new is None else new.state
    edge = edges.get((start, end))
    if edge is None:
        raise Unsupported(f"no way from {start or 'nothing'} to {end or 'nothing'} here")
    if edge.refused:
        raise Unsupported(edge.refused)
    if not whole and old is not None and new is not None and _values(old) != _values(new):
        changed = {f for f in GUARDED if getattr(old, f) != getattr(new, f)}
        if not changed <= edge.fields:
            names = ", ".join(sorted(changed - edge.fields))
            raise Unsupported(f"{start} to {end} may not change {names}")
    return edge
