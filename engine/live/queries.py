"""Queries of the console on the index of one store, each reader on a thread of its own."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from engine.index import age_table, backlog, error_clusters
from engine.index.age_table import NO_AGES, Ages
from engine.index.backlog import BacklogSummary
from engine.index.error_clusters import Cluster
from engine.index.freeze_plan import differing_rows, freeze_rows, read_sharing
from engine.index.reader import Reader
from engine.index.schema import CHUNK_ROWS, Query, Window
from engine.live.call_thread import CLOSE_TIMEOUT_SECONDS, CallThread
from engine.live.index_sync import IndexSync
from engine.model import DueTasks, Problem, State, Task
from engine.operations import plans
from engine.operations.plan_rows import MAX_ROWS_IN_MEMORY
from engine.operations.plans import Plan, Row
from engine.store import Unavailable
from engine.values import NamedTuple
from engine.verbs import VERBS

T = TypeVar("T")


class QueryThread:
    """A reader of the index on its own thread; a query is interrupted when its caller is
    cancelled."""

    def __init__(self, name: str, mirror: IndexSync) -> None:
        self._lane = CallThread(name, self._close_reader)
        self._sync = mirror
        self._reader: Reader | None = None
        self._path = ""

    async def ask(self, question: Callable[[Reader], T], otherwise: T) -> T:
        """Run a query; returns `otherwise` while there is no index.

        Raises:
            Unavailable: the index cannot be read."""
        try:
            return await self._lane.run(lambda: self._answer(question, otherwise))
        except asyncio.CancelledError:
            if self._reader is not None:
                self._reader.interrupt()
            raise

    async def close(self, patience: float) -> None:
        """Interrupt the running query and end the thread."""
        if self._reader is not None:
            self._reader.interrupt()
        await self._lane.close(patience)

    def _answer(self, question: Callable[[Reader], T], otherwise: T) -> T:
        while True:
            path = self._sync.path
            if not path:
                return otherwise
            try:
                return question(self._open(path))
            except sqlite3.Error as error:
                # Retry if the interrupt was for the query before, or the index was replaced.
                interrupted = "interrupt" in str(error) and self._lane.is_wanted()
                if not interrupted and path == self._sync.path:
                    raise Unavailable(f"the index in {path}: {error}") from error

    def _open(self, path: str) -> Reader:
        if self._reader is None or path != self._path:
            self._close_reader()
            self._reader, self._path = Reader(path), path
        return self._reader

    def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


SEARCH_COST_FACTOR = 4
"""After changes, a search is repeated no sooner than after so many times its own duration."""
AGE_ROUNDING_SECONDS = 5.0
"""Seconds: a search by age uses a time rounded down to this, so that its result can be reused."""
ANSWER_COST_FACTOR = 20
"""A cached answer serves for so many times the duration of its query."""
MAX_CACHED_ANSWERS = 8
MAX_ACTIVE_TASKS, MAX_COUNTED_KINDS = 200, 50


class IndexQueries:
    """The tasks of one store: lists, searches, plans and exports."""

    def __init__(self, sync: IndexSync, clock: Callable[[], float]) -> None:
        self._sync, self._clock = sync, clock
        self._windows = QueryThread("spooldeck-windows", sync)
        self._searches = QueryThread("spooldeck-searches", sync)
        self._threads: set[QueryThread] = set()
        self._search: tuple[Query, int] | None = None
        """The last search, and the generation of the index that it read."""
        self._search_earliest = 0.0
        self._closed = False

    async def close(self, seconds: float) -> None:
        """Interrupt all queries and end their threads; one that hangs is abandoned."""
        self._closed = True
        threads = (self._windows, self._searches, *self._threads)
        await asyncio.gather(*(thread.close(seconds) for thread in threads))

    async def window(self, query: Query, start: int, size: int, *, counts: bool = True) -> Window:
        """Up to `size` rows of a result, from `start` on; from an earlier row if the result is
        shorter. Without `counts`, a search may end at the last of these rows."""
        empty = Window((), 0, 0, self._sync.latest.generation)
        now = _age_base(query, self._clock)
        page = await self._ask(
            query, lambda r, n: r.window(query, start, size, n, now, counts=counts), empty
        )
        self._sync.set_visible(task.id for task in page.tasks)
        return page

    async def find(self, query: Query, id: str) -> int | None:
        """The position of a task in a result; None if it is not in it."""
        now = _age_base(query, self._clock)
        return await self._ask(query, lambda r, n: r.find(query, id, n, now), None)

    async def matching_ids(self, query: Query, ids: Collection[str]) -> frozenset[str]:
        """Those of these ids that match a query; one query for all."""
        now = _age_base(query, self._clock)
        return await self._windows.ask(
            lambda reader: frozenset(row.id for row in reader.rows(query, ids, now)), frozenset()
        )

    async def states_of(self, ids: Collection[str]) -> Mapping[str, State]:
        """The state of each of these tasks that is in the index; one query for all."""
        return await self._windows.ask(
            lambda reader: {row.id: row.state for row in reader.rows(Query(), ids)}, {}
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
        """If nothing matches, the part of the filter that excludes all tasks: `"age>30m" matches
        none; 12 without it`; also if not all recipients are searched: `searched 1,400 of 5,240
        recipients`. "" if something matches, or the store is empty."""
        now = self._clock()
        return await self._searches.ask(lambda reader: reader.explain(query, now), "")

    async def export(self, query: Query, take: Callable[[Sequence[Task], int, int], bool]) -> int:
        """Pass all tasks that match a query to `take`, in order, as of one point in time.

        `take` is called on a thread of its own with some tasks, the number of tasks so far, and the
        total; it returns False to stop. Returns the number of tasks passed. After a cancellation,
        `take` is not called again. Exceptions of `take` are raised here."""
        now, asking = self._clock(), QueryThread("spooldeck-export", self._sync)
        over = False

        def unless_over(tasks: Sequence[Task], done: int, total: int) -> bool:
            if over or self._closed:
                return False
            return take(tasks, done, total) and not (over or self._closed)

        if self._closed:
            raise Unavailable("closed")
        self._threads.add(asking)
        try:
            return await asking.ask(lambda reader: reader.export(query, unless_over, now), 0)
        finally:
            over = True
            self._threads.discard(asking)
            await asking.close(CLOSE_TIMEOUT_SECONDS)

    async def make_plan(
        self,
        verb: str,
        ids: Collection[str] | None,
        query: Query,
        noted: frozenset[str] = frozenset(),
    ) -> Plan:
        """Freeze a plan for all tasks that match a query, or for those of them with these ids.
        `noted` are the ids of tasks with a note."""
        now, generation = self._clock(), self._sync.latest.generation
        edges, careful = self._sync.edges, VERBS[verb].excludes_suspicious
        is_plain = query.order == "id" and not query.descending
        by_age = plans.is_by_age(verb) and is_plain  # else in the order of the screen

        def freeze(reader: Reader) -> Plan:
            filter = query.filter.text
            if field := plans.shared_field(edges, verb):
                chosen = {row.id for row in reader.rows(query, ids, now)}
                tasks = read_sharing(reader, query, ids, field, now)
                return plans.freeze_shared_plan(
                    verb, chosen, tasks, now, edges=edges, filter=filter, noted=noted
                )
            if plans.needs_tasks(edges, verb):
                judge = partial(plans.judge, edges, verb, now=now)
                facts = reader.plan_rows(query, ids, now, judge)
                return plans.freeze_rows(
                    verb, facts, now, filter=filter, noted=noted, by_age=by_age
                )
            recent = now - plans.RECENT_SECONDS if careful else float("inf")
            others = noted if careful else ()
            table = freeze_rows(
                reader, query, ids, now=now, recent=recent, ids_with_note=others, by_age=by_age
            )
            rows = table if len(table) > MAX_ROWS_IN_MEMORY else tuple(table)
            return Plan(verb, rows, now, filter, oldest=table.oldest, newest=table.newest)

        plan = await self._searches.ask(freeze, Plan(verb, (), now))
        return plan._replace(generation=generation)

    async def changed_rows(self, plan: Plan) -> tuple[tuple[Row, str], ...]:
        """The rows of a plan whose task has changed, each with its present state or the change."""

        def differing(reader: Reader) -> tuple[tuple[Row, str], ...]:
            changes: list[tuple[Row, str]] = []
            rows = iter(plan.rows)
            while some := list(islice(rows, CHUNK_ROWS)):
                if other := differing_rows(reader, some):
                    ids = {row.id for row in other}
                    present = {row.id: row for row in reader.rows(Query(), ids)}
                    changes += plans.changed_rows(other, present)
            return tuple(changes)

        return await self._searches.ask(differing, ())

    async def _ask(self, query: Query, question: Callable[[Reader, int], T], otherwise: T) -> T:
        """Answer from the sorted index if possible; else search, but not too often."""
        generation = self._sync.latest.generation
        at_hand = await self._windows.ask(
            lambda r: [question(r, generation)] if r.is_listed(query) else [], [otherwise]
        )
        if at_hand:
            return at_hand[0]
        loop = asyncio.get_running_loop()
        if self._search is not None and self._search[0] == query and self._search[1] < generation:
            await asyncio.sleep(max(0.0, self._search_earliest - loop.time()))
        generation, began = self._sync.latest.generation, loop.time()
        answer = await self._searches.ask(lambda r: question(r, generation), otherwise)
        self._search = query, generation
        self._search_earliest = loop.time() + SEARCH_COST_FACTOR * (loop.time() - began)
        return answer


def _age_base(query: Query, clock: Callable[[], float]) -> float:
    """The time from which ages are measured: rounded, so that a result can be reused."""
    if not query.filter.is_relative:
        return 0.0
    return clock() // AGE_ROUNDING_SECONDS * AGE_ROUNDING_SECONDS


class _QueryAnswer(NamedTuple):
    value: Any
    until: float
    """On the clock of `time.monotonic`."""
    generation: int
    """The generation of the index before the query; the answer may be newer."""


class CachedQueries:
    """Expensive queries over a whole queue, with a cache of recent answers."""

    def __init__(self, sync: IndexSync, clock: Callable[[], float]) -> None:
        self._sync, self._clock = sync, clock
        self._thread = QueryThread("spooldeck-tallies", sync)
        self._answers: dict[Hashable, _QueryAnswer] = {}
        self.old_answers = 0
        """Number of answers that were older than the index. A caller that asks only after a change
        asks again if this grew while it asked."""

    async def close(self, seconds: float) -> None:
        """Interrupt the running query and end the thread."""
        await self._thread.close(seconds)

    async def ages(self, query: Query, by: str, now: float) -> Ages:
        """See `age_table.query_ages`."""
        key, nothing = ("ages", query, by), NO_AGES._replace(by=by)
        return await self.ask(key, lambda r: age_table.query_ages(r, query, by, now), nothing)

    async def clusters(self, query: Query) -> tuple[Cluster, ...]:
        """Group the tasks that match a query by the pattern of their last error."""
        now = self._clock()
        return await self.ask(
            ("clusters", query),
            lambda r: error_clusters.query_clusters(r, query, now),
            (),
            lambda _: not query.filter.is_relative,
        )

    async def summarize_backlog(self, now: float, kinds: tuple[str, ...] = ()) -> BacklogSummary:
        """Size and age of the backlog, with counts for some kinds."""

        def summarize(reader: Reader) -> tuple[BacklogSummary, float, float]:
            summary = backlog.summarize_backlog(reader, now, kinds)
            return summary, now, backlog.next_due(reader, now)

        summary, _, _ = await self.ask(
            ("backlog", kinds),
            summarize,
            (BacklogSummary(), now, now),
            lambda known: known[1] <= now < known[2],
        )
        return summary

    async def count_kinds(self) -> Mapping[str, tuple[int, float | None]]:
        """Count the pending tasks of the largest kinds, each with the creation of its oldest."""
        return await self.ask(
            "kinds", lambda r: backlog.count_kinds(r, MAX_COUNTED_KINDS), {}, lambda _: True
        )

    async def count_due(self, now: float, kinds: tuple[str, ...]) -> Mapping[str, DueTasks]:
        """Count the tasks of some kinds that may run now."""
        if not kinds:
            return {}
        return await self.ask(("due", kinds), lambda r: backlog.count_due(r, now, kinds), {})

    async def destinations_of(self, ids: frozenset[str]) -> Mapping[str, str]:
        """The domains or origins that tasks go to, by id; of tasks that exist or left lately."""
        return await self.ask(
            ("sent to", ids), lambda r: error_clusters.find_destinations(r, ids), {}
        )

    async def active_tasks(self) -> Sequence[Task]:
        """The first `MAX_ACTIVE_TASKS` active tasks; unlike `IndexQueries.window`, for display of
        no list."""
        query, size, now = Query(State.ACTIVE), MAX_ACTIVE_TASKS, self._clock()
        return await self.ask(
            "active", lambda r: r.window(query, 0, size, 0, now).tasks, (), lambda _: True
        )

    async def count_ahead(
        self, task: Task, now: float, by: str = backlog.BY_CREATED
    ) -> Mapping[str, int]:
        """Count the due tasks that run before a task, in the order `by`, by kind."""
        key = ("ahead", task.queue, task.id, task.due, by)
        return await self.ask(key, lambda r: backlog.count_ahead(r, task, now, by), {})

    async def ask(
        self,
        key: Hashable,
        question: Callable[[Reader], T],
        otherwise: T,
        holds: Callable[[T], bool] = lambda answer: False,
    ) -> T:
        """Run a query, or return its answer from the cache: a recent one, or one that still `holds`
        while the index has not changed.

        Raises:
            Unavailable: the index cannot be read."""
        cached, generation = self._answers.get(key), self._sync.latest.generation
        if cached is not None:
            known: T = cached.value
            is_unchanged = cached.generation == generation
            if time.monotonic() < cached.until or (is_unchanged and holds(known)):
                self.old_answers += not is_unchanged
                return known

        def timed(reader: Reader) -> tuple[T, float]:
            began = time.monotonic()
            answer, cost = question(reader), time.monotonic() - began
            reader.fetch("PRAGMA shrink_memory")  # the next query of this place is seconds away
            return answer, cost

        value, cost = await self._thread.ask(timed, (otherwise, 0.0))
        self._answers.pop(key, None)
        until = time.monotonic() + ANSWER_COST_FACTOR * cost
        self._answers[key] = _QueryAnswer(value, until, generation)
        while len(self._answers) > MAX_CACHED_ANSWERS:
            del self._answers[next(iter(self._answers))]
        return value
