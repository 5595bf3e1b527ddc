"""The queue's lock: who may work on a spool, and what can be said about whoever does.

The file names its holder (format: `engine.locks.lock_file`). The holder also keeps the flock of the
file and passes it to its handlers. A free flock means that no process of ours runs, whatever the
file contains; a program without flock is judged by its PID.

Source: NFTBan Queue and Mail Contract, "Lock file".
"""

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

if TYPE_CHECKING:
    from engine.locks.lock_holder import LockScene

RENEWAL = 30.0
"""Seconds between two signs of life; the other program breaks a lock by the age of its file."""

WRITING = 2.0
"""Seconds for which an empty lock file may be one that is just being written."""

LITTER = 60.0
"""Seconds after which a draft that nobody has open was left by a process that was killed."""

Clock: TypeAlias = Callable[[], float]
"""Seconds: of the epoch (UTC), or since the machine was started (`lockfile.uptime`)."""

_GLANCES, _PATIENCE = 2, 20
"""How often a busy flock is tried again, after `_PAUSE`: at first, and where nobody is seen to
have it."""

_PAUSE = 0.005
"""Seconds; somebody who only looks has a flock for microseconds."""

_CHANGES = 10
"""How often a lock file that changes while it is judged is judged anew."""

_TOKEN = 8
"""Random bytes in a lock's token."""


class Busy(Exception):
    """Somebody else has the lock; the evidence says who."""

    def __init__(self, evidence: LockEvidence) -> None:
        super().__init__(evidence.reason)
        self.evidence = evidence


class Lost(Exception):
    """The lock that we held is not ours any more: stop, and touch nothing."""


# ---- looking at it


def examine(
    path: str, threshold: float, clock: Clock = time.time, uptime: Clock = lock_file.uptime
) -> LockEvidence:
    """What the lock file says and what follows from it; changes nothing.

    `threshold`: seconds without a sign of life after which a live holder counts as stuck.
    """
    try:
        fd = _open(path, os.O_RDONLY)
    except FileNotFoundError:
        return LockEvidence(Verdict.FREE, reason="no lock file", seen=NO_LOCK)
    except (OSError, files.Refused) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {why}")
    try:
        return _judge(path, fd, None, threshold, clock(), uptime())
    except (OSError, files.Refused) as error:
        return LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {error}")
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    """A descriptor of a lock file, opened so that nothing can lead us elsewhere or block us.

    Raises:
        FileNotFoundError: there is none.
        files.Refused: what lies there is no file.
        OSError: it cannot be opened.
    """
    folder = _folder_of(path)
    try:
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open(os.path.basename(path), flags, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a link, a folder, a socket
            raise _no_file(path) from error
        raise
    finally:
        os.close(folder)


def _no_file(path: str) -> files.Refused:
    import shlex  # which no worker needs at its start

    mend = f"ls -ld {shlex.quote(path)}"
    return files.Refused(f"expected a regular file; look at it and remove it: {mend}")


def _folder_of(path: str) -> int:
    # Whose folder it is could have made it a link to somebody else's.
    return files.open_folder(os.path.dirname(path) or ".")


NO_LOCK = "free"
"""`LockEvidence.seen` where there is no lock file."""


def _judge(
    path: str, fd: int, free: bool | None, threshold: float, now: float, up: float
) -> LockEvidence:
    """`free`: whether the flock is; None to find out, without getting into anybody's way."""
    for _ in range(_CHANGES):
        evidence = _judge_once(path, fd, free, threshold, now, up)
        if evidence is not None:
            return evidence
    raise files.Refused("it is written anew all the time")


def _judge_once(
    path: str, fd: int, free: bool | None, threshold: float, now: float, up: float
) -> LockEvidence | None:
    """As `_judge`; None when it changed hands meanwhile."""
    state = os.fstat(fd)
    if not stat.S_ISREG(state.st_mode):
        raise _no_file(path)
    data = os.pread(fd, lock_file.LIMIT + 1, 0)
    claim = lock_file.parse(data)
    folder = os.stat(os.path.dirname(path) or ".")
    if why := _strange(path, fd, state, folder):
        raise files.Refused(why)
    if claim is None:
        free = files.is_unclaimed(fd) if free is None else free
        return _nobody(data, state, free, threshold, now)
    from engine.locks import lock_holder  # only where somebody else's lock is met

    named = lock_holder.look(claim.pid, state)
    if free is None:
        # Whose process has the flock open has it: no need to try, and to be in the way of another.
        free = (named is None or named.taker is None) and files.is_unclaimed(fd)
    scene = lock_holder.LockScene(
        claim,
        busy=not free,
        named=named,
        others=(),
        here=lock_holder.here(),
        owner=folder.st_uid,
        writer=state.st_uid,
        remote=lock_holder.remote(fd),
        mtime=state.st_mtime,
        booted=now - up,
    )
    if scene.busy and (scene.holder is None or scene.holder.taker is None):
        scene = scene._replace(others=lock_holder.all_with(state))
        if os.pread(fd, lock_file.LIMIT + 1, 0) != data:
            return None  # those seen may be the next holder's, not this one's
    age = lock_holder.silence(scene, now, up, lock_file.slept())
    verdict, reason = judge(scene, age, threshold)
    doubt = lock_holder.doubt(scene) if verdict in (Verdict.HELD, Verdict.STUCK) else ""
    return LockEvidence(
        *(verdict, claim.pid, now - age, age, reason, doubt),
        facts=(*lock_holder.facts(scene, age, threshold), ("follows", follows(verdict, doubt))),
        seen=_seen(claim, data, state),
        holders=tuple(process.pid for process in scene.targets),
        proven=lock_holder.proven(scene, verdict),
    )


def _strange(path: str, fd: int, state: os.stat_result, folder: os.stat_result) -> str:
    """Why a file is not taken for a lock, whatever it says; "" when it may be one.

    Who owns the folder can put another one's file into it, by a second name, for us to write in.
    """
    if state.st_uid not in (0, folder.st_uid, os.geteuid()):
        return f"belongs to user {state.st_uid}, expected {folder.st_uid} as its folder, or root"
    draft = _draft_of(path, state) if state.st_nlink == 2 else ""
    # Without one, its maker may have taken the draft's name away just now.
    if state.st_nlink > 1 and not draft and os.fstat(fd).st_nlink > 1:
        return "has a second hard link, expected a lock file of its own"
    return ""


def _draft_of(path: str, state: os.stat_result) -> str:
    """The draft that is a lock file's other name, until its maker takes it away; "" for none."""
    for name in files.listed(os.path.dirname(path) or "."):
        draft = os.path.join(os.path.dirname(path), name)
        if _is_draft(name, os.path.basename(path)) and _same(draft, state):
            return draft
    return ""


def _is_draft(name: str, final: str) -> bool:
    token = name.removeprefix(f"{final}.")
    return token != name and len(token) == 2 * _TOKEN and not token.strip("0123456789abcdef")


def _same(path: str, state: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), state)
    except FileNotFoundError:
        return False


def _nobody(
    data: bytes, state: os.stat_result, free: bool, threshold: float, now: float
) -> LockEvidence:
    """The verdict on a file that names no process."""
    since = state.st_mtime
    age = max(0.0, now - since)
    if not free:
        verdict = Verdict.STUCK if policy.stuck(age, threshold) else Verdict.HELD
        reason, doubt = "somebody is at work, PID unknown", "the lock file names no process"
    elif abs(now - since) <= WRITING:
        verdict, reason, doubt = Verdict.HELD, "being written", "the lock file names no process"
    else:
        verdict, reason, doubt = Verdict.STALE, "it names no process", ""
    facts = (
        ("holder", "the file names no process"),
        ("flock", "free: nobody has it" if free else "? held, but by whom is not in the file"),
        ("follows", follows(verdict, doubt)),
    )
    seen = _seen(None, data, state)
    return LockEvidence(verdict, None, since, age, reason, doubt, facts, seen, proven=False)


def _seen(claim: LockClaim | None, data: bytes, state: os.stat_result) -> str:
    # Another program's text has no token, but its PID and time; and it makes a new file.
    mark = claim and claim.mark
    return f"{state.st_ino:x}.{mark.token if mark else f'{zlib.crc32(data):08x}'}"


def judge(scene: LockScene, age: float, threshold: float) -> tuple[Verdict, str]:
    """The verdict on a lock that names a process, and its reason; decides from values alone."""
    pid, there = scene.claim.pid, scene.holder is not None
    # On a file system of several machines neither a flock nor a missing PID tells of the others.
    far = bool(scene.remote) and (scene.claim.mark is None or scene.is_elsewhere)
    if not scene.busy and not far:
        if scene.claim.mark is not None:
            # In a container every worker may have the same PID: the flock says that it is gone.
            return Verdict.STALE, f"PID {pid} {'let go of it' if there else 'is gone'}"
        if not there or pid == scene.here.pid:
            return Verdict.STALE, f"PID {pid} is gone"
    takers = {process.taker for process in scene.others} - {pid, 0, None}
    if takers:
        # By whom a container's worker took it is told in our numbers: that is not to say lately.
        just = "" if scene.is_elsewhere else "just "
        who = f"PID {takers.pop()}, which has {just}taken the flock,"
    elif far:
        who = f"PID {pid}, perhaps of another machine,"
    elif scene.is_elsewhere:
        who = f"PID {pid} of another container or machine"
    else:
        who = f"PID {pid}" if there else f"a child of PID {pid}, which is gone,"
    if policy.stuck(age, threshold):
        limit = policy.lasting(threshold)
        why = f"gave no sign of life for {policy.lasting(age)} (limit {limit})"
        return Verdict.STUCK, f"{who} lives, but {why}"
    return Verdict.HELD, f"{who} is at work"


def follows(verdict: Verdict, doubt: str) -> str:
    """What is done about such a lock."""
    if verdict is Verdict.STUCK:
        return "left alone: nobody is signalled in doubt" if doubt else "its holder may be ended"
    return {Verdict.STALE: "whoever comes next takes it over"}.get(verdict, "it is respected")


def with_claims(
    evidence: LockEvidence, begun: float | None, threshold: float, now: float
) -> LockEvidence:
    """Doubt a stuck lock if its queue claimed a task after the last heartbeat, and lately.

    `begun` is when the newest task in work was claimed, epoch seconds UTC; None if there is none. A
    claim in the first `RENEWAL` seconds is no contradiction, and one that is older than `threshold`
    seconds proves no more than the heartbeat. One in the future proves nothing: the date was set.
    """
    if evidence.verdict is not Verdict.STUCK or evidence.doubt or begun is None:
        return evidence
    late = begun - (now - evidence.age) > RENEWAL + WRITING
    if not late or not -WRITING <= now - begun <= threshold:
        return evidence
    last = policy.at(now - evidence.age)
    doubt = f"a task was claimed {policy.at(begun)}, after the last heartbeat {last}: it was alive"
    *facts, _ = evidence.facts
    facts.append(("follows", follows(Verdict.STUCK, doubt)))
    return evidence._replace(doubt=doubt, facts=tuple(facts))


# ---- having it


class PidLock:
    """The lock while we hold it; made by `acquire`."""

    def __init__(
        self, path: str, fd: int, claim: LockClaim, clock: Clock, uptime: Clock, taken_over: str
    ) -> None:
        self.path = path
        self.fd = fd
        """Handed on to handlers: as long as one of them lives, the flock is busy."""
        self.taken_over = taken_over
        """Whose stale lock this was, in words; "" when there was none."""
        self._claim = claim
        self._clock, self._uptime = clock, uptime
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
        mark = self._claim.mark
        assert mark is not None
        mark = mark._replace(alive_at=int(self._uptime()), slept=int(lock_file.slept()))
        _write(self.fd, self._claim._replace(written=int(now), mark=mark))
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
                folder = _folder_of(self.path)
                try:
                    files.forget(os.path.basename(self.path), folder)
                finally:
                    os.close(folder)
        except FileNotFoundError:
            pass  # its folder was removed between the look and now: nothing left to release
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


def acquire(
    path: str,
    threshold: float,
    clock: Clock = time.time,
    uptime: Clock = lock_file.uptime,
    *,
    seen: str = "",
) -> PidLock:
    """Take the lock, from nobody or from a holder that is gone.

    `seen`: take over no other lock than this one (`LockEvidence.seen`); "" for any.

    Raises:
        Busy: somebody holds it, at work or stuck, or it is not the one that was seen.
        OSError: the lock file cannot be made.
    """
    for _ in range(100):
        lock = _adopt(path, threshold, clock, uptime, seen) or _create(path, clock, uptime)
        if lock is not None:
            return lock
    raise Busy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: changes hands all the time"))


def _create(path: str, clock: Clock, uptime: Clock) -> PidLock | None:
    """A new lock file, seen by others only whole and with its flock held; None if one is there."""
    claim = lock_file.claim_of_ours(os.urandom(_TOKEN).hex(), clock(), uptime())
    assert claim.mark is not None
    folder = _folder_of(path)
    try:
        final = os.path.basename(path)
        # Named by the token, for in two containers two processes have the same PID.
        name = f"{final}.{claim.mark.token}"
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
            _write(fd, claim)
            files.link(name, final, src_dir_fd=folder, dst_dir_fd=folder)
        except FileExistsError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        finally:
            files.forget(name, folder)
        _sweep(final, folder, os.fstat(fd).st_mtime)
        return PidLock(path, fd, claim, clock, uptime, "")
    finally:
        os.close(folder)


def _sweep(final: str, folder: int, now: float) -> None:
    """Remove the drafts of processes that were killed before their lock was in place."""
    for name in os.listdir(folder):
        if not _is_draft(name, final):
            continue
        with contextlib.suppress(OSError, files.Refused):  # litter is in nobody's way
            fd = files.open_guarded(name, folder)
            try:
                state = os.fstat(fd)
                # A younger one may be a rival's that is about to be claimed; ours has its flock.
                old = stat.S_ISREG(state.st_mode) and now - state.st_mtime > LITTER
                if old and files.claim_flock(fd):
                    files.forget(name, folder)
            finally:
                os.close(fd)


def _adopt(path: str, threshold: float, clock: Clock, uptime: Clock, seen: str) -> PidLock | None:
    """Take over the lock file of a holder that is gone, in place; None when none is there now.

    In place and under its flock, so that of two who try only one can win.
    """
    try:
        fd = _open(path, os.O_RDWR)
    except FileNotFoundError:
        return None
    except files.Refused as refusal:
        raise Busy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {refusal}")) from refusal
    try:
        free, evidence = _try(path, fd, threshold, clock, uptime)
        if not _is_at(path, fd):
            os.close(fd)
            return None
        if not free or evidence.verdict is not Verdict.STALE or seen not in ("", evidence.seen):
            raise Busy(evidence)
        _forget_draft(path, fd)
        claim = lock_file.claim_of_ours(os.urandom(_TOKEN).hex(), clock(), uptime())
        _write(fd, claim)
        if not _is_at(path, fd):
            os.close(fd)
            return None
    except files.Refused as refusal:
        os.close(fd)
        raise Busy(LockEvidence(Verdict.UNKNOWN, reason=f"{path}: {refusal}")) from refusal
    except BaseException:
        os.close(fd)
        raise
    return PidLock(path, fd, claim, clock, uptime, evidence.reason)


def _forget_draft(path: str, fd: int) -> None:
    """Take away the name that a maker who was killed then left."""
    state = os.fstat(fd)
    draft = _draft_of(path, state) if state.st_nlink > 1 else ""
    if draft:
        folder = _folder_of(path)
        try:
            files.forget(os.path.basename(draft), folder)
        finally:
            os.close(folder)


def _try(
    path: str, fd: int, threshold: float, clock: Clock, uptime: Clock
) -> tuple[bool, LockEvidence]:
    """Whether the flock is ours now, and what is to be said of the lock."""
    free = _claimed(fd, _GLANCES)
    evidence = _judge(path, fd, free, threshold, clock(), uptime())
    # Busy, and nobody is seen to have it: most likely somebody who looks was put to sleep.
    if free or evidence.holders or not _claimed(fd, _PATIENCE):
        return free, evidence
    return True, _judge(path, fd, True, threshold, clock(), uptime())


def _claimed(fd: int, times: int) -> bool:
    """Whether the flock is ours now; tried so many times, for a look at a lock is over at once."""
    for _ in range(times):
        if files.claim_flock(fd):
            return True
        time.sleep(_PAUSE)
    return files.claim_flock(fd)


def _write(fd: int, claim: LockClaim) -> None:
    # In one piece, and no shorter while it is ours: there is no moment without a PID in it.
    data = lock_file.compose(claim)
    os.lseek(fd, 0, os.SEEK_SET)
    files.write_all(fd, data)
    if os.fstat(fd).st_size != len(data):
        files.ftruncate(fd, len(data))


def _is_at(path: str, fd: int) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(there, os.fstat(fd))
