"""The worker: claim due tasks, run their handlers, store each outcome with compare-and-swap.

Handlers run on threads of their own, which are reused, so that the queue lock and the leases of the
tasks are renewed while they run. One thread at a time uses the store, the one that holds
`Worker._duty`: the worker's own, or that of a handler which has just ended. It stores the outcome
and claims the next task itself, as two switches of threads cost more than both.
"""

import math
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from engine import policy, verbs
from engine.locks import queue_lock
from engine.model import AttemptReport, Move, Outcome, State, Task
from engine.policy import RetryPolicy, exponential_backoff
from engine.store import Gone, Store, StoreError, require_edge
from engine.text.safe import contract_error, state_name
from engine.work import handlers, reports, rescuer
from engine.work.handlers import Context, Failed, Fatal, Handler, Postponed, Retry

RETENTION_INTERVAL_SECONDS = 3600.0
"""Seconds between two retention runs."""

RESCUE_INTERVAL_SECONDS = 60.0
"""Seconds between two rescues of expired leases, for stores without a queue lock."""

METRICS_INTERVAL_SECONDS = 5.0
"""Seconds between two writes of the metrics while there is always work."""

COUNTS_INTERVAL_SECONDS = 1.0
"""Seconds between two writes of the counters while there is always work: a killed worker loses no
more."""

RESCAN_INTERVAL_SECONDS = 5.0
"""Seconds after which `take` is restarted, so that older tasks that came due meanwhile are not
missed; each start scans the whole folder.
"""

HANDLER_GRACE_SECONDS = 30.0
"""Seconds that a handler may exceed its timeout. After that the worker stops renewing its lock, so
that others see it as stuck, and the lease of the handler's task.
"""


def refusal_delay_seconds(refusals: int, first: float = 60.0) -> float:
    """Return the seconds until a refused store operation is tried again: 60, 120, 240, ... up to
    15 times the first, without a limit on the number of retries.
    """
    wait = exponential_backoff(first, 15 * first, sys.maxsize)(refusals)
    assert wait is not None, "the retry limit is sys.maxsize"
    return wait


class RateLimits(Protocol):
    """Rate limits by kind; `engine.locks.token_buckets.TokenBuckets` shares them between
    processes."""

    def is_limited(self, kind: str) -> bool:
        """False if a kind needs no tokens."""
        ...

    def ready(self, kind: str) -> bool:
        """True if a token is available; takes none."""
        ...

    def spend(self, kind: str) -> bool:
        """Take a token; False if there is none."""
        ...

    def token_at(self, kind: str) -> float:
        """Time of the next token, epoch seconds UTC."""
        ...


class WorkerServices(NamedTuple):
    """Callbacks and settings that the worker gets besides its store."""

    log: Callable[[str, str], None] = lambda level, text: None
    """Writes one line to the queue's log: level and text."""
    alert: Callable[[str], None] = lambda text: None
    """Sends an alert to the operator when a task goes to the dead-letter queue."""
    add_count: Callable[[str], None] = lambda name: None
    """Adds 1 to one of the counters processed, failed, retries, dlq (`_total`)."""
    write_log: Callable[[], None] = lambda: None
    """Writes the lines that `log` kept back; called before a handler starts, before the worker
    waits, and at the end."""
    write_counts: Callable[[], None] = lambda: None
    """Writes the counts that `add_count` kept back; called when the worker is idle, at the end, and
    every `COUNTS_INTERVAL_SECONDS`."""
    publish: Callable[[], None] = lambda: None
    """Writes the metrics."""
    apply_retention: Callable[[], None] = lambda: None
    """Applies retention: deletes tasks that have been dead for too long."""
    quarantine: Callable[[], None] = lambda: None
    """Quarantines unreadable files found by the last take; called only under the lock."""
    limits: RateLimits | None = None
    before_giving_up: Callable[[Task], None] = lambda task: None
    """Called before a task is stored as given up, with the new value. If it raises StoreError or
    OSError, the task stays claimed and the call is repeated later.
    """
    shorten_error: Callable[[str], str] = contract_error
    """Shortens an error for the task file and the log: the contract allows few characters."""
    gate: Callable[[str], tuple[str, float | None]] = lambda kind: ("", None)
    """Returns why no task of a kind may be claimed now ("" if one may), and the time from which one
    may, epoch seconds UTC (None: not known). Never raises; called once per kind and scan.
    """
    slots: Mapping[str, int] = {}
    """Maximum number of concurrent tasks of a kind, if not 1 or the total."""
    timeouts: Mapping[str, float] = {}
    """Seconds after which the handler of a kind ends by itself; not known for other kinds."""
    data_kinds: Collection[str] = ()
    """Kinds whose handlers get the task's data, if the store has any."""
    logs_waits: bool = False
    """Adds the wait to the log line of a start. The contract's line has none: its ids have the time
    of creation.
    """


class WorkerResult(NamedTuple):
    """Result of one run."""

    done: int = 0
    failed: int = 0
    refused: Mapping[str, str] = {}
    """Kinds with a due task that was skipped or given back, and the reason."""
    token_at: float | None = None
    """Earliest time at which a skipped task may run, by the rate limit of its kind or of its
    handler's transport; epoch seconds UTC.
    """
    next_due: float | None = None
    """Time when the next waiting task comes due, epoch seconds UTC."""
    lost: str = ""
    """Why the lock was lost; "" if it was not."""
    gone: int = 0
    """Tasks that another process moved while they ran: their outcome was not stored."""
    owed: int = 0
    """Finished tasks whose outcome the store has not accepted; they are still claimed."""
    last_failure: str = ""
    """The last failed task: its id, its error, and its new state."""
    unreachable: str = ""
    """Why the queue could not be read at the end; "" if it could, or if the worker was stopped."""


class _Claim:
    """A claimed task, from `take` until its outcome is stored."""

    __slots__ = ("deadline", "is_lost", "lease_seconds", "renew_at", "task")

    def __init__(self, task: Task, now: float) -> None:
        self.task = task
        """As claimed, or as last renewed."""
        self.deadline = math.inf
        """The time by which its handler must have ended."""
        lease = task.lease
        until = lease.until if lease is not None else None
        self.lease_seconds = math.inf if lease is None or until is None else until - lease.since
        self.renew_at = now + self.lease_seconds / 3
        """The time at which its lease must be extended."""
        self.is_lost = False
        """True if the lease was lost to another process."""


class _AskedKinds:
    """The kinds that a store asked for during one scan for claims, or together with outcomes."""

    __slots__ = ("gates", "promised", "refused", "token_at")

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        """Kinds that must not be claimed, and the reason."""
        self.gates: dict[str, tuple[str, float | None]] = {}
        """Result of `WorkerServices.gate` by kind."""
        self.promised: dict[str, int] = {}
        """Tasks by kind that a store which claims lots may claim."""
        self.token_at: float | None = None
        """The earliest time at which a refused kind may be claimed; None: not known."""


class _FinishedTask(NamedTuple):
    claim: _Claim
    failure: Exception | None
    result: object = None


class _Job(NamedTuple):
    """A handler to run, and what it gets."""

    handler: Handler
    claim: _Claim
    context: Context


class _RetryDelay(NamedTuple):
    """Pause before a refused store operation is tried again."""

    refusals: int = 0
    """Consecutive refusals."""
    since: float = 0.0
    seconds: float = 0.0

    @property
    def until(self) -> float:
        """Time of the next try."""
        return self.since + self.seconds

    def is_over(self, now: float) -> bool:
        """True if it may be tried again, also if the clock was set back."""
        return not 0 <= now - self.since < self.seconds

    def longer(self, now: float, first: float) -> "_RetryDelay":
        """Return the next pause, after one more refusal; the first one is `first` seconds long."""
        return _RetryDelay(self.refusals + 1, now, refusal_delay_seconds(self.refusals, first))


class _Owed(NamedTuple):
    """An outcome that the store has not accepted yet."""

    claim: _Claim
    new: Task | None
    then: Callable[[], None] | None
    """Counting and logging to do once it is stored; None if the task was not run."""
    given_up: bool = False
    """True if the task goes to its final state."""
    report: AttemptReport | None = None
    rest: _RetryDelay = _RetryDelay()
    """No pause at first: the first retry is immediate."""


class _HandlerThreads:
    """Threads that run handlers, each one after another."""

    def __init__(self, go_on: Callable[[_FinishedTask], None]) -> None:
        """`go_on` is called on the thread of each handler that has ended."""
        self._go_on = go_on
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._number = 0
        """Threads that wait for a job or run one, each until it gets None."""

    def start(self, job: _Job, busy: int) -> None:
        """Run a handler; `busy` of them run now, with this one."""
        if busy > self._number:
            self._number += 1
            jobs = (self._jobs,)
            threading.Thread(target=self._run, args=jobs, name="handlers", daemon=True).start()
        self._jobs.put(job)

    def end(self) -> None:
        """End each thread; a hanging handler keeps its thread and its queue."""
        for _ in range(self._number):
            self._jobs.put(None)
        self._jobs, self._number = SimpleQueue(), 0

    def _run(self, jobs: "SimpleQueue[_Job | None]") -> None:
        while (job := jobs.get()) is not None:
            failure: Exception | None = None
            result: object = None
            try:
                result = job.handler(job.claim.task, job.context)
            except Exception as error:
                # Any exception of a handler fails its task, never the worker.
                failure = error
            self._go_on(_FinishedTask(job.claim, failure, result))


class _TimedWrites:
    """The writes of a run that are due from time to time."""

    def __init__(self, services: WorkerServices, now: float) -> None:
        self._services = services
        self._retired = self._published = self._counted = now

    def write_due(self, now: float, *, idle: bool, stays: bool) -> None:
        """Write the log, and the counts if idle or if the last ones are old. With `stays`, also
        the metrics, and apply retention if it is time."""
        if idle or now - self._counted >= COUNTS_INTERVAL_SECONDS:
            self._services.write_counts()
            self._counted = now
        if stays and (idle or now - self._published >= METRICS_INTERVAL_SECONDS):
            self._services.publish()
            self._published = now
        if stays and now - self._retired >= RETENTION_INTERVAL_SECONDS:
            self._services.apply_retention()
            self._retired = now
        self._services.write_log()


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
        self._owner, self._lock, self._concurrency = owner, lock, concurrency
        self._services = services or WorkerServices()
        self._end = verbs.given_up_state(store.edges)
        self._clock = clock
        self._duty = threading.Lock()
        """Held by the thread that uses the store and the fields below."""
        self._wakes_at = -math.inf
        """Time at which the worker's own thread ends its wait; -inf while it does not wait."""
        self._raised: Exception | None = None
        """What was raised on the thread of a handler while it had the duty."""
        self._events: SimpleQueue[_FinishedTask | None] = SimpleQueue()
        self._threads = _HandlerThreads(self._go_on)
        self._running: defaultdict[str, int] = defaultdict(int)
        """Running handlers by kind."""
        self._busy = 0
        """Running handlers."""
        self._stopping = self._cancelled = False
        self._done = self._failed = self._gone = 0
        self._last_failure = ""
        self._asked = _AskedKinds()
        self._put_off = 0
        """Tasks of this run that were given back without an attempt."""
        self._put_off_why: dict[str, str] = {}
        self._put_off_until: float | None = None
        """Time when the first of them is due again."""
        self._unreachable = ""
        self._away = _RetryDelay()
        """Pause of scans after the store was unavailable."""
        self._rescue_rest = _RetryDelay()
        """Pause until abandoned tasks are looked for again, without a queue lock."""
        self._fetches = False
        """True if outcomes and the next claims may be one step of the store: no kind can keep
        another one from its slots."""
        self._fetched: deque[Task] = deque()
        """Tasks that were claimed together with outcomes and are not started yet."""
        self._writes = _TimedWrites(self._services, clock())
        self._taking: Iterator[Task] | None = None
        self._taken_since = 0.0
        self._owed: list[_Owed] = []
        self._claims: set[_Claim] = set()
        """Running tasks, and tasks whose outcome is not stored yet."""
        self._renewing = threading.Lock()
        """Held while the leases in the store are newer than those in `_claims`."""
        self._unrescued: dict[str, str] = {}
        """By task that could not be given back: the reason logged last."""

    # ---- called from any thread or signal handler

    def wake(self) -> None:
        """Wake the worker: scan for work now."""
        self._events.put(None)

    def stop(self) -> None:
        """Claim no more tasks and end when the running ones are done; a second call cancels those
        too.
        """
        self._cancelled = self._stopping
        self._stopping = True
        self._events.put(None)

    @property
    def is_busy(self) -> bool:
        """True while a handler is running."""
        return self._busy > 0

    # ---- running

    def process_next(self) -> WorkerResult:
        """Process at most one task, for a timer."""
        return self._guarded(lambda: self._work(limit=1, until_idle=True))

    def process_all(self, *, until_idle: bool = False) -> WorkerResult:
        """Process tasks until stopped, or until none is due."""
        return self._guarded(lambda: self._work(limit=None, until_idle=until_idle))

    def _guarded(self, run: Callable[[], None]) -> WorkerResult:
        lost = ""
        try:
            if self._lock is not None:
                self._lock.check()
            if self._lock is not None or self._store.claim_rules.return_abandoned is None:
                self.rescue()  # else before the first claim, which is patient
            self._services.apply_retention()
            with self._duty:
                run()
        except queue_lock.LockLost as loss:
            lost = str(loss)
            self._services.log("ALERT", f"{lost}; stopping, nothing touched")
        finally:
            self._threads.end()
            self._services.write_log()
            self._services.write_counts()
        dues = [
            due for due in (self._store.changes.next_due, self._put_off_until) if due is not None
        ]
        return WorkerResult(
            self._done,
            self._failed,
            {**self._put_off_why, **self._asked.refused},
            self._asked.token_at,
            min(dues, default=None),
            lost,
            self._gone,
            len(self._owed),
            self._last_failure,
            "" if self._stopping else self._unreachable,
        )

    def rescue(self) -> None:
        """Give back abandoned tasks: all claimed tasks if the lock is ours, else those with an
        expired lease, or those that the store's own rules name.
        """
        now, returns = self._clock(), self._store.claim_rules.return_abandoned
        self._rescue_rest = _RetryDelay(since=now, seconds=RESCUE_INTERVAL_SECONDS)
        if returns is not None:
            self._rescue_rest = _RetryDelay(since=now, seconds=returns(now) - now)
            return
        taken_over = self._lock.taken_over if self._lock else ""
        reason = f"{handlers.WORKER_ENDED}: {taken_over or 'no trace of it'}"
        said, self._unrescued = self._unrescued, {}
        for outcome in rescuer.rescue_tasks(
            self._store,
            self._retry,
            self._clock(),
            reason,
            self._is_dead,
            self._services.before_giving_up,
        ):
            old, new = outcome.move[:2]
            assert old is not None and new is not None
            if outcome.error is not None:
                why = self._unrescued[old.id] = str(outcome.error)
                if said.get(old.id) != why:
                    self._services.log("ERROR", f"Recovery of {old.id} failed: {why}")
                continue
            if new.state is self._end:
                self._services.log("ERROR", self._exhausted(old))
                self._buried(new)
                self._sweep(new._replace(rev=outcome.rev))
            else:
                word = self._store.states[new.state]
                self._services.log("WARN", f"Moving orphaned work task back to {word}: {old.id}")

    def _is_dead(self, task: Task) -> bool:
        """True if no worker runs a claimed task any more."""
        if self._lock is not None:
            return True
        # A lease without an end ends with its owner; without a lock we are the only worker.
        until = task.lease.until if task.lease is not None else None
        ours = any(claim.task.id == task.id for claim in self._claims)
        return not ours and (until is None or until <= self._clock())

    def _sweep(self, task: Task) -> None:
        """Delete a DONE task in stores that keep finished tasks."""
        if task.state is not State.DONE or self._store.claim_rules.done_state is State.DONE:
            return
        try:
            self._store.swap(task, None)
        except Gone:
            return  # another process has deleted it
        except (StoreError, OSError) as error:
            self._services.log("ERROR", f"{task.id} is finished, but still there: {error}")

    def _work(self, *, limit: int | None, until_idle: bool) -> None:
        self._writes = _TimedWrites(self._services, self._clock())
        claimed = self._put_off = 0
        self._put_off_why, self._put_off_until = {}, None
        most, slots = self._concurrency, self._services.slots
        wanted = sum(min(most, slots.get(kind, most)) for kind in self._handled)
        self._fetches = limit is None and wanted <= most
        while True:
            room = self._concurrency - self._busy
            if limit is not None:
                room = min(room, limit - (claimed - self._put_off))
            looking = room > 0 and not self._stopping
            self._settle_owed(stays=limit is None)
            # A run that would end for lack of work scans even during the pause.
            rests = not until_idle or self._busy > 0
            began = 0
            # A worker without room looks for tasks of ended workers, too.
            if (
                looking
                or self._fetched
                or (
                    not self._stopping
                    and self._lock is None
                    and self._rescue_rest.is_over(self._clock())
                )
            ):
                began = self._try_claim(room, patient=limit is None, rests=rests)
            claimed += began
            # A task given back does not count: the run is for another one.
            is_free = not self._busy and not self._fetched
            if is_free and (self._stopping or claimed - self._put_off == limit):
                return
            now = self._clock()
            if not self._busy and until_idle and not began:
                self._settle_owed(stays=False, last=True)
                return
            self._writes.write_due(now, idle=not self._busy, stays=limit is None)
            patience = self._patience(now, looking=looking)
            if limit is None:
                self._wakes_at = now + patience
            self._await(patience)

    def _patience(self, now: float, *, looking: bool) -> float:
        """Seconds to wait for an event before the next timed action."""
        until = [now + queue_lock.HEARTBEAT_SECONDS, *(owed.rest.until for owed in self._owed)]
        until += [claim.renew_at for claim in self._claims]
        if looking and self._unreachable:
            until.append(self._away.until)
        elif looking:  # there may be a task to claim
            changes = self._store.changes
            coming = (now + changes.rescan_seconds, changes.next_due, self._asked.token_at)
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
        self._renew(self._clock())

    def _renew(self, now: float) -> None:
        """Renew the lock's heartbeat while no handler exceeds its deadline: otherwise the lock
        must age, so that others see this worker as stuck.

        Extend the leases of which a third is over, but none of a hanging handler. A lost lease
        cancels its handler.
        """
        if self._lock is not None and not any(claim.deadline < now for claim in self._claims):
            self._lock.renew()
        due = [claim for claim in self._claims if claim.renew_at <= now]
        if not due:
            return
        for claim in due:
            claim.renew_at = now + claim.lease_seconds / 3
        alive = [claim for claim in due if now <= claim.deadline]
        for seconds in {claim.lease_seconds for claim in alive}:
            equal = [claim for claim in alive if claim.lease_seconds == seconds]
            try:
                with self._renewing:
                    outcomes = self._store.renew([claim.task for claim in equal], now + seconds)
                    for claim, outcome in zip(equal, outcomes, strict=True):
                        self._renewed(claim, outcome)
            except (StoreError, OSError) as error:
                self._services.log("ERROR", f"Leases cannot be extended: {error}")

    def _renewed(self, claim: _Claim, outcome: Outcome) -> None:
        ident, error = claim.task.id, outcome.error
        if isinstance(error, Gone):
            claim.is_lost, claim.renew_at = True, math.inf
            why = "another process changed the task; cancelled, its outcome is not stored"
            self._services.log("WARN", f"Lease of {ident} lost: {why}")
        elif error is not None:
            self._services.log("ERROR", f"Lease of {ident} cannot be extended: {error}")
        else:
            assert outcome.move.new is not None
            claim.task = outcome.move.new

    # ---- one task

    def _try_claim(self, room: int, *, patient: bool, rests: bool) -> int:
        """Like `_create_claimed`; with `patient`, an unavailable store is logged and tried again
        later."""
        now = self._clock()
        if rests and not self._away.is_over(now) and not self._fetched:
            return 0  # a failing disk is not scanned again for each new mail
        try:
            if self._lock is None and self._rescue_rest.is_over(now):
                self.rescue()
            began = self._claim(room)
        except (StoreError, OSError) as error:
            if not patient:
                raise
            self._unreachable, self._taking = str(error), None
            self._away = self._away.longer(now, self._store.claim_rules.retry_seconds)
            message = f"Queue cannot be reached: {error}, retry in {self._away.seconds:.0f}s"
            self._services.log("ERROR", message)
            return 0
        if self._unreachable:
            self._services.log("INFO", "Queue is reached again")
        self._unreachable, self._away = "", _RetryDelay()
        return began

    def _claim(self, room: int) -> int:
        """Start the fetched tasks, claim and start up to `room` in all; return how many."""
        began = 0
        while self._fetched:
            began += self._start(self._fetched.popleft())
        if began >= room or self._stopping:
            return began
        self._asked = _AskedKinds()
        if self._lock is not None:
            self._lock.check()
        now, in_lots = self._clock(), self._store.claim_rules.claims_lots
        is_old = not 0 <= now - self._taken_since < RESCAN_INTERVAL_SECONDS
        if self._taking is None or is_old or in_lots:
            limit = room - began if in_lots else sys.maxsize
            self._taking = self._store.take(now, self._owner, limit, self._wants)
            self._taken_since = now
        while began < room:
            task = next(self._taking, None)
            if task is None:
                self._taking = None
                break
            began += self._start(task)
        self._services.quarantine()
        return began

    def _wants(self, kind: str, group: str) -> bool:
        why = self._unwanted(kind)
        if why:
            self._asked.refused[kind] = why
        elif self._store.claim_rules.claims_lots:
            self._asked.promised[kind] = self._asked.promised.get(kind, 0) + 1
        return not why

    def _unwanted(self, kind: str) -> str:
        """Reason why no task of this kind may be claimed now; "" if one may."""
        if self._stopping:
            return "the worker is stopping"
        contract = kind in handlers.CONTRACT_KINDS
        if contract and kind not in self._handled:
            return "no handler configured"
        slots = 1 if contract else self._services.slots.get(kind, self._concurrency)
        if self._running[kind] + self._asked.promised.get(kind, 0) >= slots:
            return "one is running already" if slots == 1 else f"{slots} are running already"
        if kind not in self._asked.gates:
            self._asked.gates[kind] = self._services.gate(kind)
        shut, until = self._asked.gates[kind]
        limits = self._services.limits
        if not shut and limits is not None and limits.is_limited(kind):
            if self._asked.promised.get(kind):
                shut = "one token at a time"
            elif not limits.ready(kind):
                shut, until = "no token", limits.token_at(kind)
        if shut and until is not None:
            self._asked.token_at = (
                until if self._asked.token_at is None else min(self._asked.token_at, until)
            )
        return shut

    def _start(self, task: Task) -> int:
        limits, now = self._services.limits, self._clock()
        claim, data = _Claim(task, now), None
        self._claims.add(claim)
        if self._asked.promised.get(task.kind):
            self._asked.promised[task.kind] -= 1
        try:
            # Without one, another process took the last token.
            has_token = limits is None or limits.spend(task.kind)
            if has_token and task.kind in self._services.data_kinds:
                data = self._store.claim_rules.read_data(task)
        except Gone:
            has_token = False
        except (StoreError, OSError):
            self._store_outcomes([_Owed(claim, verbs.unclaim(task), None)])
            raise
        if not has_token:
            self._store_outcomes([_Owed(claim, verbs.unclaim(task), None)])
            return 0
        log = self._services.log
        waited = policy.waited_seconds(task, now) if self._services.logs_waits else None
        wait = "" if waited is None else f", waited {waited:.1f}s"
        log("INFO", f"Processing task: {task.id} ({task.kind}: {task.description}){wait}")
        if task.kind in self._handled:
            log("INFO", f"Executing: {_EXECUTING.get(task.kind, task.description)}")
        self._running[task.kind] += 1
        self._busy += 1
        timeout = self._services.timeouts.get(task.kind, math.inf)
        claim.deadline = now + timeout + HANDLER_GRACE_SECONDS
        handler = self._handled.get(task.kind, handlers.fail_unknown_kind)
        inherit = (self._lock.fd,) if self._lock is not None else ()
        context = Context(
            inherit, lambda: self._cancelled or claim.is_lost, lambda _: self._latest(claim), data
        )
        self._services.write_log()
        self._threads.start(_Job(handler, claim, context), self._busy)
        if claim.renew_at < self._wakes_at:
            self._events.put(None)
        return 1

    def _go_on(self, finished: _FinishedTask) -> None:
        """On the thread of a handler that has ended: store its outcome, and claim the next task for
        this thread. All that is not as usual is left to the worker's own thread.
        """
        # Of several tasks that end meanwhile, the worker's thread makes one group commit; always if
        # the store claims lots, which need few round trips.
        is_single = self._concurrency == 1
        in_lots = self._store.claim_rules.claims_lots and not is_single
        if in_lots or not self._duty.acquire(blocking=is_single):
            self._events.put(finished)
            return
        try:
            if self._wakes_at == -math.inf:
                self._events.put(finished)  # it has work, or has ended
                return
            self._settle([finished])
            now = self._clock()
            self._renew(now)
            room = self._concurrency - self._busy
            stays = not self._stopping and not self._owed
            if stays and self._try_claim(room, patient=True, rests=True):
                self._writes.write_due(now, idle=False, stays=True)
            else:
                self._events.put(None)
        except Exception as error:
            self._raised = error
            self._events.put(None)
        finally:
            self._duty.release()

    def _latest(self, claim: _Claim) -> Task:
        with self._renewing:
            return claim.task

    def _settle(self, finished: list[_FinishedTask]) -> None:
        """Store the outcomes of finished tasks in one group commit."""
        if not finished:
            return
        for claim, *_ in finished:
            self._running[claim.task.kind] -= 1
            self._busy -= 1
            claim.deadline = math.inf
        if self._lock is not None:
            self._lock.check()
        self._store_outcomes([self._outcome_of(each) for each in finished])

    def _outcome_of(self, finished: _FinishedTask) -> _Owed:
        claim, failure, result = finished
        task, rules = claim.task, self._store.claim_rules
        if failure is None or claim.is_lost:
            done = rules.done_state
            new = None if done is None else verbs.complete(task, done)
            report, why = reports.report_result(result) if rules.keeps_reports else (None, "")
            if why:
                self._services.log("WARN", f"Result of {task.id} not kept: {why}")
            return _Owed(claim, new, lambda: self._completed(task), report=report)
        if isinstance(failure, Postponed):
            return self._postponed(claim, failure)
        self._failed += 1
        error = self._services.shorten_error(_words(failure))
        self._services.add_count("failed_total")
        self._services.log("ERROR", f"Task failed: {task.id} ({task.kind}): {error}")
        report = reports.report_failure(failure) if rules.keeps_reports else None
        return self._given_up_or_waiting(claim, failure, error)._replace(report=report)

    def _completed(self, task: Task) -> None:
        self._done += 1
        self._services.add_count("processed_total")
        self._services.log("SUCCESS", f"Task completed: {task.id} ({task.kind})")

    def _postponed(self, claim: _Claim, later: Postponed) -> _Owed:
        """Give back a task that was not attempted, due at least one second later: else it would be
        claimed again immediately, for ever.
        """
        task, why = claim.task, self._services.shorten_error(str(later))
        due = max(int(self._clock()) + 1.0, later.due)
        self._put_off += 1
        self._put_off_why[task.kind] = why
        self._put_off_until = min(due, self._put_off_until or due)
        return _Owed(
            claim,
            verbs.postpone(task, due, why),
            lambda: self._services.log("INFO", f"Task {task.id} waits: {why}"),
        )

    def _given_up_or_waiting(self, claim: _Claim, failure: Exception, error: str) -> _Owed:
        task, now = claim.task, self._clock()
        retry = _policy_of(self._store, task, self._retry)
        fatal = isinstance(failure, Fatal)
        if fatal:
            new = verbs.give_up_task(task, error, retry.final_attempts, self._end)
        else:
            new = rescuer.task_after_failure(task, error, retry, now, self._end)
            if isinstance(failure, Retry) and new.state is State.PENDING:
                new = verbs.nack(task, int(now) + failure.after, error)

        failed = f"{task.id} ({task.kind}) failed: {error}"

        def died() -> None:
            self._last_failure = f"{failed}; moved to {self._end_word}"
            cannot = f"Task {task.id} cannot succeed, moving to {self._end_word}"
            self._services.log("ERROR", cannot if fatal else self._exhausted(task))
            self._buried(new)

        def waits() -> None:
            self._services.add_count("retries_total")
            wait = int(new.due or 0) - int(now)
            tried = f"attempt {_run_of(task, retry)}"
            waiting = self._store.states[State.PENDING]
            self._last_failure = f"{failed}; back in {waiting}, {tried}, retry in {wait}s"
            self._services.log("WARN", f"Task {task.id} failed ({tried}), retry in {wait}s")

        given_up = new.state is self._end
        return _Owed(claim, new, died if given_up else waits, given_up)

    @property
    def _end_word(self) -> str:
        """Name of the final state: the contract's log has `DLQ`."""
        return state_name(self._store.states[self._end])

    def _exhausted(self, task: Task) -> str:
        run = _run_of(task, _policy_of(self._store, task, self._retry))
        return f"Task {task.id} exhausted retries ({run}), moving to {self._end_word}"

    def _buried(self, task: Task) -> None:
        self._services.add_count("dlq_total")
        after = f"after {task.attempts} retries"
        where = self._end_word
        self._services.alert(f"Task moved to {where}: {task.id} ({task.kind}) {after}")

    def _store_outcomes(self, owed: list[_Owed]) -> None:
        """Replace claimed tasks by their outcomes, now or once the store is available."""
        for one, error in self._swap_all(owed):
            # If this worker ends before that, the next worker gives the task back.
            ident = one.claim.task.id
            self._services.log("ERROR", f"Outcome of {ident} cannot be stored: {error}")
            self._owed.append(one)

    def _settle_owed(self, *, stays: bool, last: bool = False) -> None:
        """Try again to store pending outcomes, each on its own: one that makes its group fail must
        not delay the others. With `stays`, failures are logged with the next try; with `last`,
        before the worker ends, all are tried.
        """
        owed, self._owed = self._owed, []
        for one in owed:
            if self._lock is not None:
                self._lock.check()
            if not (last or self._stopping or one.rest.is_over(self._clock())):
                self._owed.append(one)
                continue
            for _, error in self._swap_all([one]):
                rest = one.rest.longer(self._clock(), self._store.claim_rules.retry_seconds)
                self._owed.append(one._replace(rest=rest))
                if stays and not self._stopping:
                    why = f"cannot be stored: {error}, retry in {rest.seconds:.0f}s"
                    self._services.log("ERROR", f"Outcome of {one.claim.task.id} {why}")

    def _swap_moves(self, moves: list[Move]) -> Iterable[Outcome]:
        """Swap, and claim the next tasks in the same step if the store has one."""
        swap_and_take = self._store.claim_rules.swap_and_take
        room = self._concurrency - self._busy - len(self._fetched)
        if swap_and_take is None or not self._fetches or room <= 0:
            if len(moves) > 1 or moves[0].report is not None:
                return self._store.swap_all(moves)
            # The usual case, and no group: a refusal is an exception.
            return [Outcome(moves[0], self._store.swap(moves[0].old, moves[0].new))]
        self._asked = _AskedKinds()
        outcomes, tasks = swap_and_take(moves, self._clock(), self._owner, room, self._wants)
        self._fetched += tasks
        return outcomes

    def _swap_all(self, owed: list[_Owed]) -> list[tuple[_Owed, Exception]]:
        """Replace claimed tasks by their outcomes in group commits; return those that the store
        refused, with the reason.
        """
        refused: list[tuple[_Owed, Exception]] = []
        for one, (move, rev, error) in _swaps(
            self._store, owed, self._services.before_giving_up, self._clock(), self._swap_moves
        ):
            if error is not None and not isinstance(error, Gone):
                refused.append((one, error))
                continue
            self._claims.discard(one.claim)
            if error is not None:
                ident = one.claim.task.id
                self._services.log("WARN", f"Task {ident} is not where it was claimed; left alone")
                self._gone += one.then is not None
                continue
            if one.then is not None:
                one.then()
            if move.new is not None:
                self._sweep(move.new._replace(rev=rev))
        return refused


def _swaps(
    store: Store,
    owed: list[_Owed],
    before_giving_up: Callable[[Task], None],
    now: float,
    swap_all: Callable[[list[Move]], Iterable[Outcome]],
) -> Iterator[tuple[_Owed, Outcome]]:
    """Store outcomes by `swap_all`: each has an answer of its own, so that one that is refused
    does not delay the others.
    """
    ready: list[tuple[_Owed, Move]] = []
    for one in owed:
        task = one.claim.task
        new = None if one.new is None else one.new._replace(rev=task.rev)
        move = Move(task, new, report=one.report)
        try:
            if one.claim.is_lost:
                raise Gone(task.id)
            if one.given_up and move.new is not None:
                require_edge(store.edges, task, move.new, now)
                before_giving_up(move.new)
        except (StoreError, OSError) as error:
            yield one, Outcome(move, error=error)
        else:
            ready.append((one, move))
    stored = 0
    try:
        for outcome in swap_all([move for _, move in ready]) if ready else ():
            stored += 1
            yield ready[stored - 1][0], outcome
    except (StoreError, OSError) as error:
        for one, move in ready[stored:]:
            yield one, Outcome(move, error=error)


def _policy_of(store: Store, task: Task, configured: RetryPolicy) -> RetryPolicy:
    return store.claim_rules.retry_policy(task) or configured


def _run_of(task: Task, retry: RetryPolicy) -> str:
    """Number of the failed run, with the maximum if there is one: `2/4`."""
    run = (task.attempts or 0) + 1
    return f"{run}/{retry.max_runs}" if retry.max_runs else f"{run}"


def _words(failure: Exception) -> str:
    if isinstance(failure, Failed):
        return str(failure)
    return f"{type(failure).__name__}: {failure}"
