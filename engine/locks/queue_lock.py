"""The queue lock, a PID file with flock(2): examine it, take it, renew its heartbeat, release it.

The file names its holder (format: `engine.locks.lock_file`). The holder also keeps the flock of the
file and passes it to its handlers. If the flock is free, no worker of this project runs, with any
text in the file; a program that does not use flock is judged by its PID.

Source: NFTBan Queue and Mail Contract, "Lock file"."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from engine import policy
from engine.locks import lock_file
from engine.locks.lock_file import LockClaim
from engine.model import LockEvidence, Verdict
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text.error_text import error_text
from engine.text.times import describe_limit, format_rough_duration, format_time

if TYPE_CHECKING:
    from engine.locks.lock_holder import LockReading

HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeats; the other program breaks a lock by the age of its file."""

WRITE_SECONDS = 2.0
"""Seconds for which an empty lock file is taken for one that is being written."""

MIN_DRAFT_AGE_SECONDS = 60.0
"""Seconds after which an unlocked draft is removed: its process was killed."""

Clock: TypeAlias = Callable[[], float]
"""Returns seconds: since the epoch (UTC), or since boot (`lock_file.uptime`)."""

_FLOCK_TRIES, _UNSEEN_FLOCK_TRIES = 2, 20
"""How often to retry a busy flock after `_PAUSE_SECONDS`: normally, and if no process is seen to
have it."""

_PAUSE_SECONDS = 0.005
"""Seconds; a process that only examines the lock has its flock for microseconds."""

_MAX_REREADS = 10
"""How often to re-read a lock file that changes while it is examined."""

SPARE_SUFFIX = ".spare"
"""The file beside a lock that is removed if no inode or block is free for the lock: a worker that
cannot start could never drain a queue that has filled its disk."""

_SPARE_BYTES = 4096
"""One block of most file systems."""

_TOKEN_BYTES = 8


class LockBusy(Exception):
    """Another process holds the lock; see `evidence`."""

    def __init__(self, evidence: LockEvidence) -> None:
        super().__init__(evidence.reason)
        self.evidence = evidence


class LockLost(Exception):
    """Our lock was taken away: stop and change nothing more."""


# ---- examine


def examine_lock(
    path: str, threshold: float, clock: Clock = time.time, uptime: Clock = lock_file.boot_seconds
) -> LockEvidence:
    """Read the lock file and judge it; changes nothing. `threshold`: seconds without a heartbeat
    after which a live holder counts as stuck."""
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return LockEvidence(Verdict.FREE, reason="no lock file", identity=NO_LOCK)
    except (OSError, files.Refused) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {error_text(error)}")
    try:
        return _judge(path, fd, None, threshold=threshold, now=clock(), up=uptime())
    except (OSError, files.Refused) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {error}")
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    """Open a lock file without following links and without blocking.

    Raises:
        FileNotFoundError: no such file.
        files.Refused: it is not a regular file.
        OSError: it cannot be opened."""
    with _folder_of(path) as folder:
        try:
            flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(os.path.basename(path), flags, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # link, folder, socket
                raise _no_file(path) from error
            raise


def _no_file(path: str) -> files.Refused:
    import shlex  # not needed when a worker starts

    command = f"ls -ld {shlex.quote(path)}"
    return files.Refused(f"expected a regular file; check and remove it: {command}")


def _folder_of(path: str) -> contextlib.AbstractContextManager[int]:
    # The folder's owner may have replaced it by a link to a folder of another user.
    return closing_fd(files.open_folder(os.path.dirname(path) or "."))


NO_LOCK = "free"
"""`LockEvidence.identity` if there is no lock file."""


def _judge(
    path: str, fd: int, free: bool | None, threshold: float, now: float, up: float
) -> LockEvidence:
    """`free`: True if the flock is free; None to find out, without blocking other processes."""
    for _ in range(_MAX_REREADS):
        evidence = _judge_once(path, fd, free, threshold=threshold, now=now, up=up)
        if evidence is not None:
            return evidence
    raise files.Refused("it keeps changing; try again")


def _judge_once(
    path: str, fd: int, free: bool | None, threshold: float, now: float, up: float
) -> LockEvidence | None:
    """Like `_judge`; None if the lock changed hands."""
    state = os.fstat(fd)
    if not stat.S_ISREG(state.st_mode):
        raise _no_file(path)
    data = os.pread(fd, lock_file.MAX_LOCK_BYTES + 1, 0)
    claim = lock_file.parse_claim(data)
    folder = os.stat(os.path.dirname(path) or ".")
    if why := _file_problem(path, fd, state, folder):
        raise files.Refused(why)
    if claim is None:
        free = files.is_unclaimed(fd) if free is None else free
        return _judge_without_pid(data, state, free, threshold, now)
    from engine.locks import lock_holder  # loaded only if there is a lock of another process

    named = lock_holder.read_process(claim.pid, state)
    if free is None:
        # A process that has the file open with the flock is the holder: testing would only get in
        # the way.
        free = (named is None or named.taker is None) and files.is_unclaimed(fd)
    reading = lock_holder.LockReading(
        claim,
        busy=not free,
        named=named,
        others=(),
        observer=lock_holder.describe_observer(),
        owner=folder.st_uid,
        writer=state.st_uid,
        remote=lock_holder.shared_file_system(fd),
        mtime=state.st_mtime,
        booted=now - up,
    )
    if reading.busy and (reading.holder is None or reading.holder.taker is None):
        reading = reading._replace(others=lock_holder.processes_with_flock(state))
        if os.pread(fd, lock_file.MAX_LOCK_BYTES + 1, 0) != data:
            return None  # the processes found may belong to the next holder
    age = lock_holder.heartbeat_age(reading, now, up, lock_file.suspended_seconds())
    verdict, reason = judge_lock(reading, age, threshold)
    doubt = lock_holder.signal_refusal(reading) if verdict in (Verdict.HELD, Verdict.STUCK) else ""
    return LockEvidence(
        verdict,
        claim.pid,
        now - age,
        age=age,
        reason=reason,
        signal_refusal=doubt,
        facts=(
            *lock_holder.list_facts(reading, age, threshold),
            ("follows", describe_consequence(verdict, doubt)),
        ),
        identity=_lock_identity(claim, data, state),
        holders=tuple(process.pid for process in reading.targets),
        is_proven=lock_holder.is_proven(reading, verdict),
        limit=threshold,
        contradiction=lock_holder.find_contradiction(reading),
    )


def _file_problem(path: str, fd: int, state: os.stat_result, folder: os.stat_result) -> str:
    """Why a file is not accepted as a lock with any content; "" if it is. The folder's owner could
    hard-link another user's file into it, to make us write to that file."""
    if state.st_uid not in (0, folder.st_uid, os.geteuid()):
        return f"belongs to user {state.st_uid}, expected {folder.st_uid} (as its folder) or root"
    draft = _draft_of(path, state) if state.st_nlink == 2 else ""
    # If no draft is found, its process may have unlinked it just now: read the link count again.
    if not draft and files.is_borrowed(os.fstat(fd), folder):
        return "has a second hard link, expected only one"
    return ""


def _draft_of(path: str, state: os.stat_result) -> str:
    """Path of the draft (second hard link) that a lock file still has, until its creator unlinks
    it; "" if none."""
    for name in files.list_names(os.path.dirname(path) or "."):
        draft = os.path.join(os.path.dirname(path), name)
        if _is_draft(name, os.path.basename(path)) and files.is_named(draft, state):
            return draft
    return ""


def _is_draft(name: str, final: str) -> bool:
    token = name.removeprefix(f"{final}.")
    return token != name and len(token) == 2 * _TOKEN_BYTES and not token.strip("0123456789abcdef")


def _judge_without_pid(
    data: bytes, state: os.stat_result, free: bool, threshold: float, now: float
) -> LockEvidence:
    since = state.st_mtime
    age = max(0.0, now - since)
    if not free:
        verdict = Verdict.STUCK if policy.is_stuck(age, threshold) else Verdict.HELD
        reason, doubt = "a worker with unknown PID is running", "the lock file names no process"
    elif abs(now - since) <= WRITE_SECONDS:
        verdict, reason, doubt = Verdict.HELD, "being written", "the lock file names no process"
    else:
        verdict, reason, doubt = Verdict.STALE, "the lock file names no process", ""
    facts = (
        ("holder", "the file names no process"),
        ("flock", "free" if free else "? held; the file names no process"),
        ("follows", describe_consequence(verdict, doubt)),
    )
    evidence = LockEvidence(verdict, None, since, age, reason, is_proven=False)
    identity = _lock_identity(None, data, state)
    return evidence._replace(signal_refusal=doubt, facts=facts, identity=identity)


def _lock_identity(claim: LockClaim | None, data: bytes, state: os.stat_result) -> str:
    # Another program's file has no token, but it is a new file each time, with another PID and
    # time.
    mark = claim and claim.mark
    return f"{state.st_ino:x}.{mark.token if mark else f'{zlib.crc32(data):08x}'}"


def judge_lock(reading: LockReading, age: float, threshold: float) -> tuple[Verdict, str]:
    """Verdict and reason for a lock that names a process; uses only the given values."""
    pid, has_holder = reading.claim.pid, reading.holder is not None
    # On a shared file system, flock and PID say nothing about processes on other machines.
    far = bool(reading.remote) and (reading.claim.mark is None or reading.is_elsewhere)
    if not reading.busy and not far:
        if reading.claim.mark is not None:
            # In containers all workers may have the same PID: only the flock shows that it is gone.
            return Verdict.STALE, f"PID {pid} {'released it' if has_holder else 'is gone'}"
        if not has_holder or pid == reading.observer.pid:
            return Verdict.STALE, f"PID {pid} is gone"
    takers = {process.taker for process in reading.others} - {pid, 0, None}
    if takers:
        # A container's worker has another PID here, so it need not be a new holder.
        just = "" if reading.is_elsewhere else "just "
        who = f"PID {takers.pop()}, which has {just}taken the flock,"
    elif far:
        who = f"PID {pid}, perhaps on another machine,"
    elif reading.is_elsewhere:
        who = f"PID {pid} of another container or machine"
    else:
        who = f"PID {pid}" if has_holder else f"a child of PID {pid}, which is gone,"
    if policy.is_stuck(age, threshold):
        limit = describe_limit(threshold)
        why = f"no heartbeat for {format_rough_duration(age)} (limit {limit})"
        return Verdict.STUCK, f"{who} is alive, {why}"
    return Verdict.HELD, f"{who} is running"


def describe_consequence(verdict: Verdict, doubt: str) -> str:
    """What happens to a lock with this verdict, as text."""
    if verdict is Verdict.STUCK:
        return "no signal is sent: not safe" if doubt else "its holder may be ended"
    return {Verdict.STALE: "the next worker takes it over"}.get(verdict, "it is respected")


def check_claims(
    evidence: LockEvidence, begun: float | None, threshold: float, now: float
) -> LockEvidence:
    """Forbid to break a stuck lock if a task was claimed recently, after the last heartbeat.

    `begun`: when the newest active task was claimed, epoch seconds UTC; None if missing. A claim
    less than `HEARTBEAT_SECONDS` seconds after the heartbeat is normal, and one older than
    `threshold` seconds is no proof. One in the future is ignored: the clock was changed."""
    if evidence.verdict is not Verdict.STUCK or evidence.signal_refusal or begun is None:
        return evidence
    late = begun - (now - evidence.age) > HEARTBEAT_SECONDS + WRITE_SECONDS
    if not late or not -WRITE_SECONDS <= now - begun <= threshold:
        return evidence
    last = format_time(now - evidence.age)
    when = f"{format_time(begun)}, after the last heartbeat {last}"
    doubt = f"a task was claimed {when}: it was alive"
    follows = "follows", describe_consequence(Verdict.STUCK, doubt)
    return evidence._replace(signal_refusal=doubt, facts=(*evidence.facts[:-1], follows))


# ---- take and release


class PidLock:
    """The queue lock while this process holds it; made by `acquire`."""

    def __init__(
        self, path: str, fd: int, claim: LockClaim, clock: Clock, uptime: Clock, taken_over: str
    ) -> None:
        self.path = path
        self.fd = fd
        """Kept by the supervisors of handlers: as long as one of them runs, the flock is busy."""
        self.taken_over = taken_over
        """The reason of the stale verdict if a stale lock was taken over; "" otherwise."""
        self._claim = claim
        self._clock, self._uptime = clock, uptime
        self._renewed = clock()
        self._file = os.fstat(fd)

    def renew(self) -> None:
        """Write a heartbeat if the last one is older than `HEARTBEAT_SECONDS` seconds.

        Raises:
            LockLost: the lock is no longer ours."""
        now = self._clock()
        if abs(now - self._renewed) < HEARTBEAT_SECONDS:
            return
        self.check()
        mark = self._claim.mark
        assert mark is not None
        mark = mark._replace(alive_at=int(self._uptime()), slept=int(lock_file.suspended_seconds()))
        _write(self.fd, self._claim._replace(written=int(now), mark=mark))
        self._renewed = now

    def check(self) -> None:
        """Verify that the lock file at the path is the one we hold.

        Raises:
            LockLost: it was replaced or removed."""
        # While it is open, no other file gets its inode number.
        if not files.is_named(self.path, self._file):
            raise LockLost(f"{self.path}: the lock file was replaced or removed")

    def release(self) -> None:
        """Remove the lock file if it is still ours, and release the flock."""
        if self.fd < 0:
            return
        try:
            if files.is_named(self.path, self._file):
                with _folder_of(self.path) as folder:
                    files.unlink_quietly(os.path.basename(self.path), folder)
        except FileNotFoundError:
            pass  # the folder was removed in the meantime: nothing left to release
        finally:
            os.close(self.fd)
            self.fd = -1

    def abandon(self) -> None:
        """Close the file but leave it and its flock to the supervisors of running handlers."""
        os.close(self.fd)
        self.fd = -1

    def __enter__(self) -> PidLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire_lock(
    path: str,
    threshold: float,
    clock: Clock = time.time,
    uptime: Clock = lock_file.boot_seconds,
    *,
    seen: str = "",
) -> PidLock:
    """Take the lock if it is free or stale.

    `seen`: take over only the lock with this identity (`LockEvidence.identity`); "" for any.

    Raises:
        LockBusy: another process holds it, active or stuck, or it is not the lock `seen`.
        OSError: the lock file cannot be created."""
    for _ in range(100):
        lock = _take_over(path, threshold, clock, uptime, seen) or _create(path, clock, uptime)
        if lock is not None:
            return lock
    raise LockBusy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: keeps changing hands; try again"))


def _create(path: str, clock: Clock, uptime: Clock) -> PidLock | None:
    """Create a lock file, on a full disk in the place of the spare file; None if one exists."""
    try:
        lock = _create_file(path, clock, uptime)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not _remove_spare(path):
            raise
        return _create_file(path, clock, uptime)
    if lock is not None:
        _keep_spare(path)
    return lock


def _keep_spare(path: str) -> None:
    """Make the spare file of a lock, unless it exists; without it only a full disk is worse."""
    name = os.path.basename(path) + SPARE_SUFFIX
    with _folder_of(path) as folder:
        if not os.access(name, os.F_OK, dir_fd=folder, follow_symlinks=False):
            owner = files.new_file_owner(os.fstat(folder))
            with (
                contextlib.suppress(OSError),
                open(files.create_file(name, folder, owner), "wb") as spare,
            ):
                spare.write(bytes(_SPARE_BYTES))


def _remove_spare(path: str) -> bool:
    """Remove the spare file of a lock; False if there is none."""
    with _folder_of(path) as folder:
        try:
            os.unlink(os.path.basename(path) + SPARE_SUFFIX, dir_fd=folder)
        except OSError:
            return False
    return True


def _create_file(path: str, clock: Clock, uptime: Clock) -> PidLock | None:
    """Create a lock file and link(2) it into place, complete and locked; None if one exists."""
    claim = lock_file.make_claim(os.urandom(_TOKEN_BYTES).hex(), clock(), uptime())
    assert claim.mark is not None
    with _folder_of(path) as folder:
        final = os.path.basename(path)
        # The name has the token, because processes in two containers may have the same PID.
        name = f"{final}.{claim.mark.token}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        owner = files.new_file_owner(os.fstat(folder))
        fd = files.create_file(name, folder, owner, 0o644, flags)
        try:
            files.claim_flock(fd)
            _write(fd, claim)
            files.link(name, final, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        finally:
            files.unlink_quietly(name, folder)
        _remove_drafts(final, folder, os.fstat(fd).st_mtime)
        return PidLock(path, fd, claim, clock=clock, uptime=uptime, taken_over="")


def _remove_drafts(final: str, folder: int, now: float) -> None:
    """Remove drafts of processes that were killed before they linked their lock."""
    for name in os.listdir(folder):
        if not _is_draft(name, final):
            continue
        # A leftover draft does no harm.
        with (
            contextlib.suppress(OSError, files.Refused),
            closing_fd(files.open_guarded(name, folder)) as fd,
        ):
            state = os.fstat(fd)
            # A younger draft may be about to be locked by a rival; our own one has its flock.
            old = stat.S_ISREG(state.st_mode) and now - state.st_mtime > MIN_DRAFT_AGE_SECONDS
            if old and files.claim_flock(fd):
                files.unlink_quietly(name, folder)


def _take_over(
    path: str, threshold: float, clock: Clock, uptime: Clock, identity: str
) -> PidLock | None:
    """Take over the lock file of a dead holder; None if it is gone now. It is overwritten in place
    under its flock, so that only one of two rivals succeeds."""
    try:
        fd = _open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    except files.Refused as refusal:
        raise LockBusy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {refusal}")) from refusal
    try:
        free, evidence = _try_flock(path, fd, threshold, clock, uptime)
        if not files.is_named(path, os.fstat(fd)):
            os.close(fd)
            return None
        is_stale = free and evidence.verdict is Verdict.STALE
        if not is_stale or identity not in ("", evidence.identity):
            raise LockBusy(evidence)
        _forget_draft(path, fd)
        claim = lock_file.make_claim(os.urandom(_TOKEN_BYTES).hex(), clock(), uptime())
        _write(fd, claim)
        if not files.is_named(path, os.fstat(fd)):
            os.close(fd)
            return None
    except files.Refused as refusal:
        os.close(fd)
        raise LockBusy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {refusal}")) from refusal
    except BaseException:
        os.close(fd)
        raise
    return PidLock(path, fd, claim, clock=clock, uptime=uptime, taken_over=evidence.reason)


def _forget_draft(path: str, fd: int) -> None:
    state = os.fstat(fd)
    draft = _draft_of(path, state) if state.st_nlink > 1 else ""
    if draft:
        with _folder_of(path) as folder:
            files.unlink_quietly(os.path.basename(draft), folder)


def _try_flock(
    path: str, fd: int, threshold: float, clock: Clock, uptime: Clock
) -> tuple[bool, LockEvidence]:
    """Try to take the flock; return whether we have it, and the evidence."""
    free = _claim_with_retries(fd, _FLOCK_TRIES)
    evidence = _judge(path, fd, free, threshold=threshold, now=clock(), up=uptime())
    # Busy without a visible holder: probably a process that only examines the lock was suspended.
    if free or evidence.holders or not _claim_with_retries(fd, _UNSEEN_FLOCK_TRIES):
        return free, evidence
    return True, _judge(path, fd, True, threshold=threshold, now=clock(), up=uptime())


def _claim_with_retries(fd: int, times: int) -> bool:
    """Take the flock with so many retries, as processes that examine a lock have it only
    briefly."""
    for _ in range(times):
        if files.claim_flock(fd):
            return True
        time.sleep(_PAUSE_SECONDS)
    return files.claim_flock(fd)


def _write(fd: int, claim: LockClaim) -> None:
    # One write of constant length, so the file never lacks a PID.
    data = lock_file.format_claim(claim)
    os.lseek(fd, 0, os.SEEK_SET)
    files.write_all(fd, data)
    if os.fstat(fd).st_size != len(data):
        files.ftruncate(fd, len(data))
