"""The reference store: tasks in a dictionary, every promise of the seam kept plainly."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from engine import policy
from engine.model import (
    ChangeSource,
    Edge,
    Edges,
    Lease,
    Missing,
    Move,
    Outcome,
    Part,
    Problem,
    State,
    Task,
)
from engine.store import (
    SHOWN,
    Control,
    Gone,
    Outlook,
    Seen,
    StoreError,
    Unsupported,
    Wants,
    anything,
    permit,
)

RECENT = 1000
"""Moves that the bell can name; after more of them at once, everything is looked at."""

Key: TypeAlias = tuple[str, str]
"""Queue and id."""


class MemoryTasks:
    """What several memory stores share: the tasks, and a bell that rings when one moves."""

    def __init__(self) -> None:
        self.tasks: dict[Key, Task] = {}
        self.changed = threading.Condition()
        self.moves = 0
        self.moved: deque[str] = deque(maxlen=RECENT)
        """The ids of the latest moves, in their order."""

    def put(self, key: Key, task: Task | None) -> str:
        """Store or remove one task and ring, while holding `changed`; answers with the revision."""
        self.moves += 1
        self.moved.append(key[1])
        self.changed.notify_all()
        if task is None:
            self.tasks.pop(key, None)
            return ""
        rev = f"{self.moves:x}"
        lease = task.lease if task.state is State.ACTIVE else None
        self.tasks[key] = replace(task, rev=rev, lease=lease)
        return rev


EDGES: Edges = {
    (None, State.PENDING): Edge(),
    (State.ACTIVE, None): Edge(undoable=False),
    (State.ACTIVE, State.DONE): Edge(),
    (State.ACTIVE, State.PENDING): Edge(frozenset({"attempts", "due", "error"})),
    (State.ACTIVE, State.DEAD): Edge(frozenset({"attempts", "due", "error"})),
    (State.ACTIVE, State.HELD): Edge(frozenset({"attempts", "due", "error"})),
    (State.PENDING, State.PENDING): Edge(frozenset({"due", "description"})),
    (State.PENDING, State.DEAD): Edge(),
    (State.DEAD, State.HELD): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.HELD): Edge(frozenset({"due", "description"})),
    (State.PENDING, State.HELD): Edge(),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    (State.DEAD, State.PENDING): Edge(frozenset({"attempts", "due", "error"})),
    (State.DEAD, State.TRASH): Edge(),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.TRASH): Edge(),
    (State.TRASH, State.DEAD): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.DEAD, None): Edge(undoable=False),
    (State.DONE, None): Edge(undoable=False),
    (State.TRASH, None): Edge(undoable=False),
}


_KEPT = (
    *("id", "kind", "created", "queue", "group", "word", "due", "attempts", "priority"),
    *("description", "destination", "payload", "error"),
)
"""The fields that a task's description of itself has, besides `extra`."""


class MemoryStore:
    """Tasks that live as long as their `Memory`; give several instances the same one for rivals."""

    states: Mapping[State, str] = {state: str(state) for state in State}
    words: Mapping[str, State] = {}
    edges = EDGES
    controls: Mapping[str, Control] = {}

    def __init__(
        self, memory: MemoryTasks | None = None, order: Callable[[Task], Any] = attrgetter("id")
    ) -> None:
        """`order` is by what those that are due are claimed, and then by arrival."""
        self._memory = memory or MemoryTasks()
        self._order = order
        self._heard = self._memory.moves
        self.doorbell = ChangeSource(wait=self._wait)
        self.expected = 0

    def look(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        """Every task in the order of state and id, or the ones named."""
        with self._memory.changed:
            there = sorted(self._memory.tasks.values(), key=lambda t: (t.queue, t.id))
        if touched is None:
            self.expected = len(there)
            for state in self.states:
                yield from (task for task in there if task.state is state)
            return
        yield from (t for t in there if t.id in touched or self.states[t.state] in touched)
        found = {task.id for task in there} | set(self.states.values())
        yield from (Missing(name) for name in touched if name not in found)

    def still(self, seen: Iterable[Seen]) -> Iterator[Task | Problem]:
        """Those that are there with this state and revision, in whatever queue."""
        wanted = list(seen)
        ids = {ident for ident, _, _ in wanted}
        with self._memory.changed:
            there = [task for task in self._memory.tasks.values() if task.id in ids]
        known = {(task.id, task.state, task.rev): task for task in there}
        yield from (known[one] for one in wanted if one in known)

    def parts(self, task: Task) -> Iterator[Part]:
        """There is nothing but the task."""
        yield Part("task", f"{task.queue}/{task.id}".lstrip("/"), len(self.read(task)))

    def size(self, task: Task) -> int:
        """What the task's own description of itself takes."""
        return len(self.read(task))

    def read(self, task: Task, part: str = "") -> bytes:
        """The task's own description of itself."""
        if part not in ("", "task"):
            raise Gone(f"{task.id} has no part {part!r}")
        now = self._current(task)
        fields = {name: getattr(now, name) for name in _KEPT} | {"extra": dict(now.extra)}
        return json.dumps(fields).encode()[:SHOWN]

    def recall(self, task: Task, image: bytes, state: State) -> Task:
        """The fields that the description names."""
        try:
            was = json.loads(image)
            if was["id"] != task.id:
                raise Unsupported(f"these bytes are not of {task.id}")
            return replace(task, **was, state=state, lease=None)
        except (ValueError, KeyError, TypeError) as error:
            raise Unsupported(f"these bytes are of no task: {error}") from error

    def glimpse(self, problem: Problem) -> bytes:
        """There is no problem here that it could be of."""
        raise Gone(problem.where)

    def take(self, now: float, owner: str, limit: int, wants: Wants = anything) -> Iterator[Task]:
        """Due tasks in their order, each claimed as it is asked for."""
        for _ in range(limit):
            task = self._claim(now, owner, wants)
            if task is None:
                return
            yield task

    def _claim(self, now: float, owner: str, wants: Wants) -> Task | None:
        with self._memory.changed:
            line = sorted(self._memory.tasks.items(), key=lambda item: self._order(item[1]))
            for key, task in line:
                waiting = task.state is State.PENDING and policy.is_due(task, now)
                if waiting and wants(task.kind, task.group):
                    lease = Lease(owner, now)
                    claimed = replace(task, state=State.ACTIVE, lease=lease)
                    return replace(claimed, rev=self._memory.put(key, claimed))
        return None

    def swap(self, old: Task | None, new: Task | None) -> str:
        """Compare and swap under the one lock that all instances share."""
        return self._swap(Move(old, new))

    def _swap(self, move: Move) -> str:
        old, new, image = move
        permit(self.edges, old, new, whole=bool(image))
        with self._memory.changed:
            if old is not None:
                self._current(old)
                return self._memory.put((old.queue, old.id), new)
            assert new is not None
            key = new.queue, new.id
            if key in self._memory.tasks:
                raise Gone(f"{new.id} is there already")
            return self._memory.put(key, new)

    def _current(self, task: Task) -> Task:
        now = self._memory.tasks.get((task.queue, task.id))
        if now is None or now.rev != task.rev:
            raise Gone(task.id)
        return now

    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        """One after the other; nothing here needs to be made durable."""
        for move in moves:
            try:
                yield Outcome(move, self._swap(move))
            except StoreError as error:
                yield Outcome(move, error=error)

    def control(self, name: str, target: str = "", value: str = "") -> str:
        """Nothing to control."""
        raise Unsupported(f"no control {name!r} here")

    def forecast(self, name: str, target: str = "", value: str = "") -> Outlook:
        """There are no controls."""
        raise Unsupported(f"no control {name!r} here")

    def close(self) -> None:
        """Nothing to let go of."""

    def _wait(self, seconds: float) -> Collection[str] | None:
        memory = self._memory
        with memory.changed:
            memory.changed.wait_for(lambda: memory.moves != self._heard, seconds)
            missed, self._heard = memory.moves - self._heard, memory.moves
            if missed > len(memory.moved):
                return None
            return set(islice(reversed(memory.moved), missed))


def opener(memory: MemoryTasks) -> Callable[[], MemoryStore]:
    """What opens further instances over the same tasks."""
    return lambda: MemoryStore(memory)
