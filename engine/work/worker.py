"""The worker: claim due tasks, run their handlers, store each outcome with compare-and-swap.

Handlers run on threads of their own, which are reused, so that the queue lock and the leases of the
tasks are renewed while they run. One thread at a time uses the store, the one that holds
`Worker._duty`: the worker's own, or that of a handler which has just ended. It stores the outcome
and claims the next task itself, as two switches of threads cost more than both.

    worker's thread                                      thread of a handler
      _work: claim, _start -- handler, claim, context ---> HandlerThreads: run the handler
      _await: give up the duty, wait  <-- FinishedTask --- _go_on: the duty is not free
              .       .       .       <-- the duty ------- _go_on: take it; store, claim, _start
      take the duty                   <-- None (wake) ---- it found no task: a slot is free
      _settle: store all that ended   <-- _raised -------- it failed: raised again here"""

import math
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue

from engine import policy
from engine.locks import queue_lock
from engine.model import Task
from engine.policy import RetryPolicy
from engine.schedules import RetryDelay
from engine.store import Gone, Store, StoreError
from engine.values import NamedTuple
from engine.work import handlers, outcomes
from engine.work.claiming import Claimer, Slots
from engine.work.handlers import Context, Handler
from engine.work.outcomes import OutcomeWriter
from engine.work.running_tasks import Claim, FinishedTask, HandlerThreads, Leases
from engine.work.services import REACHED_AGAIN, TimedWrites, WorkerServices

RESCUE_INTERVAL_SECONDS = 60.0
"""Seconds between two rescues of expired leases, for stores without a queue lock."""

HANDLER_GRACE_SECONDS = 30.0
"""Seconds that a handler may exceed its timeout. After that the worker stops renewing its lock, so
that others see it as stuck, and the lease of the handler's task."""


class WorkerResult(NamedTuple):
    """Result of one run."""

    done: int = 0
    failed: int = 0
    refused: Mapping[str, str] = {}
    """Kinds with a due task that was skipped or given back, and the reason."""
    token_at: float | None = None
    """When a skipped task may run, by the limit of its kind or transport; epoch seconds UTC."""
    next_due: float | None = None
    """Time when the next waiting task comes due, epoch seconds UTC."""
    lost: str = ""
    """Why the lock was lost; "" if it was not."""
    gone: int = 0
    """Tasks that another process moved while they ran: their outcome was not stored."""
    owed: int = 0
    """Finished tasks whose outcome the store has not accepted; they are still claimed."""
    lacks: Mapping[str, str] = {}
    """What the worker lacked at the end, by kind of task: no attempt was made."""
    last_failure: str = ""
    """The last failed task: its id, its error, and its new state."""
    unreachable: str = ""
    """Why the queue could not be read at the end; "" if it could, or if the worker was stopped."""


_EXECUTING = {"geoban_apply": "geoban apply", "mail_send": "mail send"}
"""Text of the `Executing:` log line where it is not the task's description (contract)."""


class Worker:
    """A worker on one store; holds the store's queue lock, if it has one."""

    def __init__(
        self,
        store: Store,
        handled: Mapping[str, Handler],
        retry: RetryPolicy,
        *,
        owner: str = "",
        lock: queue_lock.PidLock | None = None,
        concurrency: int = 1,
        services: WorkerServices | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._handled, self._retry = store, handled, retry
        self._lock, self._concurrency = lock, concurrency
        self._services = services or WorkerServices()
        self._clock = clock
        self._leases = Leases(store, lock, self._services.log)
        self._slots = Slots(concurrency, handled, self._services, clock)
        self._outcomes = OutcomeWriter(
            store, retry, self._services, clock, lock=lock, leases=self._leases, slots=self._slots
        )
        self._claimer = Claimer(store, owner, self._slots)
        self._threads = HandlerThreads(self._go_on)
        self._writes = TimedWrites(self._services, clock())
        self._duty = threading.Lock()
        """Held by the thread that uses the store and the fields above and below."""
        self._wakes_at = -math.inf
        """Time at which the worker's own thread ends its wait; -inf while it does not wait."""
        self._raised: Exception | None = None
        """What was raised on the thread of a handler while it had the duty."""
        self._events: SimpleQueue[FinishedTask | None] = SimpleQueue()
        self._stopping = self._cancelled = False
        self._unreachable = ""
        self._away = RetryDelay()
        """Pause of scans after the store was unavailable."""
        self._rescue_rest = RetryDelay()
        """Pause until abandoned tasks are looked for again, without a queue lock."""
        self._fetches = False
        """True if outcomes and the next claims may be one step of the store."""
        self._unrescued: dict[str, str] = {}
        """By task that could not be given back: the reason logged last."""

    # ---- called from any thread or signal handler

    def wake(self) -> None:
        """Wake the worker: scan for work now."""
        self._events.put(None)

    def stop(self) -> None:
        """Claim no more tasks, and end after the running ones; a second call cancels those."""
        self._cancelled = self._stopping
        self._stopping = self._slots.is_closed = True
        self._events.put(None)

    def stop_with_signals(self) -> None:
        """Call `stop` for each SIGTERM, SIGINT and SIGHUP."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop())

    @property
    def is_busy(self) -> bool:
        """True while a handler is running."""
        return self._slots.busy > 0

    # ---- running

    def process_next(self) -> WorkerResult:
        """Process at most one task, for a timer."""
        return self._run(limit=1, until_idle=True)

    def process_all(self, *, until_idle: bool = False) -> WorkerResult:
        """Process tasks until stopped, or until none is due."""
        return self._run(limit=None, until_idle=until_idle)

    def _run(self, *, limit: int | None, until_idle: bool) -> WorkerResult:
        lost = ""
        try:
            if self._lock is not None:
                self._lock.check()
            if self._lock is not None or self._store.claim_rules.return_abandoned is None:
                self.rescue()  # else before the first claim, which is patient
            self._services.apply_retention()
            with self._duty:
                self._work(limit=limit, until_idle=until_idle)
        except queue_lock.LockLost as loss:
            lost = str(loss)
            self._services.log("ALERT", f"{lost}; stopping, nothing touched")
        finally:
            self._threads.end()
            self._services.write_log()
            self._services.write_counts()
        outcomes, slots = self._outcomes, self._slots
        dues = (self._store.changes.next_due, outcomes.put_off_until)
        return WorkerResult(
            outcomes.done,
            outcomes.failed,
            {**outcomes.put_off_why, **slots.refused},
            token_at=slots.token_at,
            next_due=min((due for due in dues if due is not None), default=None),
            lost=lost,
            gone=outcomes.gone,
            owed=len(outcomes.owed),
            lacks=slots.lacks,
            last_failure=outcomes.last_failure,
            unreachable="" if self._stopping else self._unreachable,
        )

    def rescue(self) -> None:
        """Give back abandoned tasks: all claimed tasks if the lock is ours, else those with an
        expired lease, or those that the store's own rules name."""
        now, returns = self._clock(), self._store.claim_rules.return_abandoned
        self._rescue_rest = RetryDelay(since=now, seconds=RESCUE_INTERVAL_SECONDS)
        if returns is not None:
            self._rescue_rest = RetryDelay(since=now, seconds=returns(now) - now)
            return
        taken_over = self._lock.taken_over if self._lock else ""
        reason = f"{handlers.WORKER_ENDED}: {taken_over or 'no trace of it'}"
        known_reasons, self._unrescued = self._unrescued, {}
        for outcome in outcomes.rescue_tasks(
            self._store,
            self._retry,
            now,
            reason=reason,
            dead=lambda task: self._leases.is_abandoned(task, self._clock()),
            giving_up=self._services.before_giving_up,
        ):
            old, new = outcome.move[:2]
            assert old is not None and new is not None
            if outcome.error is not None:
                why = self._unrescued[old.id] = str(outcome.error)
                if known_reasons.get(old.id) != why:
                    self._services.log("ERROR", f"Recovery of {old.id} failed: {why}")
                continue
            if new.state is self._outcomes.end:
                self._services.log("ERROR", self._outcomes.exhausted(old))
                self._outcomes.bury(new)
                self._outcomes.sweep(new._replace(rev=outcome.rev))
            else:
                word = self._store.states[new.state]
                self._services.log("WARN", f"Moving orphaned work task back to {word}: {old.id}")

    def _work(self, *, limit: int | None, until_idle: bool) -> None:
        self._writes = TimedWrites(self._services, self._clock())
        slots, outcomes, fetched = self._slots, self._outcomes, self._claimer.fetched
        claimed = 0
        outcomes.start_run()
        has_step = self._store.claim_rules.swap_and_take is not None
        self._fetches = has_step and limit is None and slots.are_separate()
        while True:
            room = self._concurrency - slots.busy
            if limit is not None:
                room = min(room, limit - (claimed - outcomes.put_off))
            looking = room > 0 and not self._stopping
            is_patient = limit is None and not self._stopping
            outcomes.settle_owed(forced=self._stopping, logs=is_patient)
            # A run that would end for lack of work scans even during the pause.
            rests = not until_idle or slots.busy > 0
            began = 0
            # A worker without room looks for tasks of ended workers, too.
            rescues = not self._stopping and self._lock is None
            if looking or fetched or (rescues and self._rescue_rest.is_over(self._clock())):
                began = self._try_claim(room, patient=limit is None, rests=rests)
            claimed += began
            # A task given back does not count: the run is for another one.
            is_free = not slots.busy and not fetched
            if is_free and (self._stopping or claimed - outcomes.put_off == limit):
                return
            now = self._clock()
            waits = limit is None and not (self._stopping or self._unreachable)
            if (
                not slots.busy
                and until_idle
                and not began
                and not (waits and self._claimer.is_limited(now, self._services.log))
            ):
                outcomes.settle_owed(forced=True, logs=False)
                return
            self._writes.write_due(now, idle=not slots.busy, stays=limit is None)
            patience = self._patience(now, looking=looking)
            if limit is None:
                self._wakes_at = now + patience
            self._await(patience)

    def _patience(self, now: float, *, looking: bool) -> float:
        """Seconds to wait for an event before the next timed action."""
        until = [now + queue_lock.HEARTBEAT_SECONDS]
        until += [owed.delay.until for owed in self._outcomes.owed]
        until += [claim.renew_at for claim in self._leases.claims]
        if looking and self._unreachable:
            until.append(self._away.until)
        elif looking:  # there may be a task to claim
            changes = self._store.changes
            coming = (now + changes.rescan_seconds, changes.next_due, self._slots.token_at)
            until += (moment for moment in coming if moment is not None)
        if self._lock is None and not self._stopping:
            until.append(max(self._rescue_rest.until, self._away.until))
        return max(0.05, min(until) - now)

    def _await(self, seconds: float) -> None:
        """Wait for an event, and settle all tasks finished by then."""
        events = []
        self._duty.release()
        try:
            with suppress(Empty):
                events.append(self._events.get(timeout=seconds))
        finally:
            self._wakes_at = -math.inf
            self._duty.acquire()
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        while not self._events.empty():  # an exception a task would cost more
            events.append(self._events.get_nowait())
        self._settle([event for event in events if event is not None])  # None: only a wake-up
        self._leases.renew(self._clock())

    # ---- one task

    def _try_claim(self, room: int, *, patient: bool, rests: bool) -> int:
        """Start the fetched tasks, then claim and start up to `room` in all; return how many. With
        `patient`, an unavailable store is logged and tried again later."""
        now, began, claimer = self._clock(), 0, self._claimer
        if rests and not self._away.is_over(now) and not claimer.fetched:
            return 0  # a failing disk is not scanned again for each new mail
        try:
            while claimer.fetched:
                began += self._start(claimer.fetched.popleft())
            if self._lock is None and self._rescue_rest.is_over(now):
                self.rescue()
            if began < room and not self._stopping:
                if self._lock is not None:
                    self._lock.check()
                claimer.start_scan(self._clock(), room - began)
                while began < room and (task := claimer.next_task()) is not None:
                    began += self._start(task)
                if self._services.quarantine(lambda: self._stopping):
                    self.wake()  # the next ones, after the tasks that are due by then
        except (StoreError, OSError) as error:
            if not patient:
                raise
            self._unreachable = str(error)
            claimer.end_scan()
            self._away = self._away.longer(now, self._store.claim_rules.retry_seconds)
            message = f"Queue cannot be reached: {error}, retry in {self._away.seconds:.0f}s"
            self._services.log("ERROR", message)
            while claimer.fetched:
                self._outcomes.give_back(Claim(claimer.fetched.popleft(), now))
            return began
        if self._away.refusals:
            self._services.log("INFO", REACHED_AGAIN)
            self._unreachable, self._away = "", RetryDelay()
        return began

    def _start(self, task: Task) -> int:
        limits, now = self._services.limits, self._clock()
        claim, data = Claim(task, now), None
        self._leases.claims.add(claim)
        self._slots.keep_promise(task.kind)
        try:
            # Without one, another process took the last token.
            has_token = limits is None or limits.spend(task.kind)
            if has_token and task.kind in self._services.data_kinds:
                data = self._store.claim_rules.read_data(task)
        except Gone:
            has_token = False
        except (StoreError, OSError):
            self._outcomes.give_back(claim)
            raise
        if not has_token:
            self._outcomes.give_back(claim)
            return 0
        log = self._services.log
        waited = policy.waited_seconds(task, now) if self._services.logs_waits else None
        wait = "" if waited is None else f", waited {waited:.1f}s"
        log("INFO", f"Processing task: {task.id} ({task.kind}: {task.description}){wait}")
        if task.kind in self._handled:
            log("INFO", f"Executing: {_EXECUTING.get(task.kind, task.description)}")
        self._slots.occupy(task.kind)
        timeout = self._services.timeouts.get(task.kind, math.inf)
        claim.deadline = now + timeout + HANDLER_GRACE_SECONDS
        handler = self._handled.get(task.kind, handlers.fail_unknown_kind)
        lock_fds = (self._lock.fd,) if self._lock is not None else ()
        context = Context(
            lock_fds,
            lambda: self._cancelled or claim.is_lost,
            lambda _: self._leases.latest(claim),
            data,
        )
        self._services.write_log()
        try:
            self._threads.start((handler, claim, context), self._slots.busy)
        except handlers.Lacking as lack:
            self._events.put(FinishedTask(claim, lack))
        if claim.renew_at < self._wakes_at:
            self._events.put(None)
        return 1

    def _go_on(self, finished: FinishedTask) -> None:
        """On the thread of a handler that has ended: store its outcome, and claim the next task for
        this thread. All that is not as usual is left to the worker's own thread."""
        # Of several tasks that end meanwhile, the worker's thread makes one group commit; always if
        # the store claims lots, which need few round trips.
        is_single = self._concurrency == 1
        in_lots = not is_single and self._store.claim_rules.claims_lots
        if in_lots or not self._duty.acquire(blocking=is_single):
            self._events.put(finished)
            return
        if self._wakes_at == -math.inf:  # it has work, or has ended
            self._duty.release()
            self._events.put(finished)
            return
        is_full = False
        try:
            self._settle([finished])
            now = self._clock()
            self._leases.renew(now)
            room = self._concurrency - self._slots.busy
            stays = not self._stopping and not self._outcomes.owed
            is_full = stays and self._try_claim(room, patient=True, rests=True) >= room
            if is_full:
                self._writes.write_due(now, idle=False, stays=True)
        except Exception as error:
            self._raised, is_full = error, False
        finally:
            if not is_full:  # for a free slot, the end of its wait was not computed
                self._wakes_at = -math.inf  # no other handler's thread goes on before it
                self._events.put(None)
            self._duty.release()

    def _settle(self, finished: list[FinishedTask]) -> None:
        """Store the outcomes of finished tasks in one group commit."""
        if not finished:
            return
        for claim, *_ in finished:
            self._slots.release(claim.task.kind)
            claim.deadline = math.inf
        if self._lock is not None:
            self._lock.check()
        swap = self._outcomes.swap
        if self._fetches and not self._claimer.fetched and not self._stopping:
            room = self._concurrency - self._slots.busy
            swap = partial(self._claimer.swap_and_fetch, now=self._clock(), room=room)
        self._outcomes.store([self._outcomes.outcome_of(each) for each in finished], swap)
