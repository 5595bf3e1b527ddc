"""The worker: takes due tasks, has them handled, and swaps each for its outcome.

The thread that runs it is the only one that touches the store; handlers run on threads of their
own, so that the lock is renewed while they take their time.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol

from engine import verbs
from engine.locks import queue_lock
from engine.model import State, Task
from engine.policy import RetryPolicy, exponential
from engine.store import Gone, Store, StoreError, permit
from engine.text.safe import plain_error
from engine.work import handlers, rescuer
from engine.work.handlers import Context, Failed, Fatal, Handler, Later, Retry

HOUSEKEEPING = 3600.0
"""Seconds between two looks for dead tasks past their time."""

RESCUING = 60.0
"""Seconds between two looks for leases that have lapsed, where no lock says that none is alive."""

PUBLISHING = 5.0
"""Seconds between two writings of the metrics while there is always work."""

RELIST = 5.0
"""Seconds for which a take goes on before it is begun anew, so that older tasks that have come due
since are not passed by; beginning costs a look at the whole folder.
"""

_AGAIN = exponential(60.0, 900.0, sys.maxsize)

SLACK = 30.0
"""Seconds that a handler gets beyond its timeout to be ended, before the worker owns up to hanging
and lets its lock grow old.
"""


def again(refusals: int) -> float:
    """Seconds until what a disk or a database has refused so many times before, and now once more,
    is tried again: 60, 120, 240, ... up to a quarter of an hour, and never given up.
    """
    wait = _AGAIN(refusals)
    assert wait is not None, "nobody refuses so often"
    return wait


class Limits(Protocol):
    """Token buckets by kind; `engine.locks.token_buckets.Buckets` keeps them for all processes."""

    def ready(self, kind: str) -> bool:
        """Whether a token is there, nothing spent."""
        ...

    def spend(self, kind: str) -> bool:
        """Take a token; False, and nothing taken, when there is none."""
        ...

    def token_at(self, kind: str) -> float:
        """When one is there, epoch seconds UTC."""
        ...


class Services(NamedTuple):
    """What the worker is handed besides its store: how to tell others what happens."""

    log: Callable[[str, str], None] = lambda level, text: None
    """Level and text of one line of the queue's log."""
    alert: Callable[[str], None] = lambda text: None
    """Tells whoever is on call, besides the log: a task was given up on."""
    tally: Callable[[str], None] = lambda name: None
    """Raises one of the counters processed, failed, retries, dlq (`_total`) by one."""
    publish: Callable[[], None] = lambda: None
    """Writes the metrics."""
    retire: Callable[[], None] = lambda: None
    """Removes what has been dead for too long."""
    tidy: Callable[[], None] = lambda: None
    """Sets aside what the last take met and could not read; called only under the lock."""
    limits: Limits | None = None
    giving_up: Callable[[Task], None] = lambda task: None
    """Told of each task that is not tried again, as it will stand, before its store has it: what
    must be done first is done here. Where it raises StoreError or OSError, the task stays claimed
    and that is tried again.
    """
    clean: Callable[[str], str] = plain_error
    """What an error is stored and logged as: the contract's queues keep few characters of it."""
    gate: Callable[[str], tuple[str, float | None]] = lambda kind: ("", None)
    """Why no task of a kind may be claimed now, whoever handles it, "" when one may; and from when
    on one may, epoch seconds UTC, None where nobody knows. Raises nothing, and is asked once for
    each look at the queue.
    """
    slots: Mapping[str, int] = {}
    """How many tasks of a kind may run at once, where more than one may or fewer than all."""
    timeouts: Mapping[str, float] = {}
    """Seconds after which the handler of a kind ends by itself; of others nothing is known."""


class Run(NamedTuple):
    """What one run came to."""

    done: int = 0
    failed: int = 0
    refused: Mapping[str, str] = {}
    """Kinds of which a due task was passed over or given back, and why."""
    token_at: float | None = None
    """When the first of those that lack only a token may go on, whether it is their kind's or, as
    the gate says, one of what would handle them; epoch seconds UTC.
    """
    next_due: float | None = None
    """When the next of those that wait comes due, epoch seconds UTC."""
    lost: str = ""
    """How the lock was lost; "" when it was not."""
    gone: int = 0
    """Tasks that were taken away while they ran: whatever came of them was not stored."""
    owed: int = 0
    """Tasks that were handled, but whose outcome the store did not take; they are still claimed."""
    last_failure: str = ""
    """The last failed task: its id, its error, and where it is now."""
    unreachable: str = ""
    """Why the queue could not be looked at when the run was over; "" when it could, or when the
    worker was told to end."""


class _FinishedTask(NamedTuple):
    task: Task
    failure: Exception | None


class _RetryDelay(NamedTuple):
    """For how long the store is not asked for something again that it has refused."""

    refusals: int = 0
    """How often in a row."""
    since: float = 0.0
    seconds: float = 0.0

    @property
    def until(self) -> float:
        """When it is asked again."""
        return self.since + self.seconds

    def is_over(self, now: float) -> bool:
        """Whether it may be asked again; a clock that was set back does not keep us waiting."""
        return not 0 <= now - self.since < self.seconds

    def longer(self, now: float) -> "_RetryDelay":
        """The rest after one more refusal."""
        return _RetryDelay(self.refusals + 1, now, again(self.refusals))


class _Owed(NamedTuple):
    """An outcome that the store has not taken yet."""

    task: Task
    new: Task | None
    then: Callable[[], None] | None
    """What is counted and logged once it has; None where the task was not run."""
    given_up: bool = False
    """Whether it is not tried again."""
    rest: _RetryDelay = _RetryDelay()
    """None at first: what was refused once is tried again at once."""


_EXECUTING = {"geoban_apply": "geoban apply", "mail_send": "mail send"}
"""What the log says is executed, where that is not the description (contract log lines)."""


class Worker:
    """One worker on one store, which holds the store's lock, if that has one."""

    def __init__(
        self,
        store: Store,
        handled: Mapping[str, Handler],
        retry: RetryPolicy,
        *,
        owner: str = "",
        lock: queue_lock.PidLock | None = None,
        concurrency: int = 1,
        services: Services | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store, self._handled, self._retry = store, handled, retry
        self._owner, self._lock, self._concurrency = owner, lock, concurrency
        self._services = services or Services()
        self._end = verbs.last_state(store.edges)
        self._clock = clock
        self._events: SimpleQueue[_FinishedTask | None] = SimpleQueue()
        self._in_hand: Counter[str] = Counter()
        self._stopping = self._cancelled = False
        self._done = self._failed = self._gone = 0
        self._last_failure = ""
        self._refused: dict[str, str] = {}
        self._gates: dict[str, tuple[str, float | None]] = {}
        """What the gate said of each kind at this look."""
        self._put_off = 0
        """Tasks of this run that were given back without having been attempted."""
        self._put_off_why: dict[str, str] = {}
        self._put_off_until: float | None = None
        """When the first of them is due again."""
        self._token_at: float | None = None
        self._unreachable = ""
        self._away = _RetryDelay()
        """Until when the store is not looked at, since it could not be reached."""
        self._rescued = clock()
        self._taking: Iterator[Task] | None = None
        self._taken_since = 0.0
        self._owed: list[_Owed] = []
        self._until: dict[str, float] = {}
        """By task in hand: when its handler must have ended, whatever happens."""
        self._ours: set[str] = set()
        """Ids of the tasks in hand, and of those whose outcome is owed."""
        self._unrescued: dict[str, str] = {}
        """By task that could not be given back: why, as it was said last."""

    # ---- told from outside, from any thread or signal handler

    def ring(self) -> None:
        """Something happened: look for work now."""
        self._events.put(None)

    def stop(self) -> None:
        """Claim nothing more and end when what is in hand is done; a second time: end that too."""
        self._cancelled = self._stopping
        self._stopping = True
        self._events.put(None)

    @property
    def is_busy(self) -> bool:
        """Whether a handler is still at work."""
        return self._in_hand.total() > 0

    # ---- running

    def process_next(self) -> Run:
        """One task at most, as a timer asks for it."""
        return self._guarded(lambda: self._work(limit=1, until_idle=True))

    def work(self, *, until_idle: bool = False) -> Run:
        """Task after task until stopped, or until nothing is due."""
        return self._guarded(lambda: self._work(limit=None, until_idle=until_idle))

    def _guarded(self, run: Callable[[], None]) -> Run:
        lost = ""
        try:
            if self._lock is not None:
                self._lock.check()
            self.rescue()
            self._rescued = self._clock()
            self._services.retire()
            run()
        except queue_lock.Lost as loss:
            lost = str(loss)
            self._services.log("ALERT", f"{lost}; stopping, nothing touched")
        dues = [due for due in (self._store.doorbell.due, self._put_off_until) if due is not None]
        return Run(
            self._done,
            self._failed,
            {**self._put_off_why, **self._refused},
            self._token_at,
            min(dues, default=None),
            lost,
            self._gone,
            len(self._owed),
            self._last_failure,
            "" if self._stopping else self._unreachable,
        )

    def rescue(self) -> None:
        """Give back what nobody works on: all, where the lock is ours, else what has lapsed."""
        taken_over = self._lock.taken_over if self._lock else ""
        reason = f"{handlers.WORKER_ENDED}: {taken_over or 'no trace of it'}"
        said, self._unrescued = self._unrescued, {}
        for outcome in rescuer.rescue(
            self._store,
            self._retry,
            self._clock(),
            reason,
            self._is_dead,
            self._services.giving_up,
        ):
            old, new, _ = outcome.move
            assert old is not None and new is not None
            if outcome.error is not None:
                why = self._unrescued[old.id] = str(outcome.error)
                if said.get(old.id) != why:
                    self._services.log("ERROR", f"Recovery of {old.id} failed: {why}")
                continue
            if new.state is self._end:
                self._services.log("ERROR", self._exhausted(old))
                self._buried(new)
                self._sweep(replace(new, rev=outcome.rev))
            else:
                word = self._store.states[new.state]
                self._services.log("WARN", f"Moving orphaned work task back to {word}: {old.id}")

    def _is_dead(self, task: Task) -> bool:
        """Whether nobody works on a claimed task any more."""
        if self._lock is not None:
            return True
        # A claim without an end ends with its owner: without a lock there is none but us.
        until = task.lease.until if task.lease is not None else None
        return task.id not in self._ours and (until is None or until <= self._clock())

    def _sweep(self, task: Task) -> None:
        """Let go of what is finished, where the store keeps it until somebody does."""
        if task.state is not State.DONE:
            return
        try:
            self._store.swap(task, None)
        except Gone:
            return  # somebody else was faster
        except (StoreError, OSError) as error:
            self._services.log("ERROR", f"{task.id} is finished, but still there: {error}")

    def _work(self, *, limit: int | None, until_idle: bool) -> None:
        retired = published = self._clock()
        claimed = self._put_off = 0
        self._put_off_why, self._put_off_until = {}, None
        while True:
            room = self._concurrency - self._in_hand.total()
            if limit is not None:
                room = min(room, limit - (claimed - self._put_off))
            looking = room > 0 and not self._stopping
            self._settle_owed(stays=limit is None)
            # A run that is about to end for want of work looks whatever was refused a moment ago.
            rests = not until_idle or bool(self._in_hand.total())
            began = self._try_claim(room, patient=limit is None, rests=rests) if looking else 0
            claimed += began
            # What was given back was not eligible after all: the run is for another one.
            if not self._in_hand.total() and (self._stopping or claimed - self._put_off == limit):
                return
            now = self._clock()
            idle = not self._in_hand.total()
            if idle and until_idle and not began:
                self._settle_owed(stays=False, last=True)
                return
            if limit is None and (idle or now - published >= PUBLISHING):
                self._services.publish()
                published = now
            if limit is None and now - retired >= HOUSEKEEPING:
                self._services.retire()
                retired = now
            self._await(self._patience(now, looking=looking))

    def _patience(self, now: float, *, looking: bool) -> float:
        """Seconds until something must be done, if nothing happens before."""
        until = [now + queue_lock.RENEWAL, *(owed.rest.until for owed in self._owed)]
        if looking:
            until += self._looks(now)
        return max(0.05, min(until) - now)

    def _looks(self, now: float) -> list[float]:
        """When there may be something to claim."""
        bell = self._store.doorbell
        if self._unreachable:
            return [self._away.until]
        coming = (bell.due, self._token_at)
        return [now + bell.unwatched, *(moment for moment in coming if moment is not None)]

    def _await(self, seconds: float) -> None:
        """Wait for something to happen, and settle whatever has finished by then."""
        try:
            event = self._events.get(timeout=seconds)
            while True:
                if event is not None:
                    self._settle(event)
                event = self._events.get_nowait()
        except Empty:
            pass
        # A sign of life says that all is well: with a handler that cannot be ended it is not, and
        # whoever looks at the lock's age must come to see it.
        if self._lock is not None and not self._hangs:
            self._lock.renew()

    @property
    def _hangs(self) -> bool:
        now = self._clock()
        return any(until < now for until in self._until.values())

    # ---- one task

    def _try_claim(self, room: int, *, patient: bool, rests: bool) -> int:
        """As `_claim`; a patient worker waits for a store that cannot be reached."""
        now = self._clock()
        if rests and not self._away.is_over(now):
            return 0  # whatever rings: a disk that fails is not asked for each mail that comes
        try:
            self._rescue_lapsed(now)
            began = self._claim(room)
        except (StoreError, OSError) as error:
            if not patient:
                raise
            self._unreachable, self._taking = str(error), None
            self._away = self._away.longer(now)
            said = f"Queue cannot be reached: {error}, retry in {self._away.seconds:.0f}s"
            self._services.log("ERROR", said)
            return 0
        if self._unreachable:
            self._services.log("INFO", "Queue is reached again")
        self._unreachable, self._away = "", _RetryDelay()
        return began

    def _rescue_lapsed(self, now: float) -> None:
        """Give back what has lapsed, now and then, where no lock says that nobody works on it."""
        if self._lock is None and not 0 <= now - self._rescued < RESCUING:
            self.rescue()
            self._rescued = now

    def _claim(self, room: int) -> int:
        """Take and start up to `room` tasks; how many were started."""
        self._refused.clear()
        self._gates.clear()
        self._token_at = None
        if self._lock is not None:
            self._lock.check()
        now = self._clock()
        if self._taking is None or not 0 <= now - self._taken_since < RELIST:
            self._taking = self._store.take(now, self._owner, sys.maxsize, self._wants)
            self._taken_since = now
        began = 0
        while began < room:
            task = next(self._taking, None)
            if task is None:
                self._taking = None
                break
            began += self._start(task)
        self._services.tidy()
        return began

    def _wants(self, kind: str, group: str) -> bool:
        why = self._unwanted(kind)
        if why:
            self._refused[kind] = why
        return not why

    def _unwanted(self, kind: str) -> str:
        """Why no task of this kind may be claimed now; "" when one may."""
        if self._stopping:
            return "the worker is stopping"
        contract = kind in handlers.CONTRACT_KINDS
        if contract and kind not in self._handled:
            return "no handler configured"
        slots = 1 if contract else self._services.slots.get(kind, self._concurrency)
        if self._in_hand[kind] >= slots:
            return "one is running already" if slots == 1 else f"{slots} are running already"
        if kind not in self._gates:
            self._gates[kind] = self._services.gate(kind)
        shut, until = self._gates[kind]
        limits = self._services.limits
        if not shut and limits is not None and not limits.ready(kind):
            shut, until = "no token", limits.token_at(kind)
        if shut and until is not None:
            self._token_at = until if self._token_at is None else min(self._token_at, until)
        return shut

    def _start(self, task: Task) -> int:
        limits = self._services.limits
        try:
            spent = limits is None or limits.spend(task.kind)
        except OSError:
            self._store_outcome(task, verbs.unclaim(task))
            raise
        if not spent:
            # Another process was faster with the last token.
            self._store_outcome(task, verbs.unclaim(task))
            return 0
        log = self._services.log
        log("INFO", f"Processing task: {task.id} ({task.kind}: {task.description})")
        if task.kind in self._handled:
            log("INFO", f"Executing: {_EXECUTING.get(task.kind, task.description)}")
        self._in_hand[task.kind] += 1
        self._ours.add(task.id)
        timeout = self._services.timeouts.get(task.kind)
        if timeout is not None:
            self._until[task.id] = self._clock() + timeout + SLACK
        handler = self._handled.get(task.kind, handlers.unknown)
        inherit = (self._lock.fd,) if self._lock is not None else ()
        context = Context(inherit, lambda: self._cancelled)

        def run() -> None:
            failure: Exception | None = None
            try:
                handler(task, context)
            except Exception as error:
                # Whatever a handler raises is its task's failure, never the worker's end.
                failure = error
            self._events.put(_FinishedTask(task, failure))

        threading.Thread(target=run, name=f"handler {task.kind}", daemon=True).start()
        return 1

    def _settle(self, finished: _FinishedTask) -> None:
        task, failure = finished
        self._in_hand[task.kind] -= 1
        self._until.pop(task.id, None)
        log = self._services.log
        if self._lock is not None:
            self._lock.check()
        if failure is None:
            self._store_outcome(task, None, lambda: self._completed(task))
            return
        if isinstance(failure, Later):
            self._postpone(task, failure)
            return
        self._failed += 1
        error = self._services.clean(_words(failure))
        self._services.tally("failed_total")
        log("ERROR", f"Task failed: {task.id} ({task.kind}): {error}")
        self._give_up_or_wait(task, failure, error)

    def _completed(self, task: Task) -> None:
        self._done += 1
        self._services.tally("processed_total")
        self._services.log("SUCCESS", f"Task completed: {task.id} ({task.kind})")

    def _postpone(self, task: Task, later: Later) -> None:
        """Give back what was not attempted; never at once, or it would be taken in a circle."""
        why = self._services.clean(str(later))
        due = max(int(self._clock()) + 1.0, later.due)
        self._put_off += 1
        self._put_off_why[task.kind] = why
        self._put_off_until = min(due, self._put_off_until or due)
        self._store_outcome(
            task,
            verbs.postpone(task, due, why),
            lambda: self._services.log("INFO", f"Task {task.id} waits: {why}"),
        )

    def _give_up_or_wait(self, task: Task, failure: Exception, error: str) -> None:
        now = self._clock()
        fatal = isinstance(failure, Fatal)
        if fatal:
            new = verbs.bury(task, error, self._retry.last_counts, self._end)
        else:
            new = rescuer.outcome_of_failure(task, error, self._retry, now, self._end)
            if isinstance(failure, Retry) and new.state is State.PENDING:
                new = verbs.nack(task, int(now) + failure.after, error)

        failed = f"{task.id} ({task.kind}) failed: {error}"

        def died() -> None:
            self._last_failure = f"{failed}; moved to {self._end_word}"
            cannot = f"Task {task.id} cannot succeed, moving to {self._end_word}"
            self._services.log("ERROR", cannot if fatal else self._exhausted(task))
            self._buried(new)

        def waits() -> None:
            self._services.tally("retries_total")
            wait = int(new.due or 0) - int(now)
            tried = f"attempt {self._run_of(task)}"
            waiting = self._store.states[State.PENDING]
            self._last_failure = f"{failed}; back in {waiting}, {tried}, retry in {wait}s"
            self._services.log("WARN", f"Task {task.id} failed ({tried}), retry in {wait}s")

        given_up = new.state is self._end
        self._store_outcome(task, new, died if given_up else waits, given_up=given_up)

    @property
    def _end_word(self) -> str:
        """Where what is given up on goes to, in the words of the contract's log where it is so."""
        return "DLQ" if self._end is State.DEAD else self._store.states[self._end]

    def _exhausted(self, task: Task) -> str:
        return (
            f"Task {task.id} exhausted retries ({self._run_of(task)}), moving to {self._end_word}"
        )

    def _run_of(self, task: Task) -> str:
        """Which run of a task it was that just failed, and of how many where that is fixed."""
        run = (task.attempts or 0) + 1
        return f"{run}/{self._retry.runs}" if self._retry.runs else f"{run}"

    def _buried(self, task: Task) -> None:
        self._services.tally("dlq_total")
        after = f"after {task.attempts} retries"
        where = self._end_word
        self._services.alert(f"Task moved to {where}: {task.id} ({task.kind}) {after}")

    def _store_outcome(
        self,
        task: Task,
        new: Task | None,
        then: Callable[[], None] | None = None,
        *,
        given_up: bool = False,
    ) -> None:
        """Put the outcome in place of the claimed task, now or when the store can be reached."""
        owed = _Owed(task, new, then, given_up)
        try:
            self._swap(owed)
        except (StoreError, OSError) as error:
            # Should we end before it is stored, the next worker gives the task back.
            self._services.log("ERROR", f"Outcome of {task.id} cannot be stored: {error}")
            self._owed.append(owed)

    def _settle_owed(self, *, stays: bool, last: bool = False) -> None:
        """Try again to store what could not be stored, each for itself: what one of them lacks may
        not hold up the others. A worker that `stays` says when it tries again; the `last` time
        before it ends it tries all of it.
        """
        owed, self._owed = self._owed, []
        for one in owed:
            if self._lock is not None:
                self._lock.check()
            if not (last or self._stopping or one.rest.is_over(self._clock())):
                self._owed.append(one)
                continue
            try:
                self._swap(one)
            except (StoreError, OSError) as error:
                rest = one.rest.longer(self._clock())
                self._owed.append(one._replace(rest=rest))
                if stays and not self._stopping:
                    why = f"cannot be stored: {error}, retry in {rest.seconds:.0f}s"
                    self._services.log("ERROR", f"Outcome of {one.task.id} {why}")

    def _swap(self, owed: _Owed) -> None:
        new = owed.new
        try:
            if owed.given_up and new is not None:
                permit(self._store.edges, owed.task, new)
                self._services.giving_up(new)
            rev = self._store.swap(owed.task, new)
        except Gone:
            self._ours.discard(owed.task.id)
            ident = owed.task.id
            self._services.log("WARN", f"Task {ident} is not where it was claimed; left alone")
            self._gone += owed.then is not None
            return
        self._ours.discard(owed.task.id)
        if owed.then is not None:
            owed.then()
        if new is not None:
            self._sweep(replace(new, rev=rev))


def _words(failure: Exception) -> str:
    if isinstance(failure, Failed):
        return str(failure)
    return f"{type(failure).__name__}: {failure}"
