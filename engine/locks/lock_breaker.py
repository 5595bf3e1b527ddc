"""Free a stuck queue lock: SIGTERM, wait, SIGKILL, after proof that the process holds the lock.

A process is signalled only through a pidfd that was opened before the lock file and the kernel
proved that it took the lock; the proof is repeated before each signal. A pidfd never refers to
another process, even if the PID is reused.

Source: NFTBan Queue and Mail Contract, "Lock file": "SIGTERM to process, wait 5s, SIGKILL if still
alive"."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TypeAlias

from engine.locks import lock_file, lock_holder, queue_lock
from engine.locks.queue_lock import Clock, PidLock
from engine.model import LockEvidence, Verdict

EXIT_WAIT_SECONDS = 5.0
"""Seconds to wait for the process to exit after each signal (contract, "Lock file")."""

TAKE_OVER_STEP = "take over the lock, release it"
"""The step after which no other worker can have the lock."""

_MAX_ROUNDS = 10
"""How often to start over if the lock changes hands."""

ExitWait: TypeAlias = Callable[[int, float], bool]
"""(pidfd, seconds) -> True if the process exits within that time."""


class UnsafeToSignal(Exception):
    """The target of a signal cannot be proven, or the signal had no effect; the message says
    why."""


def planned_steps(evidence: LockEvidence) -> tuple[str, ...]:
    """Describe the steps that `free_lock` would take, in order; () if none."""
    if evidence.verdict is Verdict.STALE:
        return (f"{TAKE_OVER_STEP}: {evidence.reason}",)
    if evidence.verdict is not Verdict.STUCK or evidence.signal_refusal:
        return ()
    steps, wait = [], f"wait {EXIT_WAIT_SECONDS:.0f}s"
    for pid in evidence.holders:
        steps += [f"SIGTERM PID {pid}, {wait}", f"SIGKILL PID {pid} if alive, {wait}"]
    if evidence.pid in evidence.holders:
        steps.append("also kill children still holding the flock")
    return (*steps, TAKE_OVER_STEP)


def manual_advice(evidence: LockEvidence) -> str:
    """Advise the operator what to do by hand about a lock that `free_lock` does not touch."""
    if evidence.pid is None:
        return "Check the lock file itself; the problem is described above."
    return (
        f"Identify the process: ps -o pid,user,lstart,args -p {evidence.pid}. If it is a hung "
        "worker, end it yourself; the lock is free when it has exited. If it is not a worker, the "
        "lock file is wrong: remove it."
    )


def free_lock(
    path: str,
    threshold: float,
    seen: str = "",
    *,
    say: Callable[[str], None],
    clock: Clock = time.time,
    uptime: Clock = lock_file.boot_seconds,
    wait: ExitWait = lock_holder.has_ended,
    begun: Callable[[], float | None] = lambda: None,
) -> PidLock:
    """Take the lock and return it; if it is stuck, end its holder first.

    `seen` is the identity of the lock that may be broken (`LockEvidence.identity`); "" for any.
    `say` is called with a description before each step. `begun` returns when the newest active
    task was claimed (see `check_claims`).

    Raises:
        LockBusy: a live holder has the lock; it is not signalled.
        UnsafeToSignal: the holder cannot be proven; no further process is signalled.
        OSError: the lock file cannot be created."""

    def doubted(evidence: LockEvidence) -> LockEvidence:
        return queue_lock.check_claims(evidence, begun(), threshold, clock())

    def examine() -> LockEvidence:
        return doubted(queue_lock.examine_lock(path, threshold, clock, uptime))

    orphans = False
    for _ in range(_MAX_ROUNDS):
        try:
            return queue_lock.acquire_lock(path, threshold, clock, uptime, seen=seen)
        except queue_lock.LockBusy as busy:
            evidence = doubted(busy.evidence)
            if evidence.identity and seen not in ("", evidence.identity):
                raise UnsafeToSignal(f"the lock has changed hands: {busy}") from busy
            if evidence.verdict is not Verdict.STUCK:
                raise
        if evidence.signal_refusal:
            again, refusal = examine(), evidence.signal_refusal
            if again.identity == evidence.identity and again.signal_refusal == refusal:
                raise UnsafeToSignal(refusal)
            continue  # it is changing hands: the evidence was incomplete
        if evidence.pid not in evidence.holders:
            if orphans:
                pids = ", ".join(f"PID {pid}" for pid in evidence.holders)
                raise UnsafeToSignal(f"PID {evidence.pid} left more children: {pids}")
            orphans = True
        for pid in evidence.holders:
            _end_process(pid, evidence.identity, examine, say, wait)
    raise UnsafeToSignal(f"{path}: keeps changing hands; try again")


def _end_process(
    pid: int,
    identity: str,
    examine: Callable[[], LockEvidence],
    say: Callable[[str], None],
    wait: ExitWait,
) -> None:
    """End one process if it is proven to hold this lock; otherwise do nothing.

    Only a process with the locked file open belongs to the holder. The process group does not
    count: it may contain unrelated processes, such as a script started by a timer.

    Raises:
        UnsafeToSignal: it must not be signalled, or it does not exit."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in lock_holder.NO_PROCESS_ERRORS:
            raise
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            # The pidfd is older than this proof and not ended after it, so it refers to the proven
            # process.
            if not _may_end(examine(), pid, identity) or lock_holder.has_ended(pidfd):
                return
            say(f"{number.name} to PID {pid}")
            signal.pidfd_send_signal(pidfd, number)
            if wait(pidfd, EXIT_WAIT_SECONDS):
                say(f"PID {pid} has ended")
                return
        raise UnsafeToSignal(
            f"PID {pid} does not exit, not even after SIGKILL: it waits for a disk or a server"
        )
    except ProcessLookupError:
        return  # it exited just before the signal
    except PermissionError as error:
        # Our uid would be sufficient, so CAP_KILL is missing or a security module denies it.
        raise UnsafeToSignal(
            f"permission denied to signal PID {pid} as uid {os.geteuid()}: "
            "CAP_KILL is missing, or SELinux or AppArmor denies it"
        ) from error
    finally:
        os.close(pidfd)


def _may_end(now: LockEvidence, pid: int, identity: str) -> bool:
    is_stuck = now.verdict is Verdict.STUCK and not now.signal_refusal
    return is_stuck and now.identity == identity and pid in now.holders
