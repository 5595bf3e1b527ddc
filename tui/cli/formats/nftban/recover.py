"""`queue recover`: free the lock of a stuck or dead worker and recover its tasks."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from functools import partial

from engine import verbs
from engine.formats.base.format import Setup
from engine.formats.nftban.queue_folders import (
    examine_lock,
    last_claim_time,
    open_spool,
    require_lockable,
)
from engine.formats.nftban.staging import STAGING_NAME
from engine.formats.nftban.store import NftbanStore
from engine.locks import lock_breaker, queue_lock
from engine.locks.queue_lock import PidLock
from engine.model import LockEvidence, Problem, State, Task, Verdict
from engine.monitor import prometheus
from engine.monitor.metrics_check import LAST_RUN
from engine.operations import controls
from engine.operations.journal import Intent
from engine.store import StoreError
from engine.system import files
from engine.system.command_errors import EX_IOERR, print_error
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.text.times import format_time
from engine.values import NamedTuple
from engine.work.worker import Worker
from tui.cli.formats.nftban.worker_parts import queue_spooled_mail, worker_services
from tui.cli.setup.output import captured_lines, print_json

DONE, NOT_TAKEN = 0, 2
"""Exit codes: the lock is free and the tasks are recovered; the lock was not taken. If the lock is
free but a task could not be recovered, the code is EX_IOERR."""


class RecoverOptions(NamedTuple):
    """How a lock is to be freed."""

    dry_run: bool
    yes: bool
    """True: end the holder without asking for its PID."""
    can_ask: bool
    seen: str
    hold: Collection[str]
    """Active tasks to hold."""


def recover(
    setup: Setup, *, dry_run: bool, yes: bool, seen: str, hold: list[str], json: bool
) -> int:
    """Free the lock, finish interrupted moves, fail or hold orphaned tasks."""
    if not dry_run:
        require_lockable(setup)
    options = RecoverOptions(dry_run, yes, not json, seen, hold)
    with captured_lines(json) as lines, closing(open_spool(setup)) as store:
        try:
            code = _recover(setup, store, options)
        except (queue_lock.LockBusy, lock_breaker.UnsafeToSignal) as why:
            evidence = examine_lock(setup)
            print_error(f"lock not taken: {safe_line(str(why))}; it is now {evidence.verdict}")
            code = NOT_TAKEN
    if json:
        print_json({"place": setup.place, "dry_run": dry_run, "done": code == DONE, "lines": lines})
    return code


def _recover(setup: Setup, store: NftbanStore, options: RecoverOptions) -> int:
    evidence = examine_lock(setup)
    if evidence.verdict is Verdict.UNKNOWN:
        print_error(describe_lock(evidence))
        return NOT_TAKEN
    _say(f"the lock is {evidence.verdict}: {evidence.reason}")
    # A free lock cannot be confused with another one.
    if options.seen not in ("", evidence.identity) and evidence.verdict is not Verdict.FREE:
        raise lock_breaker.UnsafeToSignal("another process took the lock since the scan")
    if evidence.verdict is Verdict.HELD:
        print_error(describe_lock(evidence))
        return NOT_TAKEN
    if not options.seen:  # with --seen the evidence and steps were shown before
        _show(store, evidence, options.hold)
    if evidence.signal_refusal:
        _say(lock_breaker.manual_advice(evidence))
        print_error(describe_lock(evidence))
        return NOT_TAKEN
    if options.dry_run:
        _say("nothing was changed")
        return DONE
    is_stuck = evidence.verdict is Verdict.STUCK
    if is_stuck and not (options.yes or _confirm_pid(evidence, can_ask=options.can_ask)):
        return NOT_TAKEN
    setup.make_folders()
    with _take_lock(setup, store, evidence) as lock:
        _recover_tasks(setup, store, lock, options.hold)
        forget_alert(setup)
        unrecovered = list(_unrecovered(store))
    _say("the lock is free")
    for words in unrecovered:
        print_error(words)
    return EX_IOERR if unrecovered else DONE


def _take_lock(setup: Setup, store: NftbanStore, evidence: LockEvidence) -> PidLock:
    """Take a lock that is not held. Unless it is free, this is an operation in the journal, but is
    done also if the journal cannot be written."""
    limit, steps, locks = setup.queue.stuck_threshold, list[str](), list[PidLock]()
    user = setup.current_user()

    def say(text: str) -> None:
        steps.append(text)
        _say(text)

    def take() -> str:
        if evidence.verdict is Verdict.STUCK:
            locks.append(take_stuck_lock(setup, store, evidence, say, by=user.name))
        else:
            seen = evidence.identity
            locks.append(queue_lock.acquire_lock(setup.lock_path, limit, seen=seen))
        if evidence.verdict is not Verdict.FREE:
            say("the lock is taken over")
        return "; ".join(steps)

    if evidence.verdict is Verdict.FREE:
        take()
    else:
        target = "" if evidence.pid is None else f"PID {evidence.pid}"
        order = controls.Order(controls.UNLOCK_CONTROL, target)
        intent = Intent(controls.CONTROL_VERB, user, scope=evidence.reason)
        done = controls.run_recorded_action(
            setup.journal(),
            intent,
            order,
            take,
            time.time,
            refusals=(queue_lock.LockBusy, lock_breaker.UnsafeToSignal, StoreError, OSError),
        )
        if done.trouble:
            print_error(f"not recorded: {safe_line(done.trouble)}")
    return locks[0]


def describe_lock(evidence: LockEvidence) -> str:
    """Describe a lock that is not taken: holder, heartbeat, and the reason."""
    since = f", last heartbeat {format_time(evidence.since)}" if evidence.since is not None else ""
    if evidence.verdict is Verdict.STUCK:
        return (
            f"lock stuck: {safe_line(evidence.reason)}; not taken: "
            f"{safe_line(evidence.signal_refusal)}"
        )
    if evidence.verdict is Verdict.UNKNOWN:
        return f"lock unknown: {safe_line(evidence.reason)}"
    return f"lock held: {safe_line(evidence.reason)}{since}"


def _show(store: NftbanStore, evidence: LockEvidence, hold: Collection[str]) -> None:
    """Print the evidence, then the steps of the recovery."""
    for name, words in evidence.facts:
        _say(f"  {name:<18} {words}")
    if evidence.signal_refusal:
        return
    orphans = [
        f"hold {task.id}, which no worker runs"
        if task.id in hold
        else f"count a failed attempt of {task.id}, which no worker runs"
        for task in _in_work(store)
    ]
    for number, step in enumerate((*lock_breaker.planned_steps(evidence), *orphans), 1):
        _say(f"  step {number:<13} {step}")


def _in_work(store: NftbanStore) -> list[Task]:
    scanned = store.scan({store.states[State.ACTIVE]})
    return [task for task in scanned if isinstance(task, Task) and task.state is State.ACTIVE]


def _confirm_pid(evidence: LockEvidence, *, can_ask: bool) -> bool:
    """Ask the operator to type the PID of the process to end."""
    pid = str(evidence.holders[0])
    if not (can_ask and sys.stdin.isatty()):
        print_error(f"PID {pid} would be ended: confirm with --yes, or run this on a terminal")
        return False
    sys.stdout.write(f"type the PID, {pid}, to end it and free the lock: ")
    sys.stdout.flush()
    typed = sys.stdin.readline()
    if typed.strip() != pid:
        print_error("wrong PID: nothing was changed")
        return False
    return True


def _recover_tasks(setup: Setup, store: NftbanStore, lock: PidLock, hold: Collection[str]) -> None:
    """Under the lock: finish interrupted moves, fail each claimed task once, or hold it.

    Raises:
        StoreError: a task could not be held. No task was failed, so none runs again.
    """

    messages = []

    def report_step(level: str, text: str) -> None:
        messages.append(text)
        _say(text)
        setup.log(level, text)

    if lock.taken_over:
        report_step("WARN", f"Removing stale lock ({lock.taken_over})")
    for line in store.recover():
        report_step("WARN", f"Recovered {line}")
    for task in _in_work(store):
        if task.id in hold:
            store.swap(task, verbs.hold(task, time.time()))
            held = f"Held: {task.id}, which was active; it runs again only when released"
            report_step("WARN", held)
    services = worker_services(setup, store, ran=_last_run(setup))
    Worker(
        store,
        {},
        setup.retry_policy(),
        owner=str(os.getpid()),
        lock=lock,
        services=services._replace(log=report_step),
    ).rescue()
    while True:
        for line in store.quarantine_broken(lambda: services.add_count("corrupt_total")):
            report_step("WARN", f"Skipped: {line}")
        if not store.has_broken:
            break
    for line in queue_spooled_mail(setup, store, always=True):
        report_step("WARN", line)
    services.publish()
    if not messages:
        _say("no interrupted moves or claimed tasks")


def _last_run(setup: Setup) -> float:
    """Time of the last run in the metrics file; 0 if unknown. A recovery is no run."""
    try:
        return prometheus.read_metrics(setup.queue.queue_metrics).get(LAST_RUN) or 0.0
    except (OSError, prometheus.BadMetrics):
        return 0.0


def _unrecovered(store: NftbanStore) -> Iterator[str]:
    """Yield a message for each task or staging file that could not be recovered."""
    for scanned in store.scan({store.states[State.ACTIVE]}):
        if isinstance(scanned, Task):
            yield f"{scanned.id} is still in work/, and no worker runs it"
        elif isinstance(scanned, Problem):
            yield f"{scanned.where}: {scanned.what}; not recovered and not quarantined"
    for problem in store.find_misplaced():
        if problem.where.startswith(f"{STAGING_NAME}/D."):
            yield f"{problem.where}: {problem.what}"


def _say(text: str) -> None:
    print(safe_line(text), flush=True)


def take_stuck_lock(
    setup: Setup,
    store: NftbanStore,
    evidence: LockEvidence,
    say: Callable[[str], None],
    by: str = "",
) -> PidLock:
    """Take a stuck lock by ending its holder; log and count it. `by`: the operator who does it; ""
    for a worker that met it.

    Raises:
        UnsafeToSignal: the holder is not signalled, or does not end; logged as ALERT once per lock.
        LockBusy: another process has the lock now.
    """
    # A timer meets the same lock every few minutes: alert only once.
    marker = _alert_marker(setup)
    news = _read_short(marker) != evidence.identity
    alert = "ALERT" if news else "DEBUG"
    stuck = f"Queue processor stuck for {evidence.age:.0f}s (PID: {evidence.pid or 'unknown'})"

    def step(text: str) -> None:
        say(text)
        kill = text.removeprefix("SIGKILL to ")
        forced = f"Graceful termination failed, force killing {kill}"
        setup.log(*(("INFO", text) if kill == text else ("WARN", forced)))

    try:
        if not evidence.signal_refusal:
            started = f"recovery by {safe_line(by)}" if by else "initiating auto-recovery"
            setup.log(alert, f"{stuck} - {started}")
        lock = lock_breaker.free_lock(
            setup.lock_path,
            setup.queue.stuck_threshold,
            evidence.identity,
            say=step,
            begun=partial(last_claim_time, setup),
        )
    except lock_breaker.UnsafeToSignal as doubt:
        setup.log(alert, f"{stuck} - not taken: {doubt}")
        if news:
            _write_marker(marker, evidence.identity)
        raise
    forget_alert(setup)
    services = worker_services(setup, store)
    services.add_count("lock_recoveries_total")
    services.write_counts()
    setup.log("INFO", "Lock recovery completed" if by else "Lock auto-recovery completed")
    return lock


def forget_alert(setup: Setup) -> None:
    """Remove the marker file of an alert about a lock that is gone."""
    marker = _alert_marker(setup)
    try:
        folder = files.open_folder(os.path.dirname(marker))
        try:
            files.unlink_quietly(os.path.basename(marker), folder)
        finally:
            os.close(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        print_error(f"{marker}: {error_text(error)}; only the marker of an alert")


def _alert_marker(setup: Setup) -> str:
    return f"{setup.lock_path}.alerted"


def _read_short(path: str) -> str:
    """Content of a short text file; "" if it cannot be read."""
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


def _write_marker(path: str, text: str) -> None:
    try:
        files.replace_file(path, text.encode())
    except OSError as error:
        print_error(f"{path}: {error_text(error)}; the alert will be repeated")
