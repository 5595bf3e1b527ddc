"""What is known of a plan while it is on screen: counts, changed tasks, sizes, recurring errors."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from operator import is_not
from typing import Any

from engine.index.reader import Reader
from engine.index.schema import Query
from engine.model import Task
from engine.monitor.recurrence import StillHappens
from engine.monitor.run_forecast import RunForecast
from engine.operations import plans
from engine.operations.plans import MAX_MEASURED_TASKS, Plan
from engine.replay.settings import ReplayPace
from engine.store import StoreError, Unavailable
from engine.text import error_pattern
from engine.text.figures import format_share
from engine.verbs import VERBS, VerbWords
from tui.plan.plan_lines import PlanCounts, PlanSize, PlanView, StillFails, count_plan
from tui.plan.planning import equivalent_command, forecast_plan, pace_facts, stop_words
from tui.session.index_queries import CheckedCluster, check_clusters
from tui.session.place_session import PlaceSession
from tui.text.lines import Run
from tui.text.task_fields import states_name

DRIFT_CHECK_SECONDS = 0.5
"""Seconds between two checks whether the tasks changed since the plan was made."""

DRIFT_COST_FACTOR = 10
"""Minimum pause between these checks, as a multiple of their duration."""

MAX_INLINE_COUNT_ROWS = 2_000
"""Plans up to this many rows are counted on the event loop; larger ones on a thread."""

NOT_COUNTED = -1


class PlanFacts:
    """A plan, and everything that is read about it until it is applied."""

    def __init__(
        self, plan: Plan, session: PlaceSession, pace: ReplayPace | None, warnings: Sequence[str]
    ) -> None:
        """`pace` None: all now."""
        self.plan, self.pace = plan, pace
        self.warnings = tuple(warnings)
        self.counts: PlanCounts | None = None
        """None while they are counted."""
        self.drift: Mapping[str, str] = {}
        self._sizes: tuple[Mapping[str, int], int] = ({}, 0)
        """Bytes of measured tasks by id, included or not, and how many rows were measured."""
        self._counted_size: tuple[object, PlanSize] = (None, PlanSize(0, 0))
        self._large_size: PlanSize | None = None
        """That of a large plan: its rows are read on a thread."""
        self.trouble = ""
        """Why the size is unknown."""
        self.tasks: Mapping[str, Task] = {}
        """The listed tasks in full, as far as they still exist."""
        self.clusters: Mapping[str, CheckedCluster] = {}
        """The checked errors of the tasks by their marks."""
        self.is_closed = False
        """True once the plan is applied: nothing is read any more."""
        self._session = session
        self._amount = NOT_COUNTED
        self._is_recount_wanted = asyncio.Event()
        self._has_read = False
        self._in_trash: int | None = None
        self._pace_facts: Sequence[Run] = ()

    @property
    def has_suspicious(self) -> bool:
        """True if tasks are excluded by default, or would be had the operator not included all."""
        is_out = self.counts is not None and self.counts.has_suspicious
        return is_out or self.plan.includes_suspicious

    @property
    def amount(self) -> int:
        """Number of tasks that would be acted on."""
        return max(0, self._amount)

    # Reading; each change is passed on

    def jobs(
        self, errors: Query | None, changed: Callable[[], None], amount_changed: Callable[[], None]
    ) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """What reads the facts; `errors` selects the tasks whose errors are checked."""
        checks = () if errors is None else (partial(self._check_recurrence, errors, changed),)
        watch = partial(self._watch_drift, changed, amount_changed)
        return (watch, partial(self._measure, changed), *checks)

    async def _watch_drift(
        self, changed: Callable[[], None], amount_changed: Callable[[], None]
    ) -> None:
        """Count first, then compare the rows with the index, which takes seconds for a million."""
        generation, loop = self.plan.generation, asyncio.get_running_loop()
        while not self.is_closed:
            self._is_recount_wanted.clear()
            latest, began = self._session.inspector.latest, loop.time()
            try:
                if self.counts is None:
                    if await self._count_large():
                        amount_changed()
                    changed()
                if latest.generation != generation:
                    generation = latest.generation
                    drift = await self._session.inspector.queries.changed_rows(self.plan)
                    if not self.is_closed and await self._take_drift(drift):
                        amount_changed()
            except Unavailable as error:  # or closed: the console is being left
                self.trouble = f"plan not checked: {error}"
                changed()
                return
            if not self._has_read:
                await self._read_tasks(changed)
            runs = RunForecast(None)
            with suppress(Unavailable):  # the next count reports it
                runs = await forecast_plan(self._session, self.plan)
            self._pace_facts = pace_facts(self._session, self.plan, self.pace, self.amount, runs)
            changed()
            pause = max(DRIFT_CHECK_SECONDS, DRIFT_COST_FACTOR * (loop.time() - began))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._is_recount_wanted.wait(), pause)

    async def _take_drift(self, drift: Sequence[tuple[plans.Row, str]]) -> bool:
        """Count again if other tasks changed; True if the number of tasks changed."""
        # A barred task was excluded from the start and shows its reason.
        out = {row.id for row, _ in drift if row.barred}
        words: dict[str, str] = {
            state: f"{word} now" for state, word in self._session.inspector.states.items()
        }
        known = {row.id: words.get(how, how) for row, how in drift if row.id not in out}
        if known == self.drift and self.counts is not None:
            return False
        self.drift = known
        return await self._count_large() if _is_large(self.plan) else self.recount()

    def recount(self) -> bool:
        """Count a small plan now; a large one is counted on a thread. Returns True if the number of
        tasks changed."""
        if _is_large(self.plan):
            self.counts = None
            self._is_recount_wanted.set()
            return True
        return self._take(count_plan(self.plan, self._session.inspector.edges, self.drift))

    async def _count_large(self) -> bool:
        plan, edges, drift = self.plan, self._session.inspector.edges, self.drift

        def count() -> tuple[PlanCounts, PlanSize]:
            return count_plan(plan, edges, drift), _size_of(plan, *self._sizes, drift)

        counts, size = await asyncio.to_thread(count)
        if plan is not self.plan:
            return False
        self._large_size = size
        return self._take(counts)

    def _take(self, counts: PlanCounts) -> bool:
        before, self.counts, self._amount = self._amount, counts, counts.amount
        return before != counts.amount

    async def _measure(self, changed: Callable[[], None]) -> None:
        loop, reported = asyncio.get_running_loop(), 0.0

        def take(plan: Plan, sizes: Mapping[str, int], amount: int, size: PlanSize | None) -> None:
            self._sizes = sizes, amount
            if plan is self.plan:
                self._large_size = size
            elif size is not None:  # tasks were excluded since it was computed
                self.recount()
            changed()

        def report(sizes: Mapping[str, int], amount: int) -> bool:
            nonlocal reported
            is_last = amount == min(len(self.plan.rows), MAX_MEASURED_TASKS)
            if is_last or time.monotonic() - reported > DRIFT_CHECK_SECONDS:
                reported = time.monotonic()
                plan = self.plan
                size = _size_of(plan, sizes, amount, self.drift) if _is_large(plan) else None
                loop.call_soon_threadsafe(partial(take, plan, sizes, amount, size))
            return not self.is_closed

        actions = self._session.inspector.actions
        try:
            if self.plan.verb == "purge" and self._session.place.trash is not None:
                self._in_trash = await actions.trash_bytes()
            await actions.measure_tasks(self.plan, report)
        except StoreError as error:
            self.trouble = f"size unknown: {error}"
            changed()

    async def _read_tasks(self, changed: Callable[[], None]) -> None:
        ids = tuple(row.id for row in self.counts.listed) if self.counts is not None else ()
        self._has_read = bool(ids)

        def read(reader: Reader) -> dict[str, Task]:
            return {id: task for id in ids if (task := reader.task(id)) is not None}

        try:
            self.tasks = await self._session.inspector.tallies.ask(("plan", ids), read, {})
        except Unavailable:
            return  # closed: the console is being left
        changed()

    async def _check_recurrence(self, query: Query, changed: Callable[[], None]) -> None:
        try:
            clusters = await check_clusters(self._session, query)
        except Unavailable:
            return  # closed: the console is being left
        self.clusters = {one.cluster.mark: one for one in clusters}
        changed()

    # As the text needs it

    @property
    def size(self) -> PlanSize | None:
        """Bytes of the tasks that would be acted on, of those that were measured; None: no row was
        measured."""
        sizes, amount = self._sizes
        if not amount:
            return None
        if _is_large(self.plan):
            return self._large_size
        made_from = self.plan, sizes, self.drift
        before, size = self._counted_size
        if not isinstance(before, tuple) or any(map(is_not, before, made_from)):
            size = _size_of(self.plan, sizes, amount, self.drift)
            self._counted_size = made_from, size
        return size

    def mark_of(self, id: str) -> str:
        """The mark of a listed task's error; "" without one."""
        task = self.tasks.get(id)
        if task is None or not task.error:
            return ""
        return error_pattern.pattern_name(error_pattern.fold_error(task.error))

    @property
    def words(self) -> VerbWords:
        """What the plan is called: a retry with a pace is a replay."""
        return VERBS[self.plan.verb].words(is_paced=self.pace is not None)

    def still_failing(self) -> tuple[StillFails, ...]:
        """The errors that still happen and are in the plan, most frequent first."""
        same = {
            mark: one.cluster.count
            for mark, one in self.clusters.items()
            if one.now.answer is StillHappens.YES
        }
        if same and self.counts is not None and len(self.counts.listed) == len(self.plan.rows):
            rows = (row for row in self.plan.rows if not self.plan.exclusion_reason(row))
            listed = Counter(self.mark_of(row.id) for row in rows if row.id not in self.drift)
            same = {mark: listed[mark] for mark in same if listed[mark]}
        many = sorted(same.items(), key=lambda item: -item[1])
        return tuple(StillFails(mark, amount, self.clusters[mark]) for mark, amount in many)

    def last_failure(self) -> float | None:
        """When the errors of a retry stopped, epoch seconds UTC; None if one may still happen."""
        known = [*self.clusters.values()]
        if not known or any(one.now.answer is not StillHappens.NO for one in known):
            return None
        return max((one.last for one in known if one.last is not None), default=None)

    @property
    def source_name(self) -> str:
        """Where tasks that are not sent stay."""
        return states_name(self.plan.states, self._session.inspector.states)

    def view(
        self, scope: str, reason: str, now: float, follows: str = "", shown_reason: str = ""
    ) -> PlanView:
        """Everything that the text of the plan needs; `shown_reason`: of no plan too."""
        inspector, counts = self._session.inspector, self.counts
        command = ""
        if counts is not None:
            command = equivalent_command(counts, self._session, reason, self.pace, follows)
        still, paced = self.still_failing(), self._pace_facts
        if self.pace is not None and paced:
            (name, words), *more = paced
            stop = stop_words(self.pace, [one.mark for one in still])
            paced = [(name, f"{words}; {stop} (p)"), *more]
        return PlanView(
            inspector.states,
            inspector.edges,
            now,
            scope=scope,
            drift=self.drift,
            size=self.size,
            facts=[*paced, *self._trash_facts()],
            warnings=self.warnings,
            reason=shown_reason,
            command=command,
            still=still,
            is_paced=self.pace is not None,
            transitions=counts.transitions if counts is not None else (),
        )

    def _trash_facts(self) -> list[Run]:
        """Trash usage after a purge, and its retention."""
        trash, now = self._session.place.trash, self._in_trash
        if trash is None or now is None or self.size is None:
            return []
        more = self.size.bytes
        least = "at least " if self.size.tasks < len(self.plan.rows) else ""
        words = f"{least}{format_share(now + more, trash.quota)} after this; kept {trash.hours:g} h"
        full = "; tasks beyond the quota are not purged" if now + more > trash.quota else ""
        return [("trash", words + full)]


def _is_large(plan: Plan) -> bool:
    return len(plan.rows) > MAX_INLINE_COUNT_ROWS


def _size_of(
    plan: Plan, sizes: Mapping[str, int], amount: int, drift: Mapping[str, str]
) -> PlanSize:
    """Bytes of the tasks that a plan acts on, of its first `amount` rows, which were measured."""
    measured = islice(plan.rows, amount)
    included = (row.id for row in measured if not plan.exclusion_reason(row))
    return PlanSize(sum(sizes.get(id, 0) for id in included if id not in drift), amount)
