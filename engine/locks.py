"""The queue's lock: who may work on a spool, and what can be said about whoever does.

The file has the contract's two lines, the holder's PID and a time in epoch seconds; besides, its
holder keeps the flock of the file, and hands it on to its handlers. A flock that is free means that
no process of ours is there, whatever the PID says; a program without flock is judged by its PID.

Source: NFTBan Queue and Mail Contract, "Lock file".
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

from engine import files, policy
from engine.model import LockEvidence, Verdict

RENEWAL = 30.0
"""Seconds between two signs of life; the other program breaks a lock by the age of its file."""

WRITING = 2.0
"""Seconds for which an empty lock file may be one that is just being written."""


MOST = 2**22
"""The largest PID that the kernel ever gives (`PID_MAX_LIMIT`)."""


class Busy(Exception):
    """Somebody else has the lock; the evidence says who."""

    def __init__(self, evidence: LockEvidence) -> None:
        super().__init__(evidence.reason)
        self.evidence = evidence


class Lost(Exception):
    """The lock that we held is not ours any more: stop, and touch nothing."""


def examine(path: str, threshold: float, clock: Callable[[], float] = time.time) -> LockEvidence:
    """What the lock file says and what follows from it; changes nothing.

    `threshold`: seconds without a sign of life after which a live holder counts as stuck.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return LockEvidence(Verdict.FREE, reason="no lock file")
    except OSError as error:
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {error.strerror}")
    try:
        return _judge(fd, files.is_unclaimed(fd), threshold, clock())
    except (OSError, files.Refused) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {error}")
    finally:
        os.close(fd)


def _judge(fd: int, unclaimed: bool, threshold: float, now: float) -> LockEvidence:
    seen = os.fstat(fd)
    if not stat.S_ISREG(seen.st_mode):
        raise files.Refused("not a regular file")
    pid = _pid(os.pread(fd, 4096, 0))
    age = max(0.0, now - seen.st_mtime)
    since = seen.st_mtime
    if pid is None:
        if not unclaimed:
            return LockEvidence(Verdict.HELD, None, since, age, "somebody is at work, PID unknown")
        if age <= WRITING:
            return LockEvidence(Verdict.HELD, None, since, age, "being written")
        return LockEvidence(Verdict.STALE, None, since, age, "it names no process")
    # Our own number with a free flock was a namesake's: in containers all workers may have one PID.
    there = alive(pid) and not (unclaimed and pid == os.getpid())
    if unclaimed and not there:
        return LockEvidence(Verdict.STALE, pid, since, age, f"PID {pid} is gone")
    who = f"PID {pid}" if there else f"a child of PID {pid}, which is gone,"
    if policy.stuck(age, threshold):
        why = f"{who} lives, but gave no sign of life for {age:.0f} s (limit {threshold:.0f} s)"
        return LockEvidence(Verdict.STUCK, pid, since, age, why)
    return LockEvidence(Verdict.HELD, pid, since, age, f"{who} is at work")


def _pid(data: bytes) -> int | None:
    first = data.split(b"\n", 1)[0]
    # 0 and -1 mean "a whole group" to kill(2), 1 is init: none of them ever held this lock.
    if not first.isdigit() or len(first) > 10 or not 1 < int(first) <= MOST:
        return None
    return int(first)


def alive(pid: int) -> bool:
    """Whether a process of this number exists and has not ended.

    One that we may not signal exists (EPERM); one that only waits to be reaped has ended.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # hidden from us, or gone by now: the next look tells
    try:
        # The state follows the command's name, which may itself hold parentheses.
        return os.read(fd, 4096).rpartition(b") ")[2][:1] == b"Z"
    except ProcessLookupError:
        return False
    finally:
        os.close(fd)


class PidLock:
    """The lock while we hold it; made by `acquire`."""

    def __init__(self, path: str, fd: int, clock: Callable[[], float], taken_over: str) -> None:
        self.path = path
        self.fd = fd
        """Handed on to handlers: as long as one of them lives, the flock is busy."""
        self.taken_over = taken_over
        """Whose stale lock this was, in words; "" when there was none."""
        self._clock = clock
        self._renewed = clock()

    def renew(self) -> None:
        """Give a sign of life, if it is time for one.

        Raises:
            Lost: the lock is not ours any more.
        """
        now = self._clock()
        if abs(now - self._renewed) < RENEWAL:
            return
        self.check()
        _write(self.fd, now)
        self._renewed = now

    def check(self) -> None:
        """Make sure that the lock file is still the one we hold.

        Raises:
            Lost: it is another one, or gone.
        """
        if not _is_at(self.path, self.fd):
            raise Lost(f"{self.path}: the lock was taken away from us")

    def release(self) -> None:
        """Remove the lock file, if it is still ours; let go in any case."""
        if self.fd < 0:
            return
        try:
            if _is_at(self.path, self.fd):
                files.unlink(self.path)
        except FileNotFoundError:
            pass  # removed between the look and the unlink: nothing left to release
        finally:
            os.close(self.fd)
            self.fd = -1

    def abandon(self) -> None:
        """Let go, and leave the lock file to those who inherited its flock."""
        os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> PidLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire(path: str, threshold: float, clock: Callable[[], float] = time.time) -> PidLock:
    """Take the lock, from nobody or from a holder that is gone.

    Raises:
        Busy: somebody holds it, at work or stuck.
        OSError: the lock file cannot be made.
    """
    for _ in range(100):
        lock = _create(path, clock) or _adopt(path, threshold, clock)
        if lock is not None:
            return lock
    raise Busy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: changes hands all the time"))


def _create(path: str, clock: Callable[[], float]) -> PidLock | None:
    """A new lock file, seen by others only whole and with its flock held; None if one is there."""
    draft = f"{path}.{os.getpid()}"
    folder = files.open_folder(os.path.dirname(path) or ".")
    try:
        name = os.path.basename(draft)
        files.forget(name, folder)
        fd = os.open(
            name,
            os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o644,
            dir_fd=folder,
        )
        try:
            owner = files.owner_for(os.fstat(folder))
            if owner is not None:
                files.fchown(fd, *owner)
            files.claim_flock(fd)
            _write(fd, clock())
            files.link(name, os.path.basename(path), src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        finally:
            files.forget(name, folder)
        return PidLock(path, fd, clock, "")
    finally:
        os.close(folder)


def _adopt(path: str, threshold: float, clock: Callable[[], float]) -> PidLock | None:
    """Take over the lock file of a holder that is gone, in place; None to look again.

    In place and under its flock, so that of two who try only one can win.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        ours = files.claim_flock(fd)
        evidence = _judge(fd, ours, threshold, clock())
        if not _is_at(path, fd):
            os.close(fd)
            return None
        if not ours or evidence.verdict is not Verdict.STALE:
            raise Busy(evidence)
        _write(fd, clock())
        if not _is_at(path, fd):
            os.close(fd)
            return None
    except files.Refused as refusal:
        os.close(fd)
        raise Busy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {refusal}")) from refusal
    except BaseException:
        os.close(fd)
        raise
    return PidLock(path, fd, clock, evidence.reason)


def _write(fd: int, now: float) -> None:
    # Longer never becomes shorter while it is ours, so there is no moment without a PID in it.
    os.lseek(fd, 0, os.SEEK_SET)
    data = b"%d\n%d\n" % (os.getpid(), int(now))
    files.write_all(fd, data)
    files.ftruncate(fd, len(data))


def _is_at(path: str, fd: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    held = os.fstat(fd)
    return (there.st_dev, there.st_ino) == (held.st_dev, held.st_ino)
