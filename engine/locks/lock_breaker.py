"""Ends the holder of a stuck lock, and nobody else: the contract's ladder, proven step by step.

A process is signalled only through a pidfd that was opened before it was proven, by all that the
lock file and the kernel say, to be the one that took the lock; and it is proven again before each
signal. A pidfd never means another process, whatever becomes of its number.

Source: NFTBan Queue and Mail Contract, "Lock file": "SIGTERM to process, wait 5s, SIGKILL if still
alive".
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import TypeAlias

from engine.locks import lock_file, lock_holder, queue_lock
from engine.locks.queue_lock import Clock, PidLock
from engine.model import LockEvidence, Verdict

GRACE = 5.0
"""Seconds that a process gets to end, after each of the two signals (contract, "Lock file")."""

_ROUNDS = 10
"""How often it is begun anew when the lock changes hands meanwhile."""

Wait: TypeAlias = Callable[[int, float], bool]
"""Whether the process of a pidfd ends within so many seconds."""


class UnsafeToSignal(Exception):
    """It is not certain whom a signal would hit, or it did not help; the message says why."""


def ladder(evidence: LockEvidence) -> tuple[str, ...]:
    """What would be done to this lock, in words and in order; () where nothing would be."""
    if evidence.verdict is Verdict.STALE:
        return (f"take over the lock file in place: {evidence.reason}",)
    if evidence.verdict is not Verdict.STUCK or evidence.doubt:
        return ()
    steps = []
    for pid in evidence.holders:
        steps += [
            f"send SIGTERM to PID {pid}, and wait {GRACE:.0f} s for its end",
            f"send SIGKILL to PID {pid} if it is still there, and wait {GRACE:.0f} s",
        ]
    if evidence.pid in evidence.holders:
        steps.append(f"do the same, once, to what PID {evidence.pid} leaves behind with its flock")
    return (*steps, "take over the lock file in place, and release it at the end")


def by_hand(evidence: LockEvidence) -> str:
    """What a person can do about a lock that is left alone."""
    if evidence.pid is None:
        return "See to the lock file itself: what is wrong with it stands above."
    return (
        f"Who it is: ps -o pid,user,lstart,args -p {evidence.pid}. If that is a worker which will "
        "not come back, end it yourself; once it is gone, the lock is free without a signal. If it "
        "is no worker at all, the lock file is false: remove it."
    )


def free(
    path: str,
    threshold: float,
    seen: str = "",
    *,
    say: Callable[[str], None],
    clock: Clock = time.time,
    uptime: Clock = lock_file.uptime,
    wait: Wait = lock_holder.has_ended,
    begun: Callable[[], float | None] = lambda: None,
) -> PidLock:
    """The lock, held by us: taken when nobody has it, broken when it is stuck.

    `seen` is which lock may be broken or taken over (`LockEvidence.seen`); "" for the one that is
    found. `say` is told each step as it is taken, before it is. `begun` answers when the newest
    task in work was claimed (`locks.with_claims`).

    Raises:
        Busy: it is held by somebody at work, who is left alone.
        Doubt: nobody more is signalled, nothing is taken.
        OSError: the lock file cannot be made.
    """

    def doubted(evidence: LockEvidence) -> LockEvidence:
        return queue_lock.with_claims(evidence, begun(), threshold, clock())

    def look() -> LockEvidence:
        return doubted(queue_lock.examine(path, threshold, clock, uptime))

    orphans = False
    for _ in range(_ROUNDS):
        try:
            return queue_lock.acquire(path, threshold, clock, uptime, seen=seen)
        except queue_lock.Busy as busy:
            evidence = doubted(busy.evidence)
            if evidence.seen and seen not in ("", evidence.seen):
                raise UnsafeToSignal(f"the lock changed hands since it was seen: {busy}") from busy
            if evidence.verdict is not Verdict.STUCK:
                raise
        if evidence.doubt:
            again = look()
            if (again.seen, again.doubt) == (evidence.seen, evidence.doubt):
                raise UnsafeToSignal(evidence.doubt)
            continue  # it is changing hands: what could not be seen was on its way
        if evidence.pid not in evidence.holders:
            if orphans:
                raise UnsafeToSignal(
                    f"PID {evidence.pid} left more behind: {_listed(evidence.holders)}"
                )
            orphans = True
        for pid in evidence.holders:
            _end(pid, evidence.seen, look, say, wait)
    raise UnsafeToSignal(f"{path}: changes hands all the time")


def _end(
    pid: int, seen: str, look: Callable[[], LockEvidence], say: Callable[[str], None], wait: Wait
) -> None:
    """End one process, if it has this lock and may be ended; else it is left alone.

    The open file with the flock is what makes a process one of the holder's, not its process
    group: in that there may be others, which have done nothing (a script that a timer started).

    Raises:
        Doubt: it may not be signalled, or does not end.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno not in lock_holder.NO_PROCESS:
            raise
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            # Opened before and not ended after: what is proven in between is what is signalled.
            if not _may_end(look(), pid, seen) or lock_holder.has_ended(pidfd):
                return
            say(f"{number.name} to PID {pid}")
            signal.pidfd_send_signal(pidfd, number)
            if wait(pidfd, GRACE):
                say(f"PID {pid} has ended")
                return
        raise UnsafeToSignal(
            f"PID {pid} does not end, not even by SIGKILL: it waits for a disk or a server"
        )
    except ProcessLookupError:
        return  # it ended as we were about to say so
    except PermissionError as error:
        # We are root, or who it is: what we lack is CAP_KILL, or a security module objects.
        raise UnsafeToSignal(
            f"PID {pid} may not be signalled by us, although we are uid {os.geteuid()}: "
            "no CAP_KILL here, or SELinux or AppArmor forbids it"
        ) from error
    finally:
        os.close(pidfd)


def _may_end(now: LockEvidence, pid: int, seen: str) -> bool:
    """Whether the lock is as it was, still stuck, and this process proven to be in its way."""
    return (now.verdict, now.doubt, now.seen) == (Verdict.STUCK, "", seen) and pid in now.holders


def _listed(pids: tuple[int, ...]) -> str:
    return ", ".join(f"PID {pid}" for pid in pids)
