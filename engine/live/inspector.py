"""The asynchronous interface to one store and its index: queries, changes, plans and undo.

The event loop never waits here for a disk, a socket or a lock: every call runs on a thread with its
own instance of the store, or its own reader of the index.
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
from engine.live.call_thread import CallThread, post_call
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

REPORT_PERIOD_SECONDS, FIRST_SCAN_PERIOD_SECONDS = 0.1, 0.25
"""Minimum seconds between two reports of changes; the second while the first scan runs."""
CLOSE_TIMEOUT_SECONDS = 1.0
"""Seconds to wait for a thread to end, before it is abandoned."""
SEARCH_COST_FACTOR = 4
"""After changes, a search is repeated no sooner than after so many times its own duration."""
AGE_ROUNDING_SECONDS = 5.0
"""Seconds: a search by age uses a time rounded down to this, so that its result can be reused."""


class Inspector:
    """One store for the console: followed, searched and changed."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        clock: Callable[[], float] = time.time,
        folder: str | None = None,
        journal: Journal | None = None,
        quota: int | None = None,
    ) -> None:
        """`folder` is the parent of the index's temporary folder; None: chosen by free space.

        `journal` records operations; None: no journal. `quota` is the maximum bytes of the trash;
        None: no limit.
        """
        self._open_store = open_store
        self._clock = clock
        self._sync = IndexSync(open_store, folder, self._on_change)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        self._reported, self._reported_at = -1, 0.0
        self._closed = False
        self._windows = QueryThread("spooldeck-windows", self._sync)
        self._searches = QueryThread("spooldeck-searches", self._sync)
        self._tallies = CachedQueries("spooldeck-tallies", self._sync)
        self._threads: set[QueryThread | CallThread] = set()
        self._search: Query | None = None
        self._search_earliest = 0.0
        self._acting = CallThread("spooldeck-acting")
        self._journal, self._quota = journal, quota
        self._reading = CallThread("spooldeck-reading")

    async def start(self) -> None:
        """Start to follow the store on its threads; does not wait."""
        self._loop = asyncio.get_running_loop()
        self._sync.start()

    async def close(self) -> None:
        """End all threads and remove the index; a thread that hangs is abandoned."""
        self._closed = True
        self._sync.stop()
        self._wake()
        lanes: list[CallThread | QueryThread | CachedQueries] = [
            self._windows,
            self._searches,
            self._tallies,
        ]
        lanes += [self._acting, self._reading, *self._threads]
        await asyncio.gather(
            self._wait_for_sync_end(), *(lane.close(CLOSE_TIMEOUT_SECONDS) for lane in lanes)
        )
        if not self._sync.has_ended:
            await asyncio.to_thread(self._sync.remove_scratch)

    async def _wait_for_sync_end(self) -> None:
        if self._loop is None:
            return
        deadline = self._loop.time() + CLOSE_TIMEOUT_SECONDS
        while not self._sync.has_ended and self._loop.time() < deadline:
            await self._next_change(deadline - self._loop.time())

    # ---- state

    @property
    def states(self) -> Mapping[State, str]:
        """The store's names of its states; empty until it is open."""
        return self._sync.states

    @property
    def words(self) -> Mapping[str, State]:
        """The store's words that are finer than a state; empty until it is open."""
        return self._sync.words

    @property
    def edges(self) -> Edges:
        """The transitions that the store allows now; empty until it is open."""
        return self._sync.edges

    @property
    def controls(self) -> Mapping[str, Control]:
        """The store's controls of the whole queue; empty until it is open."""
        return self._sync.controls

    @property
    def latest(self) -> IndexChanged:
        """The content of the store, as far as it is known now."""
        return self._sync.latest

    async def wait_for_change(self, after: int) -> IndexChanged:
        """Wait until the content is newer than a generation, and return it; at most ten times a
        second.

        Raises:
            Unavailable: the inspector was closed.
        """
        while self.latest.generation <= after:
            self._raise_if_closed()
            await self._next_change(None)
        if self.latest.generation != self._reported:
            await self._wait_for_report_time()
            self._reported, self._reported_at = self.latest.generation, self._now()
        return self.latest

    async def _wait_for_report_time(self) -> None:
        """Wait until the last report is old enough for another one."""
        while True:
            period = REPORT_PERIOD_SECONDS if self.latest.is_complete else FIRST_SCAN_PERIOD_SECONDS
            rest = self._reported_at + period - self._now()
            if rest <= 0:
                return
            await self._next_change(rest)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _raise_if_closed(self) -> None:
        if self._sync.crash is not None:
            raise self._sync.crash
        if self._closed:
            raise Unavailable("closed")

    def _on_change(self) -> None:
        """Called on the thread of `IndexSync`."""
        if self._loop is None or self._loop.is_closed():
            self._sync.stop()  # the event loop ended without `close`
        else:
            post_call(self._loop, self._wake)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _next_change(self, patience: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait([waiter], timeout=patience)
        finally:
            self._waiters.discard(waiter)

    # ---- queries

    async def window(self, query: Query, start: int, size: int) -> Window:
        """Up to `size` rows of a result, from `start` on; from an earlier row if the result is
        shorter.
        """
        empty = Window((), 0, 0, self.latest.generation)
        now = self._age_base(query)
        found = await self._ask(query, lambda r, n: r.window(query, start, size, n, now), empty)
        self._sync.set_visible(task.id for task in found.tasks)
        return found

    async def find(self, query: Query, id: str) -> int | None:
        """The position of a task in a result; None if it is not in it."""
        now = self._age_base(query)
        return await self._ask(query, lambda r, n: r.find(query, id, n, now), None)

    async def matching_ids(self, query: Query, ids: Collection[str]) -> frozenset[str]:
        """Those of these ids that match a query; one query for all."""
        nothing: tuple[Row, ...] = ()
        now = self._age_base(query)
        rows = await self._windows.ask(lambda reader: reader.rows(query, ids, now), nothing)
        return frozenset(row.id for row in rows)

    def _age_base(self, query: Query) -> float:
        """The time from which ages are measured: rounded, so that a result can be reused."""
        return (
            self._clock() // AGE_ROUNDING_SECONDS * AGE_ROUNDING_SECONDS
            if query.filter.is_relative
            else 0.0
        )

    async def task(self, id: str) -> Task | None:
        """A task by its id, in any state; None if it does not exist."""
        return await self._windows.ask(lambda reader: reader.task(id), None)

    async def problems(self) -> tuple[Problem, ...]:
        """What the store cannot read as a task, or finds in a wrong place."""
        return await self._windows.ask(lambda reader: reader.problems(), ())

    async def count(self, query: Query) -> int:
        """The number of tasks that match a query."""
        now = self._clock()
        return await self._searches.ask(lambda reader: reader.count(query, now), 0)

    async def explain(self, query: Query) -> str:
        """If nothing matches: the part of the filter that excludes all tasks, and the count without
        it.

        `age>30m leaves 0; without it 12`; "" if something matches, or the store is empty.
        """
        now = self._clock()
        return await self._searches.ask(lambda reader: reader.explain(query, now), "")

    # ---- tallies: expensive, so answered from a cache

    async def ages(self, query: Query, by: str, now: float) -> Ages:
        """Count the tasks that match a query by age and by a key of `age_table.GROUPINGS`.

        A query without a state counts the states of `age_table.UNFINISHED_STATES`.
        """
        key = ("ages", query, by)
        nothing = NO_AGES._replace(by=by)
        return await self._tallies.ask(
            key, lambda r: age_table.query_ages(r, query, by, now), nothing
        )

    async def clusters(self, query: Query) -> tuple[Cluster, ...]:
        """Group the tasks that match a query by the pattern of their last error."""
        now, nothing = self._clock(), tuple[Cluster, ...]()
        key = ("clusters", query)
        return await self._tallies.ask(
            key, lambda r: error_clusters.query_clusters(r, query, now), nothing
        )

    async def summarize_backlog(self, now: float, kinds: tuple[str, ...] = ()) -> BacklogSummary:
        """Size and age of the backlog, with counts for some kinds."""
        key = ("standing", kinds)
        return await self._tallies.ask(
            key, lambda r: backlog.summarize_backlog(r, now, kinds), BacklogSummary()
        )

    async def count_ahead(self, task: Task, now: float, by: str = backlog.BY_ID) -> int:
        """Count the due tasks that run before a task, in the order `by`."""
        key = ("ahead", task.queue, task.id, task.due, by)
        return await self._tallies.ask(key, lambda r: backlog.count_ahead(r, task, now, by), 0)

    # ---- export and reading

    async def export(self, query: Query, take: Callable[[Sequence[Task], int, int], bool]) -> int:
        """Pass all tasks that match a query to `take`, in order, as of one point in time.

        `take` is called on a thread of its own with some tasks, the number of tasks so far, and the
        total; it returns False to stop. Returns the number of tasks passed. After a cancellation,
        `take` is not called again. Exceptions of `take` are raised here.
        """
        now, asking = self._clock(), QueryThread("spooldeck-harvest", self._sync)
        over = False

        def unless_over(tasks: Sequence[Task], done: int, total: int) -> bool:
            if over or self._closed:
                return False
            return take(tasks, done, total) and not (over or self._closed)

        self._raise_if_closed()
        self._threads.add(asking)
        try:
            return await asking.ask(lambda reader: reader.export(query, unless_over, now), 0)
        finally:
            over = True
            self._threads.discard(asking)
            await asking.close(CLOSE_TIMEOUT_SECONDS)

    async def parts(self, task: Task) -> tuple[Part, ...]:
        """The parts of a task, the task itself first.

        Raises:
            Gone: the task does not exist any more.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(lambda s: tuple(s.parts(task))))

    async def read(self, task: Task, part: str = "") -> bytes:
        """The bytes of a part of a task; without a name, of the task itself.

        Raises:
            Gone: the task does not exist any more.
            Unsupported: this part cannot be read, with the reason.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(lambda s: s.read(task, part)))

    async def preview_problem(self, problem: Problem) -> bytes:
        """The first bytes of a file that cannot be read as a task.

        Raises:
            Gone: the file does not exist any more.
            Unsupported: it cannot be read, with the reason.
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(
            lambda: self._with_store(lambda s: s.preview_problem(problem))
        )

    async def _ask(self, query: Query, question: Callable[[Reader, int], T], otherwise: T) -> T:
        """Answer from the sorted index if possible; else search, but not too often."""
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
        self._search_earliest = self._now() + SEARCH_COST_FACTOR * (self._now() - began)
        return answer

    # ---- changes

    async def make_plan(
        self,
        verb: str,
        ids: Collection[str] | None,
        query: Query,
        noted: frozenset[str] = frozenset(),
    ) -> Plan:
        """Freeze a plan for all tasks that match a query, or for those of them with these ids.

        `noted` are the ids of tasks with a note.
        """
        now = self._clock()

        def freeze(reader: Reader) -> Plan:
            seen = reader.plan_rows(query, ids, now)
            return plans.freeze_rows(verb, seen, now, filter=query.filter.text, noted=noted)

        return await self._searches.ask(freeze, Plan(verb, (), now))

    async def changed_rows(self, plan: Plan) -> tuple[tuple[Row, str], ...]:
        """The rows of a plan whose task has changed, each with its present state or the change."""

        def differing(reader: Reader) -> tuple[tuple[Row, str], ...]:
            there = {row.id: row for row in reader.rows(Query(), {row.id for row in plan.rows})}
            return tuple(plans.changed_rows(plan, there))

        return await self._searches.ask(differing, ())

    async def apply_plan(
        self,
        plan: Plan,
        intent: Intent | None = None,
        *,
        told: Callable[[Mapping[RowResult, int]], None] = lambda counts: None,
        halted: Callable[[], bool] = lambda: False,
        allowed: execute.RefusalCheck = execute.always_allowed,
    ) -> Report:
        """Apply a plan on a thread of its own; every row is accounted for.

        An `intent` is written to the journal before the first task moves; an operation that cannot
        be undone runs even if that fails, because a full disk may be the reason for it. The other
        arguments are as for `execute.apply_plan`; the callables are called on that thread.

        Raises:
            Unavailable: the store cannot be reached, or the journal cannot be written; nothing was
                done.
        """
        lane = CallThread("spooldeck-operation")
        self._threads.add(lane)

        def run() -> Report:
            return self._with_store(
                lambda store: run_plan.run_journaled_plan(
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
            self._threads.discard(lane)
            self._sync.request_lookup(row.id for row in plan.rows)
            await lane.close(CLOSE_TIMEOUT_SECONDS)

    async def run_control(self, order: Order, intent: Intent | None = None) -> ControlResult:
        """Run a control on the whole queue; a full scan follows.

        An `intent` is written to the journal first.

        Raises:
            Unsupported: no such control, it is refused now, or its target or value is invalid;
                nothing was done.
            Unavailable: the store cannot be reached or failed, or the journal cannot be written.
        """
        journal, clock = self._journal, self._clock

        def run(store: Store) -> ControlResult:
            return controls.run_control(store, journal, order, intent, clock)

        try:
            return await self._acting.run(lambda: self._with_store(run))
        finally:
            self._sync.request_scan()

    async def forecast_control(self, order: Order) -> Outlook:
        """Forecast the effect of a control; an empty text if the store cannot tell.

        Raises:
            Unsupported, Unavailable: as `run_control`.
        """
        return await self._acting.run(
            lambda: self._with_store(lambda store: controls.forecast_control(store, order))
        )

    async def measure_tasks(self, plan: Plan, tell: Callable[[int, int], bool]) -> None:
        """Measure the size of a plan's tasks, batch by batch.

        `tell` is called on another thread with the bytes and the number of tasks so far; it returns
        False to stop.

        Raises:
            Unavailable: the store cannot be reached.
        """
        lane = CallThread("spooldeck-weighing")
        self._threads.add(lane)

        def run(store: Store) -> None:
            size = amount = 0
            for more, tasks in sizes.measure_tasks(store, plan.rows):
                size, amount = size + more, amount + tasks
                if self._closed or not lane.is_wanted() or not tell(size, amount):
                    return

        try:
            await lane.run(lambda: self._with_store(run))
        finally:
            self._threads.discard(lane)
            await lane.close(CLOSE_TIMEOUT_SECONDS)

    async def plan_restore(self, plan: Plan, retention: float | None) -> Plan:
        """Plan to restore tasks from the trash, each row with its target; `retention` is in days.

        Raises:
            Unavailable: the store or the journal cannot be read.
        """
        journal, now = self._journal, self._clock()
        days = float("inf") if retention is None else retention
        return await self._acting.run(
            lambda: self._with_store(lambda s: trash.plan_restore(s, journal, plan, now, days).plan)
        )

    async def trash_bytes(self) -> int:
        """Bytes of all tasks in the trash, with payloads.

        Raises:
            Unavailable: the store cannot be reached.
        """
        return await self._reading.run(lambda: self._with_store(trash.trash_bytes))

    async def operations(self, since: float = 0.0) -> tuple[Operation, ...]:
        """The operations since `since` (epoch seconds UTC), the latest first.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._journal
        if journal is None:
            return ()
        return await self._acting.run(lambda: journal.operations(since))

    async def entries(self, operation: Operation, most: int) -> tuple[Entry, ...]:
        """The first `most` rows of an operation, each with its outcome.

        Raises:
            Unavailable: the journal cannot be read.
        """
        journal = self._require_journal()
        return await self._acting.run(lambda: tuple(islice(journal.entries(operation.op), most)))

    async def plan_undo(self, operation: Operation, retention: float) -> undo.UndoPlan:
        """Plan to undo an operation; `retention` of dead tasks is in days.

        Raises:
            Unavailable: the journal or the store cannot be read.
        """
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(
            lambda: self._with_store(
                lambda s: undo.plan_undo(s, journal, operation, now, retention)
            )
        )

    async def settle_operation(self, operation: Operation) -> Settled:
        """Find the outcomes of an interrupted operation, and write them to the journal.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal cannot be written.
        """
        journal = self._require_journal()
        return await self._acting.run(
            lambda: self._with_store(lambda store: undo.settle_operation(store, journal, operation))
        )

    async def plan_rest(self, operation: Operation) -> Plan:
        """Plan to continue an interrupted operation with its unchanged rows.

        Raises:
            Unavailable: the journal or the store cannot be read, or tasks are being moved.
        """
        journal, now = self._require_journal(), self._clock()
        return await self._acting.run(
            lambda: self._with_store(lambda store: undo.plan_rest(store, journal, operation, now))
        )

    async def abandon_operation(self, operation: Operation, why: str) -> None:
        """Abandon an interrupted operation: its unchanged rows are excluded.

        Raises:
            Unavailable: the journal or the store cannot be read, or the journal cannot be written;
                or tasks are being moved.
        """
        journal = self._require_journal()
        await self._acting.run(
            lambda: self._with_store(
                lambda store: undo.abandon_operation(store, journal, operation, why)
            )
        )

    def _require_journal(self) -> Journal:
        if self._journal is None:
            raise Unavailable("this place has no journal")
        return self._journal

    async def scan_now(self) -> None:
        """Run a full scan now; returns when it has ended."""
        loop = asyncio.get_running_loop()
        looked: asyncio.Future[None] = loop.create_future()
        if self._sync.has_ended:
            return

        def done() -> None:
            if not looked.done():
                looked.set_result(None)

        self._sync.scan_now(partial(post_call, loop, done))
        await looked

    def stop_first_scan(self) -> None:
        """Stop the first full scan; `scan_now` restarts it."""
        self._sync.stop_first_scan()

    def _with_store(self, use: Callable[[Store], T]) -> T:
        """Call `use` with a new instance of the store: files below an old one may have been
        replaced.
        """
        store = self._open_store()
        try:
            return use(store)
        finally:
            store.close()
