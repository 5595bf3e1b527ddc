"""Which tasks a worker claims next: the free slots, and the kinds that may be claimed."""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator

from engine.model import Move, Outcome, Task
from engine.schedules import RetryDelay
from engine.store import Store, StoreError
from engine.work import handlers
from engine.work.services import WorkerServices

RESCAN_INTERVAL_SECONDS = 5.0
"""Seconds after which `take` is restarted, so that older tasks that came due meanwhile are not
missed; each start scans the whole folder."""

LACK_REST_SECONDS = 15.0
"""Seconds for which a kind rests after the worker lacked something for it; then longer."""

LACK_REPORT_SECONDS = 1800.0
"""Seconds after which a lack that goes on is reported again: monitors read an hour of the log."""


class Slots:
    """The slots for running handlers, in all and by kind, and the kinds that may be claimed."""

    def __init__(
        self,
        concurrency: int,
        handled: Collection[str],
        services: WorkerServices,
        clock: Callable[[], float],
    ) -> None:
        """`handled` are the kinds with a handler."""
        self._concurrency, self._handled, self._services = concurrency, handled, services
        self._clock = clock
        self.busy = 0
        """Running handlers."""
        self._running: defaultdict[str, int] = defaultdict(int)
        self.is_closed = False
        """True if the worker is stopping."""
        self._counts = False
        self.refused: dict[str, str] = {}
        """Kinds that must not be claimed, and the reason, as of the last scan for claims."""
        self.token_at: float | None = None
        """The earliest time at which one of them may be claimed; None: not known."""
        self._gates: dict[str, tuple[str, float | None]] = {}
        """Result of `WorkerServices.gate` by kind, in this scan."""
        self._rests: dict[str, tuple[str, RetryDelay, float]] = {}
        """By kind: what the worker lacked last for it, its pause, and when that was reported."""
        self._promised: dict[str, int] = {}
        """Tasks by kind that may be claimed and are not started yet, if they are counted."""

    def start_scan(self, *, counts: bool) -> None:
        """Ask again which kinds may be claimed; with `counts`, for several tasks at a time."""
        self._counts, self.token_at = counts, None
        self.refused.clear()
        self._gates.clear()
        self._promised.clear()

    def are_separate(self) -> bool:
        """True if no kind can keep another one from its slots."""
        most, slots = self._concurrency, self._services.slots
        return sum(min(most, slots.get(kind, most)) for kind in self._handled) <= most

    def occupy(self, kind: str) -> None:
        """A task that was claimed is started."""
        self._running[kind] += 1
        self.busy += 1

    def release(self, kind: str) -> None:
        """A handler has ended."""
        self._running[kind] -= 1
        self.busy -= 1

    def pause_kind(self, kind: str, lack: str, now: float) -> bool:
        """Claim no task of a kind for 15 s, longer each time; True if this lack is a new one, or
        was reported `LACK_REPORT_SECONDS` ago. Tasks that were claimed before the rest do not
        lengthen it."""
        before, delay, reported = self._rests.get(kind, ("", RetryDelay(), now))
        if delay.is_over(now):
            delay = delay.longer(now, LACK_REST_SECONDS)
        is_news = lack != before or now - reported >= LACK_REPORT_SECONDS
        self._rests[kind] = lack, delay, now if is_news else reported
        return is_news

    def end_rest(self, kind: str) -> None:
        """A handler of a kind has run: nothing is lacking for it."""
        self._rests.pop(kind, None)

    @property
    def lacks(self) -> dict[str, str]:
        """What the worker lacks, by kind of task."""
        return {kind: lack for kind, (lack, *_) in self._rests.items()}

    def keep_promise(self, kind: str) -> None:
        """A task was claimed: if such are counted, it is not expected any more."""
        if self._promised.get(kind):
            self._promised[kind] -= 1

    def wants(self, kind: str, group: str) -> bool:
        """The filter of `Store.take`."""
        why = self._refusal(kind)
        if why:
            self.refused[kind] = why
        elif self._counts:
            self._promised[kind] = self._promised.get(kind, 0) + 1
        return not why

    def _refusal(self, kind: str) -> str:
        """Reason why no task of this kind may be claimed now; "" if one may."""
        if self.is_closed:
            return "the worker is stopping"
        contract = kind in handlers.CONTRACT_KINDS
        if contract and kind not in self._handled:
            return "no handler configured"
        slots = 1 if contract else self._services.slots.get(kind, self._concurrency)
        if self._running[kind] + self._promised.get(kind, 0) >= slots:
            return "one is running already" if slots == 1 else f"{slots} are running already"
        lack, delay, _ = self._rests.get(kind, ("", RetryDelay(), 0.0))
        if lack and not delay.is_over(self._clock()):
            self.token_at = min(delay.until, self.token_at or delay.until)
            return lack
        if kind not in self._gates:
            self._gates[kind] = self._services.gate(kind)
        shut, until = self._gates[kind]
        limits = self._services.limits
        if not shut and limits is not None and limits.is_limited(kind):
            if self._promised.get(kind):
                shut = "one token at a time"
            elif not limits.ready(kind):
                shut, until = "no token", limits.token_at(kind)
        if shut and until is not None:
            self.token_at = until if self.token_at is None else min(self.token_at, until)
        return shut


class Claimer:
    """Claims tasks of a store: with `Store.take`, or together with outcomes."""

    def __init__(self, store: Store, owner: str, slots: Slots) -> None:
        self._store, self._owner, self._slots = store, owner, slots
        self.fetched: deque[Task] = deque()
        """Tasks that were claimed together with outcomes and are not started yet."""
        self._taking: Iterator[Task] | None = None
        self._taken_since = 0.0
        self._limit_ends: float | None = None

    def start_scan(self, now: float, room: int) -> None:
        """Prepare `next_task` for up to `room` claims; restart `take` if it is old."""
        in_lots = self._store.claim_rules.claims_lots
        self._slots.start_scan(counts=in_lots)
        is_old = not 0 <= now - self._taken_since < RESCAN_INTERVAL_SECONDS
        if self._taking is None or is_old or in_lots:
            limit = room if in_lots else sys.maxsize
            self._taking = self._store.take(now, self._owner, limit, self._slots.wants)
            self._taken_since = now

    def next_task(self) -> Task | None:
        """Claim a task; None if there is none that is due."""
        task = None if self._taking is None else next(self._taking, None)
        if task is None:
            self._taking = None
        return task

    def end_scan(self) -> None:
        """Close `take`: the store has failed."""
        self._taking = None

    def is_limited(self, now: float, log: Callable[[str, str], None]) -> bool:
        """True if a rate limit of the store holds back due tasks; each has a line in the log. False
        if the store cannot be reached: a run until idle ends then, as without tasks."""
        try:
            until = self._store.claim_rules.limit_ends()
        except (StoreError, OSError) as error:
            log("ERROR", f"Queue cannot be reached: {error}")
            return False
        if until is not None and until != self._limit_ends:
            wait = max(0.0, until - now)
            log("INFO", f"A rate limit holds back tasks, next in {wait:.1f}s")
        self._limit_ends = until
        return until is not None

    def swap_and_fetch(self, moves: list[Move], now: float, room: int) -> list[Outcome]:
        """Store outcomes, and claim up to `room` tasks in the same step."""
        swap_and_take = self._store.claim_rules.swap_and_take
        assert swap_and_take is not None, "else nothing is fetched"
        self._slots.start_scan(counts=True)
        outcomes, tasks = swap_and_take(moves, now, self._owner, room, self._slots.wants)
        self.fetched += tasks
        return outcomes
