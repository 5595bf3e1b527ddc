"""`queue recover`: a queue freed of a worker that is stuck or gone, and its tasks given back."""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Collection, Iterator

from engine import verbs
from engine.locks import lock_breaker, queue_lock
from engine.locks.queue_lock import PidLock
from engine.model import LockEvidence, Problem, State, Task, Verdict
from engine.monitor import prometheus
from engine.monitor.metrics_check import LAST_RUN
from engine.policy import at
from engine.stores.nftban import NftbanStore
from engine.stores.nftban.staging import NAME as DESK
from engine.system import files
from engine.text.safe import shown
from engine.work.worker import Worker
from tui.cli.setup.setup import EX_IOERR, Setup, complain

DONE, LEFT_ALONE = 0, 2
"""Exit codes: the queue is free and its tasks are back; the lock stays with whoever has it. Where
the lock is free but something is left that could not be given back, it is EX_IOERR.
"""


def recover(setup: Setup, arguments: Namespace) -> int:
    """Free the queue's lock, finish what was interrupted, give orphaned tasks back."""
    if not arguments.dry_run:
        setup.require_lock()
    store = setup.open()
    try:
        return _recover(setup, store, arguments)
    except (queue_lock.Busy, lock_breaker.UnsafeToSignal) as why:
        evidence = setup.examine_lock()
        complain(f"nothing was taken: {shown(str(why))}; the lock is {evidence.verdict} now")
        return LEFT_ALONE
    finally:
        store.close()


def _recover(setup: Setup, store: NftbanStore, arguments: Namespace) -> int:
    evidence = setup.examine_lock()
    if evidence.verdict is Verdict.UNKNOWN:
        complain(who(evidence))
        return LEFT_ALONE
    _say(f"the lock is {evidence.verdict}: {evidence.reason}")
    # None at all is none to be mistaken for another.
    if arguments.seen not in ("", evidence.seen) and evidence.verdict is not Verdict.FREE:
        raise lock_breaker.UnsafeToSignal("the lock changed hands since it was seen")
    if evidence.verdict is Verdict.HELD:
        complain(who(evidence))
        return LEFT_ALONE
    if not arguments.seen:  # who names the lock has seen its evidence, and the steps
        _show(store, evidence, arguments.hold)
    if evidence.doubt:
        _say(lock_breaker.by_hand(evidence))
        complain(who(evidence))
        return LEFT_ALONE
    if arguments.dry_run:
        _say("nothing was changed")
        return DONE
    if evidence.verdict is Verdict.STUCK and not arguments.yes and not _is_meant(evidence):
        return LEFT_ALONE
    setup.make_folders()
    if evidence.verdict is Verdict.STUCK:
        lock = take_from(setup, store, evidence, _say)
    else:
        lock = queue_lock.acquire(setup.lock_path, setup.queue.stuck_threshold, seen=evidence.seen)
    if evidence.verdict is not Verdict.FREE:
        _say("the lock is taken over")
    with lock:
        _give_back(setup, store, lock, arguments.hold)
        forget_alert(setup)
        left = list(_left(store))
    _say("the lock is free")
    for words in left:
        complain(shown(words))
    return EX_IOERR if left else DONE


def who(evidence: LockEvidence) -> str:
    """A lock that is left alone, in words: who has it, since when, and why nothing is done."""
    since = f", last sign of life {at(evidence.since)}" if evidence.since is not None else ""
    if evidence.verdict is Verdict.STUCK:
        return f"lock stuck: {shown(evidence.reason)}; left alone: {shown(evidence.doubt)}"
    if evidence.verdict is Verdict.UNKNOWN:
        return f"lock unknown: {shown(evidence.reason)}"
    return f"lock held: {shown(evidence.reason)}{since}"


def _show(store: NftbanStore, evidence: LockEvidence, hold: Collection[str]) -> None:
    """Print the evidence, and what follows from it, step by step."""
    for name, words in evidence.facts:
        _say(f"  {name:<18} {words}")
    if evidence.doubt:
        return
    orphans = [
        f"hold {task.id}, which nobody works on"
        if task.id in hold
        else f"count a failed attempt of {task.id}, which nobody works on"
        for task in _in_work(store)
    ]
    for number, step in enumerate((*lock_breaker.ladder(evidence), *orphans), 1):
        _say(f"  step {number:<13} {step}")


def _in_work(store: NftbanStore) -> list[Task]:
    seen = store.look({store.states[State.ACTIVE]})
    return [task for task in seen if isinstance(task, Task) and task.state is State.ACTIVE]


def _is_meant(evidence: LockEvidence) -> bool:
    """Whether the operator types the PID of who is to be ended."""
    wanted = str(evidence.holders[0])
    if not sys.stdin.isatty():
        complain(f"PID {wanted} would be ended: say so with --yes, or ask on a terminal")
        return False
    sys.stdout.write(f"type the PID, {wanted}, to end it and free the lock: ")
    sys.stdout.flush()
    typed = sys.stdin.readline()
    if typed.strip() != wanted:
        complain("that is not the PID: nothing was done")
        return False
    return True


def _give_back(setup: Setup, store: NftbanStore, lock: PidLock, hold: Collection[str]) -> None:
    """Under the lock: what was interrupted is finished, what was claimed is failed once, or held.

    Raises:
        StoreError: a task that is to be held cannot be; none was failed, so none runs again.
    """

    said = []

    def told(level: str, text: str) -> None:
        said.append(text)
        _say(text)
        setup.log(level, text)

    if lock.taken_over:
        told("WARN", f"Removing stale lock ({lock.taken_over})")
    for line in store.recover():
        told("WARN", f"Recovered {line}")
    for task in _in_work(store):
        if task.id in hold:
            store.swap(task, verbs.hold(task, time.time()))
            told("WARN", f"Held: {task.id}, which was in work; it is not run again by itself")
    services = setup.services(store, ran=_last_run(setup))
    Worker(
        store,
        {},
        setup.retry_policy(),
        owner=str(os.getpid()),
        lock=lock,
        services=services._replace(log=told),
    ).rescue()
    for line in store.set_aside(lambda: services.tally("corrupt_total")):
        told("WARN", f"Left out: {line}")
    for line in setup.queue_mail(store, time.time(), always=True):
        told("WARN", line)
    services.publish()
    if not said:
        _say("nothing was left half done")


def _last_run(setup: Setup) -> float:
    """When the queue was last worked, as its metrics say; 0 where they do not: this is no run."""
    try:
        return prometheus.read(setup.queue.queue_metrics).get(LAST_RUN) or 0.0
    except (OSError, prometheus.BadMetrics):
        return 0.0


def _left(store: NftbanStore) -> Iterator[str]:
    """What could not be given back or finished, in words."""
    for found in store.look({store.states[State.ACTIVE]}):
        if isinstance(found, Task):
            yield f"{found.id} is in work still, and nobody works on it"
        elif isinstance(found, Problem):
            yield f"{found.where}: {found.what}; neither given back nor set aside yet"
    for problem in store.misplaced():
        if problem.where.startswith(f"{DESK}/D."):
            yield f"{problem.where}: {problem.what}"


def _say(text: str) -> None:
    print(shown(text), flush=True)


def take_from(
    setup: Setup, store: NftbanStore, evidence: LockEvidence, say: Callable[[str], None]
) -> PidLock:
    """A stuck lock, its holder ended for it; counted, and on record in the queue's log.

    Raises:
        Doubt: its holder is left alone, or does not end; an alert says so, once for each lock.
        Busy: it is in other hands by now.
    """
    # A timer meets the same lock every few minutes: only the first time is news.
    told = _alerted(setup)
    news = _content(told) != evidence.seen
    alert = "ALERT" if news else "DEBUG"
    stuck = f"Queue processor stuck for {evidence.age:.0f}s (PID: {evidence.pid or 'unknown'})"

    def step(text: str) -> None:
        say(text)
        kill = text.removeprefix("SIGKILL to ")
        forced = f"Graceful termination failed, force killing {kill}"
        setup.log(*(("INFO", text) if kill == text else ("WARN", forced)))

    try:
        if not evidence.doubt:
            setup.log(alert, f"{stuck} - initiating auto-recovery")
        lock = lock_breaker.free(
            setup.lock_path,
            setup.queue.stuck_threshold,
            evidence.seen,
            say=step,
            begun=setup.last_claim,
        )
    except lock_breaker.UnsafeToSignal as doubt:
        setup.log(alert, f"{stuck} - left alone: {doubt}")
        if news:
            _remember(told, evidence.seen)
        raise
    forget_alert(setup)
    setup.services(store).tally("lock_recoveries_total")
    setup.log("INFO", "Lock auto-recovery completed")
    return lock


def forget_alert(setup: Setup) -> None:
    """Remove the mark that a lock was alerted of, which is gone now."""
    told = _alerted(setup)
    try:
        folder = files.open_folder(os.path.dirname(told))
        try:
            files.forget(os.path.basename(told), folder)
        finally:
            os.close(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        complain(f"{told}: {error.strerror}; it is only a mark that an alert was given")


def _alerted(setup: Setup) -> str:
    return f"{setup.lock_path}.alerted"


def _content(path: str) -> str:
    """A short text; "" where none can be read."""
    try:
        folder = files.open_folder(os.path.dirname(path))
        try:
            fd = files.open_guarded(os.path.basename(path), folder)
        finally:
            os.close(folder)
        try:
            return files.read_guarded(fd, 256)[0].decode("ascii", "replace")
        finally:
            os.close(fd)
    except (OSError, files.Refused):
        return ""


def _remember(path: str, text: str) -> None:
    try:
        files.publish(path, text.encode())
    except OSError as error:
        complain(f"{path}: {error.strerror}; the alert will come again")
