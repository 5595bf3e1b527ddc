"""When tasks run: forecasts of waiting tasks, queues and plans, compared with what then happened.

A run is simulated with the worker's own decisions (claims in the store's order, slots of each kind,
token buckets, retries) on a clock that a test sets; its forecasts are of the functions that the
screens call, with counts from an index."""

from __future__ import annotations

import heapq
import math
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from engine.formats.base.memory import MemoryStore
from engine.index import backlog
from engine.index.backlog import BY_CREATED, BY_DUE
from engine.index.reader import Reader
from engine.index.writer import Writer
from engine.locks.token_buckets import ALL_KINDS, BucketState, TokenBuckets
from engine.logs.log_line import LogLine
from engine.logs.task_events import read_events
from engine.model import Missing, State, Task, attempts_allowed
from engine.monitor.forecast import Forecast, ForecastInputs, forecast_drain
from engine.monitor.latency import KindFigures, LatencyMeter
from engine.monitor.run_forecast import (
    ExpectedStart,
    Pace,
    expected_start,
    forecast_runs,
    measure_pace,
)
from engine.monitor.throughput import FlowHistory, Growth
from engine.override import override
from engine.policy import Rate, RetryPolicy, contract_retries
from engine.store import ClaimFilter, accept_all
from engine.work.claiming import Claimer, Slots
from engine.work.outcomes import task_after_failure
from engine.work.services import WorkerServices
from tests.engine.task_builders import NOW, Clock, a_task
from tests.tables import each

STEP_SECONDS = 0.5

TOLERANCE, SLACK_SECONDS = 0.3, 5.0
"""A forecast is right within so large a share of the wait, or within the time of one scan."""


class Work(NamedTuple):
    """One kind of task: how long it runs, and how often it fails."""

    seconds: float = 0.25
    fails: float = 0.0
    """Share of the runs that fail."""
    rate: Rate | None = None


class KindStore(MemoryStore):
    """Asks once for each kind whether a task of it may be claimed: a token bucket is a file."""

    @override
    def take(
        self, now: float, owner: str, limit: int, wants: ClaimFilter = accept_all
    ) -> Iterator[Task]:
        for _ in range(limit):
            task = self._claim_next(now, owner, lru_cache(wants))
            if task is None:
                return
            yield task


class Run:
    """A queue and its worker on a clock that moves in steps."""

    def __init__(
        self,
        folder: Path,
        works: Mapping[str, Work],
        *,
        slots: int = 4,
        order: str = BY_CREATED,
        retry: RetryPolicy | None = None,
        limit: Rate | None = None,
        own_slots: Mapping[str, int] | None = None,
    ) -> None:
        self._own_slots = own_slots or {}
        self.clock, self.works, self.order = Clock(), works, order
        path = tempfile.mkdtemp(dir=folder)
        self.writer = Writer(f"{path}/index", attempts_allowed)
        self.reader = Reader(f"{path}/index")
        rates = {kind: work.rate for kind, work in works.items() if work.rate is not None}
        rates |= {} if limit is None else {ALL_KINDS: limit}
        self.limits = TokenBuckets(f"{path}/tokens", rates, self.clock)
        by_due = order == BY_DUE
        self.store = KindStore(order=lambda t: (t.due if by_due else 0, t.created, t.id))
        services = WorkerServices(limits=self.limits, slots=self._own_slots)
        self._slots = Slots(slots, works, services, self.clock)
        self._claimer = Claimer(self.store, "the worker", self._slots)
        self._retry = retry or contract_retries(3, 30)
        self._running: list[tuple[float, int, Task]] = []
        self._number, self._random = count(1), random.Random(7)
        self.flow, self.meter = FlowHistory(), LatencyMeter()
        self.added, self._removed = set[str](), 0
        self.starts: dict[str, list[float]] = {}
        self.emptied: float | None = None
        self.waiting: list[tuple[float, Mapping[str, int]]] = []
        """Waiting tasks by kind, each second."""

    def add(self, kind: str, created: float, due: float = 0.0) -> Task:
        """A pending task."""
        number = next(self._number)
        task = Task(f"20261120T094115Z-{kind}-{number:08x}", kind, State.PENDING, created, due=due)
        self.store.swap(None, task)
        self.added.add(task.id)
        return task

    def tasks(self) -> list[Task]:
        """All tasks, as the store has them."""
        return [item for item in self.store.scan() if isinstance(item, Task)]

    def is_empty(self) -> bool:
        """True once no task waited."""
        return self.emptied is not None

    def ran_since(self, task: Task, at: float) -> float | None:
        """When a task ran first after a time; None if it did not."""
        return next((when for when in self.starts.get(task.id, ()) if when >= at), None)

    def go_on(
        self,
        seconds: float,
        arrives: Callable[[float], None] = lambda now: None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let the worker work for so long, or until it is over; `arrives` is called each second."""
        until = self.clock.now + seconds
        while self.clock.now < until and not is_over():
            self._settle()
            self._claim()
            if self.clock.now == int(self.clock.now):
                arrives(self.clock.now)
                self._count()
            self.clock.now += STEP_SECONDS

    def _claim(self) -> None:
        room = 4 if self._slots.busy == 0 else 4 - self._slots.busy
        self._claimer.start_scan(self.clock.now, room)
        for _ in range(room):
            task = self._claimer.next_task()
            if task is None:
                return
            self._slots.keep_promise(task.kind)
            assert self.limits.spend(task.kind)
            self._slots.occupy(task.kind)
            seconds = self.works[task.kind].seconds * self._random.uniform(0.8, 1.2)
            heapq.heappush(self._running, (self.clock.now + seconds, next(self._number), task))
            self.starts.setdefault(task.id, []).append(self.clock.now)
            self._log(f"Processing task: {task.id} ({task.kind}: x)")

    def _settle(self) -> None:
        while self._running and self._running[0][0] <= self.clock.now:
            _, _, task = heapq.heappop(self._running)
            self._slots.release(task.kind)
            if self._random.random() >= self.works[task.kind].fails:
                self.store.swap(task, None)
                self._removed += 1
                self._log(f"Task completed: {task.id} ({task.kind})")
                continue
            failed = task_after_failure(task, "busy", self._retry, self.clock.now)
            self.store.swap(task, failed)
            self._log(f"Task failed: {task.id} ({task.kind}): busy")
            if failed.state is State.PENDING:
                wait = int((failed.due or 0.0) - self.clock.now)
                self._log(f"Task {task.id} failed (attempt {failed.attempts}/3), retry in {wait}s")

    def _log(self, text: str) -> None:
        self.meter.add(read_events([LogLine(self.clock.now, "INFO", text, "queue.log")]), NOW)

    def _count(self) -> None:
        tasks = self.tasks()
        counts = Counter(task.state for task in tasks)
        self.flow.add(self.clock.now, len(self.added), self._removed, counts)
        self.waiting.append((self.clock.now, waiting_kinds(tasks)))
        if not counts[State.PENDING] and self.emptied is None:
            self.emptied = self.clock.now

    def pace(self, waited: float = 0.0) -> Pace:
        """What a console has measured."""
        now = self.clock.now
        figures, buckets = self.meter.figures(now), self.limits.read_states()
        pace = measure_pace(self.flow, figures, buckets, now, waited)
        return pace._replace(max_runs=self._retry.max_runs, own_slots=self._own_slots)

    def index(self) -> None:
        """Bring the index up to date."""
        tasks = self.tasks()
        gone = self.added.difference(task.id for task in tasks)
        self.writer.apply_lookup(self.added, [*tasks, *map(Missing, gone)])

    def close(self) -> None:
        """Close the index."""
        self.reader.close()
        self.writer.close()

    def forecast(self, task: Task) -> ExpectedStart:
        """When a waiting task runs."""
        now, by = self.clock.now, self.order
        pace = self.pace(now - max(task.due or 0.0, task.created))
        ahead = partial(backlog.count_ahead, self.reader, task, by=by)
        kept = by == BY_CREATED
        return expected_start(task.kind, task.due or 0.0, now, pace, ahead, with_retries=kept)

    def forecast_empty(self) -> Forecast:
        """When the queue is empty."""
        now = self.clock.now
        kinds = self.waiting[-1][1]
        before = next(one for one in self.waiting if one[0] >= now - 120)
        counts = {State.PENDING: sum(kinds.values())}
        known = ForecastInputs(
            counts,
            {},
            self.flow.drain(now),
            growth=None,
            died=None,
            has_arrivals=False,
            tokens=self.limits.read_states(),
            kinds=kinds,
            kind_growth={
                kind: Growth(number - before[1].get(kind, 0), now - before[0])
                for kind, number in kinds.items()
                if now - before[0] >= 10
            },
            figures=self.meter.figures(now),
            max_runs=self._retry.max_runs,
        )
        return forecast_drain(known, now)


def waiting_kinds(tasks: Sequence[Task]) -> Mapping[str, int]:
    """The numbers of pending tasks by kind."""
    kinds: dict[str, int] = {}
    for task in tasks:
        if task.state is State.PENDING:
            kinds[task.kind] = kinds.get(task.kind, 0) + 1
    return kinds


def is_right(forecast: float, real: float) -> bool:
    """True if a wait was forecast within the tolerance; both in seconds."""
    return abs(forecast - real) <= max(TOLERANCE * real, SLACK_SECONDS)


MAIL = Work(fails=0.35, rate=Rate(720, 5))
DEMO = {"mail": MAIL, "feed": Work(fails=0.1), "report": Work(0.5)}


@each(("name", "works", "options", "amounts"), [
    ("a rate limit of one kind, with retries", DEMO, {}, {"mail": 120, "feed": 60, "report": 20}),
    ("slots only, long runs", {"feed": Work(4.0), "report": Work(9.0)}, {},
     {"feed": 150, "report": 50}),
    ("slots only, short runs", {"feed": Work(0.5)}, {}, {"feed": 1200}),
    ("long runs that have a slot of their own", {"a": Work(0.5), "b": Work(10.0)},
     {"own_slots": {"b": 1}}, {"a": 900, "b": 40}),
    ("each kind has a slot of its own", {"a": Work(1.0), "b": Work(5.0)},
     {"own_slots": {"a": 1, "b": 1}}, {"a": 300, "b": 50}),
    ("a limit of all kinds, and one of its own", {"mail": Work(rate=Rate(600, 5)), "feed": Work()},
     {"limit": Rate(1800, 10)}, {"mail": 100, "feed": 150}),
    ("the order of due times, some fail", {"mail": Work(fails=0.2)},
     {"limit": Rate(360, 5), "order": BY_DUE, "slots": 1}, {"mail": 90}),
    ("one in two fails and waits for minutes", {"mail": Work(fails=0.5, rate=Rate(600, 5))},
     {"retry": contract_retries(60, 900)}, {"mail": 150}),
])  # fmt: skip
def test_forecasts_of_tasks_are_right(
    name: str,
    works: Mapping[str, Work],
    options: Mapping[str, object],
    amounts: Mapping[str, int],
    tmp_path: Path,
) -> None:
    """Of ten waiting tasks, at least eight run within 30 % of their forecast, and at most one has
    none: at three times of a run in which tasks arrive, fail and come due again."""
    run = Run(tmp_path, works, **options)  # type: ignore[arg-type]
    random_numbers = random.Random(3)
    for kind, amount in amounts.items():
        for _ in range(amount):
            created = NOW - random_numbers.uniform(0, 3600)
            delayed = random_numbers.random() < 0.1
            due = NOW + random_numbers.uniform(0, 120) if delayed else 0.0
            run.add(kind, created, due or (created if run.order == BY_DUE else 0.0))
    kinds = list(amounts)

    def arrives(now: float) -> None:
        if int(now) % 4 == 0:
            run.add(random_numbers.choice(kinds), now, now if run.order == BY_DUE else 0.0)

    asked: list[tuple[Task, float, ExpectedStart]] = []
    for seconds in (30, 60, 60):
        run.go_on(seconds, arrives)
        run.index()
        waits = [task for task in run.tasks() if task.state is State.PENDING][::5]
        asked += [(task, run.clock.now, run.forecast(task)) for task in waits]
    run.go_on(4000, arrives, lambda: all(run.ran_since(task, at) for task, at, _ in asked))
    right = unknown = wrong = 0
    lines = []
    for task, at, start in asked:
        real = run.ran_since(task, at)
        assert real is not None, "it ran"
        if start.when is None:
            unknown += 1
            continue
        is_near = is_right(start.when - at, real - at)
        right, wrong = right + is_near, wrong + (not is_near)
        lines.append(f"{is_near:d} {start.when - at:.0f} {real - at:.0f} {start.terms}")
    shown = "\n".join([f"{name}: {right} right, {wrong} wrong, {unknown} unknown", *lines])
    assert len(asked) >= 20, shown
    assert right >= 0.8 * len(asked) and unknown <= 0.1 * len(asked), shown


def test_a_short_run_waits_for_the_long_ones_that_are_claimed_first(tmp_path: Path) -> None:
    """Slots are shared: while short runs end fast, a forecast counts the long ones after them."""
    run = Run(tmp_path, {"a": Work(0.5), "b": Work(10.0)})
    for number in range(500):
        run.add("a" if 0 < number < 300 else "b", NOW - 1000 + number)
    last = run.add("a", NOW - 1)
    run.go_on(30)
    run.index()
    at, start = run.clock.now, run.forecast(last)
    run.go_on(1000, is_over=lambda: run.ran_since(last, at) is not None)
    real = run.ran_since(last, at)
    assert start.when is not None and real is not None and real - at > 400
    assert is_right(start.when - at, real - at), (start, real - at)


def fill(run: Run, amount: int) -> None:
    """So many tasks of each kind, one every ten seconds."""
    for number in range(amount):
        for kind in run.works:
            run.add(kind, NOW - 10 * number)


def test_forecasts_of_queues_and_plans_are_right(tmp_path: Path) -> None:
    """A queue is empty, and the last task of a plan runs, within 30 % of the forecast, at least
    eight times of ten; the plan makes dead tasks due, which run in the order of their age."""
    seen: list[tuple[str, float, float]] = []
    for number, fails in enumerate((0.0, 0.1, 0.3, 0.5)):
        works = {"mail": Work(fails=fails, rate=Rate(900, 5)), "feed": Work()}
        run, amount = Run(tmp_path, works), 60 + 10 * number
        fill(run, amount)
        empties: list[tuple[float, Forecast]] = []
        for seconds in (60, 60):
            run.go_on(seconds)
            empties.append((run.clock.now, run.forecast_empty()))
        at, created = run.clock.now, [NOW - 5 * each for each in range(20)]
        run.index()
        dead = [a_task(n, kind="mail", state=State.DEAD, created=created[n]) for n in range(20)]
        ids = {task.id for task in dead}
        run.writer.apply_lookup(ids, dead)
        found = backlog.count_planned(run.reader, ids, at)
        assert found.planned == {"mail": 20}
        runs = Counter(found.planned) + Counter(found.first)
        plan = forecast_runs(runs, run.pace(), at, found.planned)
        added = [run.add("mail", moment) for moment in created]
        run.go_on(4000, is_over=run.is_empty)
        assert run.emptied is not None and plan.seconds is not None, plan
        last = max(run.ran_since(task, at) or math.inf for task in added)
        seen.append((f"plan {plan.terms}", plan.seconds, last - at))
        run.close()

        without_plan = Run(tmp_path, works)
        fill(without_plan, amount)
        without_plan.go_on(4000, is_over=without_plan.is_empty)
        assert without_plan.emptied is not None
        for when, empty in empties:
            assert empty.seconds is not None, empty
            seen.append((empty.sentence, empty.seconds, without_plan.emptied - when))
        without_plan.close()
    right = [one for one in seen if is_right(one[1], one[2])]
    assert len(right) >= 0.8 * len(seen), "\n".join(map(str, seen))


MAIL_LIMIT = BucketState("mail", 0, 5, NOW + 5, 720)
FIGURES = KindFigures("feed", run_p50=2.0)
MIXED = Pace(
    kinds={
        "mail": KindFigures("mail", run_p50=0.5, per_second_now=8.0),
        "feed": KindFigures("feed", run_p50=10.0),
    },
    per_second=8.0,
    is_busy=True,
    slots=4,
)


@each(("pace", "ahead", "seconds", "words"), [
    (Pace((MAIL_LIMIT,)), {"mail": 157}, 790.0, "158 x 5s at 720/h"),
    (Pace((MAIL_LIMIT._replace(per_hour=100_000, next=NOW),)), {"mail": 250}, 9.0,
     "251 x 36ms at 100,000/h"),
    (Pace((MAIL_LIMIT._replace(per_hour=7_200_000, next=NOW),)), {"mail": 10_000}, 5.0,
     "10,001 x 0.0005s at 7,200,000/h"),
    (Pace((MAIL_LIMIT._replace(tokens=5),)), {"mail": 4}, 0.0, ""),
    (Pace((MAIL_LIMIT._replace(per_hour=0),)), {"mail": 4}, None, "rate limit is 0"),
    (Pace((MAIL_LIMIT._replace(paused=True),)), {"mail": 4}, None,
     "paused until an operator resumes it"),
    (Pace("No such file"), {}, None, "rate limits cannot be read: No such file"),
    (Pace(obstacle="lock is stuck"), {"feed": 4}, None, "lock is stuck"),
    (Pace(), {"feed": 4}, None, "rate of the queue not measured yet"),
    (Pace(per_second=0.0), {"feed": 4}, None, "4 first, none finished in the last minute"),
    (Pace(per_second=0.5, is_busy=True), {"feed": 4}, 8.0, "4 at 0.5/s"),
    (Pace(kinds={"feed": FIGURES}, slots=4, per_second=0.1), {"feed": 40}, 20.0, "40 at 2.0/s"),
    (MIXED, {"mail": 40, "feed": 100}, 255.0, "140 at 0.5/s"),
    (MIXED, {"feed": 100}, 250.0, "100 at 0.4/s"),
    (MIXED._replace(own_slots={"mail": 3, "feed": 1}), {"mail": 40, "feed": 100}, 5.0,
     "40 at 8.0/s"),
    (MIXED._replace(own_slots={"feed": 1}), {"mail": 48, "feed": 100}, 8.0, "49 at 6.1/s"),
    (MIXED._replace(own_slots={"feed": 1}), {"feed": 100}, 0.0, ""),
    (Pace(timer_seconds=300.0, timer_at=NOW + 60), {"feed": 2}, 660.0,
     "3 x 5m at one each run of the timer"),
])  # fmt: skip
def test_a_forecast_has_its_sum_or_its_reason(
    pace: Pace, ahead: dict[str, int], seconds: float | None, words: str
) -> None:
    """Tokens, turns of the workers and a timer each have their own arithmetic."""
    start = expected_start("mail", 0.0, NOW, pace, lambda moment: ahead)
    assert start.when == (None if seconds is None else NOW + seconds)
    assert words == (start.terms if seconds is not None else start.unknown)


def due_at(number: int, moment: float) -> Mapping[str, int]:
    """Others that are due at any time."""
    return {"feed": number}


def test_a_task_of_an_empty_bucket_runs_at_the_first_token_after_its_backoff() -> None:
    """Others of its kind that are due before take each token; without them one is there."""
    pace = Pace([BucketState("mail", 0, 5, NOW + 3, 720)])
    for kind, due, when in (("mail", 6, 8), ("mail", 8, 8), ("mail", 1, 8), ("feed", 6, 6)):
        start = expected_start(kind, NOW + due, NOW, pace, lambda moment: {"mail": 1})
        assert start.when == NOW + when, (kind, due)
        alone = expected_start(kind, NOW + due, NOW, pace, lambda moment: {})
        assert alone.when == NOW + max(due, 3 * (kind == "mail")), (kind, due)


def test_in_an_order_not_known_any_due_task_may_be_first() -> None:
    """Without a known order a start has only an end; unless all that is due takes a moment."""
    pace = Pace(per_second=0.5, is_busy=True)
    for others, when in ((1, NOW + 2), (100, None)):
        start = expected_start("feed", 0.0, NOW, pace, partial(due_at, others), is_ordered=False)
        assert start.when == when
        assert when or start.unknown == "100 others, in an order not known: by 10:23:20Z (in 3m)"


def test_tasks_that_come_due_until_then_are_first_too() -> None:
    """A retry that is older and comes due before a task's turn takes its turn."""
    pace = Pace((MAIL_LIMIT,))
    due_later = {"mail": 12}
    start = expected_start(
        "mail", 0.0, NOW, pace, lambda at: due_later if at > NOW + 30 else {"mail": 9}
    )
    assert (start.when, start.terms) == (NOW + 5 * 13, "13 x 5s at 720/h")
