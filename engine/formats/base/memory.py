"""The in-memory reference store: tasks in a dictionary, with all promises of the Store protocol."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any, TypeAlias

from engine import policy
from engine.model import (
    NO_MAIL_FIELDS,
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
from engine.override import override
from engine.store import (
    MAX_PART_BYTES,
    ClaimFilter,
    Gone,
    Store,
    StoreError,
    Unsupported,
    accept_all,
    require_edge,
)
from engine.text.typed_json import to_json

RECENT_CHANGES = 1000
"""Changed ids that are kept for listeners; after more changes a full scan is needed."""

TaskKey: TypeAlias = tuple[str, str]
"""A queue and an id."""


class MemoryTasks:
    """The tasks that several memory stores share, with a condition that signals changes."""

    def __init__(self) -> None:
        self.tasks: dict[TaskKey, Task] = {}
        self.condition = threading.Condition()
        self.change_count = 0
        self.recent_ids: deque[str] = deque(maxlen=RECENT_CHANGES)
        """Ids of the latest changes, oldest first."""

    def put(self, key: TaskKey, task: Task | None) -> str:
        """Store or remove one task and notify listeners, with `changed` held; return the new
        revision."""
        self.change_count += 1
        self.recent_ids.append(key[1])
        self.condition.notify_all()
        if task is None:
            self.tasks.pop(key, None)
            return ""
        rev = f"{self.change_count:x}"
        lease = task.lease if task.state is State.ACTIVE else None
        self.tasks[key] = task._replace(rev=rev, lease=lease)
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
    (State.PENDING, State.DONE): Edge(),
    (State.DEAD, State.HELD): Edge(),
    (State.HELD, State.DEAD): Edge(),
    (State.HELD, State.HELD): Edge(frozenset({"due", "description"})),
    (State.PENDING, State.HELD): Edge(),
    (State.HELD, State.PENDING): Edge(frozenset({"due"})),
    (State.DEAD, State.PENDING): Edge(frozenset({"attempts", "due", "error"})),
    (State.DEAD, State.TRASH): Edge(),
    (State.PENDING, State.TRASH): Edge(),
    (State.HELD, State.TRASH): Edge(),
    (State.DONE, State.PENDING): Edge(frozenset({"attempts", "due", "error"})),
    (State.DONE, State.TRASH): Edge(),
    (State.TRASH, State.DONE): Edge(),
    (State.TRASH, State.DEAD): Edge(),
    (State.TRASH, State.PENDING): Edge(),
    (State.TRASH, State.HELD): Edge(),
    (State.DEAD, None): Edge(undoable=False),
    (State.DONE, None): Edge(undoable=False),
    (State.TRASH, None): Edge(undoable=False),
}

_NO_MAIL: dict[str, Any] = dict(
    zip(("sender", "recipients", "account", "bytes"), NO_MAIL_FIELDS, strict=True)
)
_OWN_FIELDS = ("state", "lease", "rev", "data")
"""The fields of a task that are not in its JSON image."""


class MemoryStore(Store):
    """A store of tasks in memory; instances that share a `MemoryTasks` act as rivals."""

    states: Mapping[State, str] = {state: str(state) for state in State}
    edges = EDGES

    def __init__(
        self,
        memory: MemoryTasks | None = None,
        order: Callable[[Task], Any] = attrgetter("id"),
        lease_seconds: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`order`: sort key for claiming due tasks; ties go by arrival. `lease_seconds`: how long
        a claim lasts unless it is renewed; None: until its worker ends."""
        self._memory = memory or MemoryTasks()
        self._order, self._lease_seconds, self._clock = order, lease_seconds, clock
        self._seen_count = self._memory.change_count
        self.changes = ChangeSource(wait=self._wait)

    @override
    def scan(self, touched: Collection[str] | None = None) -> Iterator[Task | Missing | Problem]:
        with self._memory.condition:
            tasks = sorted(self._memory.tasks.values(), key=lambda t: (t.queue, t.id))
        if touched is None:
            self.expected_tasks = len(tasks)
            for state in self.states:
                yield from (task for task in tasks if task.state is state)
            return
        yield from (t for t in tasks if t.id in touched or self.states[t.state] in touched)
        known_names = {task.id for task in tasks} | set(self.states.values())
        yield from (Missing(name) for name in touched if name not in known_names)

    @override
    def parts(self, task: Task) -> Iterator[Part]:
        yield Part("task", f"{task.queue}/{task.id}".lstrip("/"), len(self.read(task)))

    @override
    def read(self, task: Task, part: str = "") -> bytes:
        if part not in ("", "task"):
            raise Gone(f"{task.id} has no part {part!r}")
        now = self._require_unchanged(task)
        none = now._replace(**_NO_MAIL)
        fields = {
            name: value
            for name, value in to_json(now).items()
            if name not in _OWN_FIELDS and (name not in _NO_MAIL or now != none)
        }
        return json.dumps(fields).encode()[:MAX_PART_BYTES]

    @override
    def restore_image(self, task: Task, image: bytes, state: State) -> Task:
        try:
            was = json.loads(image)
            if was["id"] != task.id:
                raise Unsupported(f"the image is not of {task.id}")
            if "recipients" in was:
                was["recipients"] = tuple(was["recipients"])
            return task._replace(**{**_NO_MAIL, **was}, state=state, lease=None)
        except (ValueError, KeyError, TypeError) as error:
            raise Unsupported(f"not the image of a task: {error}") from error

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        for _ in range(limit):
            task = self._claim_next(now, owner, wants)
            if task is None:
                return
            yield task

    def _claim_next(self, now: float, owner: str, wants: ClaimFilter) -> Task | None:
        with self._memory.condition:
            line = sorted(self._memory.tasks.items(), key=lambda item: self._order(item[1]))
            for key, task in line:
                waiting = task.state is State.PENDING and policy.is_due(task, now)
                if waiting and wants(task.kind, task.group):
                    until = None if self._lease_seconds is None else now + self._lease_seconds
                    lease = Lease(owner, now, until)
                    claimed = task._replace(state=State.ACTIVE, lease=lease)
                    return claimed._replace(rev=self._memory.put(key, claimed))
        return None

    @override
    def renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        is_forever = self._lease_seconds is None
        return super().renew(tasks, until) if is_forever else self._renew(tasks, until)

    def _renew(self, tasks: Iterable[Task], until: float) -> Iterator[Outcome]:
        for task in tasks:
            try:
                with self._memory.condition:
                    lease = self._require_unchanged(task).lease
                    if lease is None:
                        raise Gone(f"{task.id} is not claimed")
                    renewed = task._replace(lease=lease._replace(until=until))
                    rev = self._memory.put((task.queue, task.id), renewed)
                yield Outcome(Move(task, renewed._replace(rev=rev)), rev)
            except Gone as error:
                yield Outcome(Move(task, task), error=error)

    def _swap(self, move: Move) -> str:
        old, new, image = move[:3]
        require_edge(self.edges, old, new, self._clock(), whole=bool(image))
        with self._memory.condition:
            if old is not None:
                self._require_unchanged(old)
                return self._memory.put((old.queue, old.id), new)
            assert new is not None
            key = new.queue, new.id
            if key in self._memory.tasks:
                raise Gone(f"{new.id} is there already")
            return self._memory.put(key, new)

    def _require_unchanged(self, task: Task) -> Task:
        now = self._memory.tasks.get((task.queue, task.id))
        if now is None or now.rev != task.rev:
            raise Gone(task.id)
        return now

    @override
    def swap_all(self, moves: Iterable[Move]) -> Iterator[Outcome]:
        for move in moves:
            try:
                yield Outcome(move, self._swap(move))
            except StoreError as error:
                yield Outcome(move, error=error)

    def _wait(self, seconds: float) -> Collection[str] | None:
        memory = self._memory
        with memory.condition:
            memory.condition.wait_for(lambda: memory.change_count != self._seen_count, seconds)
            missed, self._seen_count = memory.change_count - self._seen_count, memory.change_count
            if missed > len(memory.recent_ids):
                return None
            return set(islice(reversed(memory.recent_ids), missed))
