"""A store and its index made asynchronous: what a screen asks, and how it learns of changes.

The event loop never waits here for a disk, a socket or a lock: everything is asked on threads, each
with its own instance of the store or its own reader of the index.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from engine.index import age_table, backlog, error_clusters
from engine.index.age_table import NO_AGES, Ages
from engine.index.backlog import BacklogSummary
from engine.index.error_clusters import Cluster
from engine.index.reader import Reader
from engine.index.schema import Query, Window
from engine.live.call_thread import CallThread, post
from engine.live.index_sync import IndexChanged, IndexSync
from engine.live.query_threads import CachedQueries, QueryThread
from engine.model import Edges, Part, Problem, State, Task
from engine.operations import controls, execute, plans, run_plan, sizes, trash, undo
from engine.operations.controls import ControlResult, Order
from engine.operations.execute import Report, RowResult
from engine.operations.journal import Entry, Intent, Journal, Operation
from engine.operations.plans import Plan, Row
from engine.operations.undo import Settled
from engine.store import Control, Outlook, Store, Unavailable

__all__ = ["IndexChanged", "Inspector"]

T = TypeVar("T")

PERIOD, FILLING = 0.1, 0.25
"""Seconds between two reports of changes, at least; the second while the first look runs."""
PATIENCE = 1.0
"""Seconds that a thread may take to end, before it is left to itself."""
SPARING = 4
"""A search is not made again because of changes before so many times its own duration."""
AGEING = 5.0
"""Seconds for which a search by age stays as it was found, where nothing else changes."""


class Inspector:
    """What the operator looks at: one store, followed, searched and acted on."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        clock: Callable[[], float] = time.time,
        folder: str | None = None,
        journal: Journal | None = None,
        quota: int | None = None,
    ) -> None:
        """`folder` is where the index's temporary folder is made; None: where there is room.

        `journal` is where what is done is written down; None where that is kept nowhere.
        `quota` is how many bytes the trash takes; None: any.
        """
        self._open_store = open_store
        self._clock = clock
        self._mirror = IndexSync(open_store, folder, self._news)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._told, self._told_at = -1, 0.0
        self._closed = False
        self._windows = QueryThread("spooldeck-windows", self._mirror)
        self._searches = QueryThread("spooldeck-searches", self._mirror)
        self._tallies = CachedQueries("spooldeck-tallies", self._mirror)
        self._harvests: set[QueryThread | CallThread] = set()
        self._search: Query | None = None
        self._search_earliest = 0.0
        self._acting = CallThread("spooldeck-acting")
        self._journal, self._quota = journal, quota
        self._reading = CallThread("spooldeck-reading")

    async def start(self) -> None:
        """Open the store and begin to follow it, on its threads; returns at once."""
        self._loop = asyncio.get_running_loop()
        self._mirror.start()

    async def close(self) -> None:
        """End all threads and remove the index; one that hangs is left to itself."""
        self._closed = True
        self._mirror.stop()
        self._wake()
        lanes: list[CallThread | QueryThread | CachedQueries] = [
            self._windows,
            self._searches,
            self._tallies,
        ]
        lanes += [self._acting, self._reading, *self._harvests]
        await asyncio.gather(self._mirror_ended(), *(lane.close(PATIENCE) for lane in lanes))
        if not self._mirror.ended:
            await asyncio.to_thread(self._mirror.remove_scratch)

    async def _mirror_ended(self) -> None:
        if self._loop is None:
            return
        deadline = self._loop.time() + PATIENCE
        while not self._mirror.ended and self._loop.time() < deadline:
            await self._next_news(deadline - self._loop.time())

    # ---- what is known

    @property
    def states(self) -> Mapping[State, str]:
        """The store's states by its own words; empty until it is open."""
        return self._mirror.states

    @property
    def words(self) -> Mapping[str, State]:
        """The store's own words that are finer than a state; empty until it is open."""
        return self._mirror.words

    @property
    def edges(self) -> Edges:
        """What may be done there now; empty until it is open."""
        return self._mirror.edges

    @property
    def controls(self) -> Mapping[str, Control]:
        """What can be done there to the queue as a whole; empty until it is open."""
        return self._mirror.controls

    @property
    def latest(self) -> IndexChanged:
        """What the store holds, as far as is known now."""
        return self._mirror.latest

    async def changed(self, after: int) -> IndexChanged:
        """What the store holds, once that is newer than a generation; at most ten times a second.

        Raises:
            Unavailable: the inspector was closed.
        """
        while self.latest.generation <= after:
            self._raise_if_over()
            await self._next_news(None)
        if self.latest.generation != self._told:
            await self._breathe()
            self._told, self._told_at = self.latest.generation, self._now()
        return self.latest

    async def _breathe(self) -> None:
        """Wait until the last report is old enough for another."""
        while True:
            period = PERIOD if self.latest.complete else FILLING
            rest = self._told_at + period - self._now()
            if rest <= 0:
                return
            await self._next_news(rest)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _raise_if_over(self) -> None:
        if self._mirror.crash is not None:
            raise self._mirror.crash
        if self._closed:
            raise Unavailable("closed")

    def _news(self) -> None:
        """Called on the mirror's thread."""
        if self._loop is None or self._loop.is_closed():
            self._mirror.stop()  # whoever it was for has left without closing
        else:
            post(self._loop, self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _next_news(self, patience: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=patience)
        finally:
            self._waiters.discard(waiter)

    # ---- questions

    async def window(self, query: Query, start: int, size: int) -> Window:
        """Up to `size` rows of a result, from `start` on or from where it still has as many."""
        empty = Window((), 0, 0, self.latest.generation)
        now = self._moment(query)
        found = await self._ask(query, lambda r, n: r.window(query, start, size, n, now), empty)
        self._mirror.show(task.id for task in found.tasks)
        return found

    async def find(self, query: Query, id: str) -> int | None:
        """At which place of a result a task stands; None when it is not in it."""
        now = self._moment(query)
        return await self._ask(query, lambda r, n: r.find(query, id, n, now), None)

    async def among(self, query: Query, ids: Collection[str]) -> frozenset[str]:
        """Which of these tasks a query matches: one question, however many they are."""
        nothing: tuple[Row, ...] = ()
        now = self._moment(query)
        rows = await self._windows.ask(lambda reader: reader.rows(query, ids, now), nothing)
        return frozenset(row.id for row in rows)

    def _moment(self, query: Query) -> float:
        """What ages are measured from: the same for some seconds, so that a result lasts."""
        return self._clock() // AGEING * AGEING if query.filter.relative else 0.0

    async def task(self, id: str) -> Task | None:
        """A task by its id, wherever it stands; None when it is nowhere."""
        return await self._windows.ask(lambda reader: reader.task(id), None)

    async def problems(self) -> tuple[Problem, ...]:
        """What in the store cannot be read as a task, or stands where it should not."""
        return await self._windows.ask(lambda reader: reader.problems(), ())

    async def count(self, query: Query) -> int:
        """How many tasks a query matches."""
        now = self._clock()
        return await self._searches.ask(lambda reader: reader.count(query, now), 0)

    async def explain(self, query: Query) -> str:
        """Where nothing matches, which part of the filter left nothing, and what it would leave.

        `age>30m leaves 0; without it 12`; "" where something matches, or nothing is there at all.
        """
        now = self._clock()
        return await self._searches.ask(lambda reader: reader.explain(query, now), "")

    # ---- tallies: of everything, and so not all the time

    async def ages(self, query: Query, by: str, now: float) -> Ages:
        """How old the tasks are that a query matches, by a key of `ages.BY`.

        A query without a state means all that nobody works on and that is not over.
        """
        key = ("ages", query, by)
        nothing = NO_AGES._replace(by=by)
        return await self._tallies.ask(key, lambda r: age_table.ask(r, query, by, now), nothing)

    async def clusters(self, query: Query) -> tuple[Cluster, ...]:
        """What the last errors of the tasks that a query matches have in common."""
        now, nothing = self._clock(), tuple[Cluster, ...]()
        key = ("clusters", query)
        return await self._tallies.ask(key, lambda r: error_clusters.ask(r, query, now), nothing)

    async def standing(self, now: float, kinds: tuple[str, ...] = ()) -> BacklogSummary:
        """How much work waits, and for how long; and how much of each of some kinds."""
        key = ("standing", kinds)
        return await self._tallies.ask(
            key, lambda r: backlog.standing(r, now, kinds), BacklogSummary()
        )

    async def ahead(self, task: Task, now: float, by: str = backlog.BY_ID) -> int:
        """How many tasks that are due come before a task, which are taken in that order."""
        key = ("ahead", task.queue, task.id, task.due, by)
        return await self._tallies.ask(key, lambda r: backlog.ahead(r, task, now, by), 0)

    # ---- in full

    async def harvest(self, query: Query, take: Callable[[Sequence[Task], int, int], bool]) -> int:
        """Hand over all that a query matches, in its order, as it is at one moment.

        `take` is called on a thread of its own with some tasks, how many there were up to and with
        these, and how many there are; it answers False to end. Answers how many were handed over;
        when this is cancelled, `take` is not called again. What `take` raises is raised here.
        """
        now, asking = self._clock(), QueryThread("spooldeck-harvest", self._mirror)
        over = False

        def unless_over(tasks: Sequence[Task], done: int, total: int) -> bool:
            if over or self._closed:
                return False
            return take(tasks, done, total) and not (over or self._closed)

        self._raise_if_over()
        self._harvests.add(asking)
        try:
            return await asking.ask(lambda reader: reader.harvest(query, unless_over, now), 0)
        finally:
            over = True
            self._harvests.discard(asking)
            await asking.close(PATIENCE)

    async def parts(self, task: Task) -> tuple[Part, ...]:
        """What there is of a task, the task itself first.

        Raises:
            Gone: it is not there any more.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(lambda s: tuple(s.parts(task))))

    async def read(self, task: Task, part: str = "") -> bytes:
        """A part of a task as its store holds it; without a name the task itself.

        Raises:
            Gone: it is not there any more.
            Unsupported: that part is not to be read, with the reason.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(lambda s: s.read(task, part)))

    async def glimpse(self, problem: Problem) -> bytes:
        """The first bytes of what cannot be read as a task.

        Raises:
            Gone: it is not there any more.
            Unsupported: there is nothing in it that could be read, with the reason.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(lambda s: s.glimpse(problem)))

    async def _ask(self, query: Query, question: Callable[[Reader, int], T], otherwise: T) -> T:
        """Ask where the answer is at hand; else search for it, and not all the time."""
        generation = self.latest.generation
        at_hand = await self._windows.ask(
            lambda r: [question(r, generation)] if r.is_listed(query) else [], [otherwise]
        )
        if at_hand:
            return at_hand[0]
        if query == self._search:
            await asyncio.sleep(max(0.0, self._search_earliest - self._now()))
        generation, began = self.latest.generation, self._now()
        answer = await self._searches.ask(lambda r: question(r, generation), otherwise)
        self._search = query
        self._search_earliest = self._now() + SPARING * (self._now() - began)
        return answer

    # ---- acting

    async def plan(
        self,
        verb: str,
        ids: Collection[str] | None,
        query: Query,
        noted: frozenset[str] = frozenset(),
    ) -> Plan:
        """Freeze what to do, to all that a query matches or to those of it that have these ids.

        `noted` are the ids of tasks with a note.
        """
        now = self._clock()

        def freeze(reader: Reader) -> Plan:
            seen = reader.seen(query, ids, now)
            return plans.frozen(verb, seen, now, filter=query.filter.text, noted=noted)

        return await self._searches.ask(freeze, Plan(verb, (), now))

    async def drift(self, plan: Plan) -> tuple[tuple[Row, str], ...]:
        """The rows of a plan whose task is not as it was seen, each with how it is now."""

        def differing(reader: Reader) -> tuple[tuple[Row, str], ...]:
            there = {row.id: row for row in reader.rows(Query(), {row.id for row in plan.rows})}
            return tuple(plans.differ(plan, there))

        return await self._searches.ask(differing, ())

    async def apply(
        self,
        plan: Plan,
        intent: Intent | None = None,
        *,
        told: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
        halted: Callable[[], bool] = lambda: False,
        allowed: execute.Allowed = execute.freely,
    ) -> Report:
        """Carry a plan out, on a thread of its own; every row of it is accounted for.

        With an `intent` it is written down before the first task moves; what cannot be taken back
        is done even if that is impossible, because a full disk may be why it is done. The rest are
        as for `operations.apply`, and called on that thread.

        Raises:
            Unavailable: the store cannot be reached, or nothing can be written down; nothing was
                done.
        """
        lane = CallThread("spooldeck-operation")
        self._harvests.add(lane)

        def run() -> Report:
            return self._with_store(
                lambda store: run_plan.carry_out(
                    store,
                    self._journal,
                    plan,
                    intent,
                    self._clock,
                    told=told,
                    halted=lambda: self._closed or halted(),
                    allowed=allowed,
                    quota=self._quota,
                )
            )

        try:
            return await lane.run(run)
        finally:
            self._harvests.discard(lane)
            self._mirror.touch(row.id for row in plan.rows)
            await lane.close(PATIENCE)

    async def control(self, order: Order, intent: Intent | None = None) -> ControlResult:
        """Do something to the queue as a whole; all of it is looked at again after that.

        With an `intent` it is written down before it is done.

        Raises:
            Unsupported: there is no such control, it is refused now, or not with this target or
                value; nothing was done.
            Unavailable: the store cannot be reached or could not do it, or nothing can be written
                down.
        """
        journal, clock = self._journal, self._clock

        def run(store: Store) -> ControlResult:
            return controls.carry_out(store, journal, order, intent, clock)

        try:
            return await self._acting.run(lambda: self._with_store(run))
        finally:
            self._mirror.everything()

    async def would(self, order: Order) -> Outlook:
        """What a control would do now; without words where the store cannot tell.

        Raises:
            Unsupported, Unavailable: as `control`.
        """
        return await self._acting.run(
            lambda: self._with_store(lambda store: controls.would(store, order))
        )

    async def weigh(self, plan: Plan, tell: Callable[[int, int], bool]) -> None:
        """Find out how much the tasks of a plan take up, some after others.

        `tell` is called on another thread with the bytes and how many tasks there were so far, and
        answers False to end.

        Raises:
            Unavailable: the store cannot be reached.
        """
        lane = CallThread("spooldeck-weighing")
        self._harvests.add(lane)

        def run(store: Store) -> None:
            size = amount = 0
            for more, tasks in sizes.weigh(store, plan.rows):
                size, amount = size + more, amount + tasks
                if self._closed or not lane.wanted() or not tell(size, amount):
                    return

        try:
            await lane.run(lambda: self._with_store(run))
        finally:
            self._harvests.discard(lane)
            await lane.close(PATIENCE)

    async def restore(self, plan: Plan, retention: float | None) -> Plan:
        """A plan to restore tasks, each row with where it goes; `retention` is in days.

        Raises:
            Unavailable: the store or the journal cannot be read.
        """
        journal, now = self._journal, self._clock()
        days = float("inf") if retention is None else retention
        return await self._acting.run(
            lambda: self._with_store(lambda s: trash.restore(s, journal, plan, now, days).plan)
        )

    async def trashed(self) -> int:
        """Bytes of all that lies in the trash, with payloads.

        Raises:
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(trash.taken))

    async def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """What was done here since a moment (epoch seconds UTC), the latest first.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._journal
        if journal is None:
            return ()
        return await self._acting.run(lambda: journal.operations(since))

    async def entries(self, operation: Operation, most: int) -> tuple[Entry, ...]:
        """The first rows of an operation, each with what became of it.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._kept()
        return await self._acting.run(lambda: tuple(islice(journal.entries(operation.op), most)))

    async def undo(self, operation: Operation, retention: float) -> undo.Back:
        """The plan to take an operation back; `retention` of dead tasks is in days.

        Raises:
            Unavailable: the journal or the store cannot be read.
        """
        journal, now = self._kept(), self._clock()
        return await self._acting.run(
            lambda: self._with_store(lambda s: undo.undo(s, journal, operation, now, retention))
        )

    async def settle(self, operation: Operation) -> Settled:
        """What became of an interrupted operation, written down as far as it can be known.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal not be written.
        """
        journal = self._kept()
        return await self._acting.run(
            lambda: self._with_store(lambda store: undo.settle(store, journal, operation))
        )

    async def rest(self, operation: Operation) -> Plan:
        """The plan to go on with what an interrupted operation did not come to.

        Raises:
            Unavailable: the journal or the store cannot be read, or tasks are being moved.
        """
        journal, now = self._kept(), self._clock()
        return await self._acting.run(
            lambda: self._with_store(lambda store: undo.rest(store, journal, operation, now))
        )

    async def drop(self, operation: Operation, why: str) -> None:
        """Let an interrupted operation be over: what it did not come to is left as it is.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal not be written; or
                tasks are being moved.
        """
        journal = self._kept()
        await self._acting.run(
            lambda: self._with_store(lambda store: undo.drop(store, journal, operation, why))
        )

    def _kept(self) -> Journal:
        if self._journal is None:
            raise Unavailable("nothing is written down for this place")
        return self._journal

    async def refresh(self) -> None:
        """Look at everything now; returns when that has ended."""
        loop = asyncio.get_running_loop()
        looked: asyncio.Future[None] = loop.create_future()
        if self._mirror.ended:
            return

        def done() -> None:
            if not looked.done():
                looked.set_result(None)

        self._mirror.refresh(partial(post, loop, done))
        await looked

    def halt(self) -> None:
        """Stop the first look at everything; `refresh` begins it again."""
        self._mirror.halt()

    def _with_store(self, use: Callable[[Store], T]) -> T:
        """With a store of its own each time: what lay under an old one may have been replaced."""
        store = self._open_store()
        try:
            return use(store)
        finally:
            store.close()
