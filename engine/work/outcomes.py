"""Outcomes of tasks: what a finished or abandoned task becomes, and its storing with
compare-and-swap, again and again while the store refuses it; its report (`AttemptReport`): a
result as JSON, or a trace.

The modules that reports need are imported for stores that keep them only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from engine import verbs
from engine.locks import queue_lock
from engine.model import AttemptReport, Move, Outcome, State, Task
from engine.policy import RetryPolicy
from engine.schedules import RetryDelay
from engine.store import Gone, Store, StoreError, require_edge
from engine.text.safe import safe_lines, state_name
from engine.values import NamedTuple
from engine.work.claiming import Slots
from engine.work.handlers import Failed, Fatal, HandlerResult, Lacking, Postponed, Retry
from engine.work.running_tasks import Claim, FinishedTask, Leases
from engine.work.services import WorkerServices


def task_after_failure(
    task: Task, error: str, retry: RetryPolicy, now: float, end: State = State.DEAD
) -> Task:
    """Return a task after a failed attempt: pending again after its backoff, or in its final state.
    `end` is the final state of the store (`verbs.given_up_state`)."""
    due = retry.next_due(task, now)
    if due is None:
        return verbs.give_up_task(task, error, retry.final_attempts, end)
    return verbs.nack(task, due, error)


def rescue_tasks(
    store: Store,
    retry: RetryPolicy,
    now: float,
    reason: str,
    dead: Callable[[Task], bool] = lambda task: True,
    giving_up: Callable[[Task], None] = lambda task: None,
) -> list[Outcome]:
    """Count one failed attempt for each claimed task for which `dead` is true; by default for all,
    which is only right while holding the queue lock.

    `retry` is for tasks without a policy of their own. Without that count, a task that kills its
    worker each time would be retried for ever. `giving_up` is called with each task that will not
    be retried, before it is stored, unless the store would refuse the change."""
    end = verbs.given_up_state(store.edges)
    orphans = [
        task
        for task in store.scan({store.states[State.ACTIVE]})
        if isinstance(task, Task) and task.state is State.ACTIVE and dead(task)
    ]
    ready, unready = [], []
    for task in orphans:
        new = task_after_failure(task, reason, _policy_of(store, task, retry), now, end)
        try:
            if new.state is end:
                require_edge(store.edges, task, new, now)
                giving_up(new)
            ready.append(Move(task, new))
        except (StoreError, OSError) as error:
            # it stays claimed until `giving_up` succeeds
            unready.append(Outcome(Move(task, new), error=error))
    return [*unready, *store.swap_all(ready)]


MAX_RESULT_CHARACTERS = 64 * 1024
"""A longer result is not kept."""
MAX_TRACE_CHARACTERS = 8 * 1024
"""Of a longer trace the end is kept."""


def report_result(result: object) -> tuple[AttemptReport | None, str]:
    """The report of a task that was done, and why its result is not in it ("" if it is). Bytes are
    the output of a program: a JSON value, or text."""
    import json

    value = _parse_output(result) if isinstance(result, bytes) else result
    if value is None:
        return None, ""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"not JSON: {error}"
    if len(text) > MAX_RESULT_CHARACTERS:
        return None, f"{len(text):,} characters, at most {MAX_RESULT_CHARACTERS:,} are kept"
    return AttemptReport(result=text.encode("utf-8", "replace").decode()), ""


def _parse_output(output: bytes) -> object:
    import json

    text = output.decode("utf-8", "replace").strip()
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def report_failure(failure: BaseException) -> AttemptReport:
    """The report of a failure: text and details of a `Failed`, else the stack trace."""
    import traceback

    if isinstance(failure, Failed):
        text = f"{type(failure).__name__}: {failure}"
        if failure.details not in ("", str(failure)):
            text += f"\n{failure.details}"
    else:
        text = "".join(traceback.format_exception(failure))
    return AttemptReport(trace="\n".join(safe_lines(text))[-MAX_TRACE_CHARACTERS:])


class Owed(NamedTuple):
    """An outcome that the store has not accepted yet."""

    claim: Claim
    new: Task | None
    then: Callable[[], None] | None
    """Counting and logging to do once it is stored; None if the task was not run."""
    given_up: bool = False
    """True if the task goes to its final state."""
    report: AttemptReport | None = None
    row: str = ""
    """Key of the database row to remove once it is stored; "" for none."""
    delay: RetryDelay = RetryDelay()
    """No pause at first: the first retry is immediate."""


class OutcomeWriter:
    """Stores the outcomes of a worker's tasks; counts and logs them."""

    def __init__(
        self,
        store: Store,
        retry: RetryPolicy,
        services: WorkerServices,
        clock: Callable[[], float],
        lock: queue_lock.PidLock | None,
        leases: Leases,
        slots: Slots,
    ) -> None:
        """`leases` has the claims, each until its outcome is stored."""
        self._store, self._retry, self._services, self._slots = store, retry, services, slots
        self._clock, self._lock, self._leases = clock, lock, leases
        self.end = verbs.given_up_state(store.edges)
        """The final state of a task that is given up."""
        self._end_word = state_name(store.states[self.end])
        """Its name: the contract's log has `DLQ`."""
        self.owed: list[Owed] = []
        self.done = self.failed = self.gone = 0
        self.last_failure = ""
        self.put_off = 0
        """Tasks of this run that were given back without an attempt."""
        self.put_off_why: dict[str, str] = {}
        self.put_off_until: float | None = None
        """Time when the first of them is due again."""

    def start_run(self) -> None:
        """Forget the tasks that an earlier run gave back."""
        self.put_off, self.put_off_why, self.put_off_until = 0, {}, None

    def outcome_of(self, finished: FinishedTask) -> Owed:
        """What a finished task becomes."""
        claim, failure, result = finished
        task, rules = claim.task, self._store.claim_rules
        if failure is None or claim.is_lost:
            done, row = rules.done_state, ""
            if isinstance(result, HandlerResult):
                result, row = result
            new = None if done is None else verbs.complete(task, done)
            report, why = report_result(result) if rules.keeps_reports else (None, "")
            if why:
                self._services.log("WARN", f"Result of {task.id} not kept: {why}")
            return Owed(claim, new, lambda: self._completed(task), report=report, row=row)
        if isinstance(failure, Postponed):
            return self._postponed(claim, failure)
        if isinstance(failure, Lacking):
            return self._lacking(claim, failure)
        self._slots.end_rest(task.kind)
        self.failed += 1
        error = self._services.shorten_error(_words(failure))
        self._services.add_count("failed_total")
        self._services.log("ERROR", f"Task failed: {task.id} ({task.kind}): {error}")
        report = report_failure(failure) if rules.keeps_reports else None
        row = failure.row if isinstance(failure, Fatal) else ""
        return self._given_up_or_waiting(claim, failure, error)._replace(report=report, row=row)

    def _completed(self, task: Task) -> None:
        self._slots.end_rest(task.kind)
        self.done += 1
        self._services.add_count("processed_total")
        self._services.log("SUCCESS", f"Task completed: {task.id} ({task.kind})")

    def _postponed(self, claim: Claim, later: Postponed) -> Owed:
        """Give back a task without an attempt, due in a second or later: else claimed for ever."""
        task, why = claim.task, self._services.shorten_error(str(later))
        due = max(int(self._clock()) + 1.0, later.due)
        self.put_off += 1
        self.put_off_why[task.kind] = why
        self.put_off_until = min(due, self.put_off_until or due)
        return Owed(
            claim,
            verbs.postpone(task, due, why),
            lambda: self._services.log("INFO", f"Task {task.id} waits: {why}"),
        )

    def _lacking(self, claim: Claim, failure: Lacking) -> Owed:
        """Give back a task without an attempt; its kind rests, with a line and an alert."""
        task, lack = claim.task, self._services.shorten_error(str(failure))
        self.put_off += 1
        if self._slots.pause_kind(task.kind, lack, self._clock()):
            self._services.log("ERROR", f"Not tried: {task.kind}: {lack}")
            self._services.alert(f"{lack}: {task.kind} waits, no attempt is counted")
        return Owed(claim, verbs.unclaim(task), None)

    def _given_up_or_waiting(self, claim: Claim, failure: BaseException, error: str) -> Owed:
        task, now = claim.task, self._clock()
        retry = _policy_of(self._store, task, self._retry)
        fatal = isinstance(failure, Fatal)
        if fatal:
            new = verbs.give_up_task(task, error, retry.final_attempts, self.end)
        else:
            new = task_after_failure(task, error, retry, now, self.end)
            if isinstance(failure, Retry) and new.state is State.PENDING:
                new = verbs.nack(task, int(now) + failure.after, error)

        failed = f"{task.id} ({task.kind}) failed: {error}"

        def died() -> None:
            self.last_failure = f"{failed}; moved to {self._end_word}"
            cannot = f"Task {task.id} cannot succeed, moving to {self._end_word}"
            self._services.log("ERROR", cannot if fatal else self.exhausted(task))
            self.bury(new)

        def waits() -> None:
            self._services.add_count("retries_total")
            wait = int(new.due or 0) - int(now)
            tried = f"attempt {_run_of(task, retry)}"
            waiting = self._store.states[State.PENDING]
            self.last_failure = f"{failed}; back in {waiting}, {tried}, retry in {wait}s"
            self._services.log("WARN", f"Task {task.id} failed ({tried}), retry in {wait}s")

        given_up = new.state is self.end
        return Owed(claim, new, died if given_up else waits, given_up)

    def exhausted(self, task: Task) -> str:
        """The line of the log for a task without another attempt."""
        run = _run_of(task, _policy_of(self._store, task, self._retry))
        return f"Task {task.id} exhausted retries ({run}), moving to {self._end_word}"

    def bury(self, task: Task) -> None:
        """Count a task that was given up, and alert the operator."""
        self._services.add_count("dlq_total")
        after = f"after {task.attempts} retries"
        where = self._end_word
        self._services.alert(f"Task moved to {where}: {task.id} ({task.kind}) {after}")

    def store(self, owed: list[Owed], swap: Callable[[list[Move]], Iterable[Outcome]]) -> None:
        """Replace claimed tasks by their outcomes, now or once the store is available."""
        for one, error in self._swap_all(owed, swap):
            # If this worker ends before that, the next worker gives the task back.
            ident = one.claim.task.id
            self._services.log("ERROR", f"Outcome of {ident} cannot be stored: {error}")
            self.owed.append(one)

    def settle_owed(self, *, forced: bool, logs: bool) -> None:
        """Try again to store pending outcomes, each on its own: one that makes its group fail must
        not delay the others. With `forced` all are tried, also during their pauses; with `logs`,
        failures are logged with the next try."""
        owed, self.owed = self.owed, []
        for one in owed:
            if self._lock is not None:
                self._lock.check()
            if not (forced or one.delay.is_over(self._clock())):
                self.owed.append(one)
                continue
            for _, error in self._swap_all([one], self.swap):
                delay = one.delay.longer(self._clock(), self._store.claim_rules.retry_seconds)
                self.owed.append(one._replace(delay=delay))
                if logs:
                    why = f"cannot be stored: {error}, retry in {delay.seconds:.0f}s"
                    self._services.log("ERROR", f"Outcome of {one.claim.task.id} {why}")

    def swap(self, moves: list[Move]) -> Iterable[Outcome]:
        """Swap in a group commit."""
        if len(moves) > 1 or moves[0].report is not None:
            return self._store.swap_all(moves)
        # The usual case, and no group: a refusal is an exception.
        return [Outcome(moves[0], self._store.swap(moves[0].old, moves[0].new))]

    def _swap_all(
        self, owed: list[Owed], swap: Callable[[list[Move]], Iterable[Outcome]]
    ) -> list[tuple[Owed, Exception]]:
        """Replace claimed tasks by their outcomes; return the refused ones with the reason."""
        refused: list[tuple[Owed, Exception]] = []
        for one, (move, rev, error, _) in _swaps(
            self._store, owed, self._services.before_giving_up, self._clock(), swap
        ):
            if error is not None and not isinstance(error, Gone):
                refused.append((one, error))
                continue
            self._leases.claims.discard(one.claim)
            if error is not None:
                ident = one.claim.task.id
                self._services.log("WARN", f"Task {ident} is not where it was claimed; left alone")
                self.gone += one.then is not None
                continue
            if one.then is not None:
                one.then()
            if one.row:
                self._services.after_outcome(one.claim.task, one.row)
            if move.new is not None:
                self.sweep(move.new._replace(rev=rev))
        return refused

    def give_back(self, claim: Claim) -> None:
        """Return a claimed task without an attempt."""
        self._leases.claims.add(claim)  # its lease is renewed until that is stored
        self.store([Owed(claim, verbs.unclaim(claim.task), None)], self.swap)

    def sweep(self, task: Task) -> None:
        """Delete a DONE task in stores that keep finished tasks."""
        if task.state is not State.DONE or self._store.claim_rules.done_state is State.DONE:
            return
        try:
            self._store.swap(task, None)
        except Gone:
            return  # another process has deleted it
        except (StoreError, OSError) as error:
            self._services.log("ERROR", f"{task.id} is finished, but still there: {error}")


def _swaps(
    store: Store,
    owed: list[Owed],
    before_giving_up: Callable[[Task], None],
    now: float,
    swap_all: Callable[[list[Move]], Iterable[Outcome]],
) -> Iterator[tuple[Owed, Outcome]]:
    """Store outcomes by `swap_all`, each with its own answer: a refused one delays no other."""
    ready: list[tuple[Owed, Move]] = []
    for one in owed:
        task = one.claim.task
        new = None if one.new is None else one.new._replace(rev=task.rev)
        move = Move(task, new, b"", one.report)  # a keyword costs more
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
    return store.claim_rules.retry_policy(task) or configured.of_kind(task.kind)


def _run_of(task: Task, retry: RetryPolicy) -> str:
    """Number of the failed run, with the maximum if there is one: `2/4`."""
    run = (task.attempts or 0) + 1
    return f"{run}/{retry.max_runs}" if retry.max_runs else f"{run}"


def _words(failure: BaseException) -> str:
    if isinstance(failure, Failed):
        return str(failure)
    text = f"{type(failure).__name__}: {failure}".removesuffix(": ")
    return text if isinstance(failure, Exception) else f"the handler raised {text}"
