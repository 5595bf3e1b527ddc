"""What the kernel says about the process that a lock file names, and what follows from that.

Seeing and deciding are apart: `look` and its like see, and what follows is decided from values
alone, so that a lock can be judged again, and nothing is decided from two different moments.

Sources: proc(5), proc_pid_fdinfo(5), pidfd_open(2); NFTBan Queue and Mail Contract, "Lock file".
"""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from engine.locks import lock_file
from engine.locks.lock_file import LockClaim
from engine.model import Verdict
from engine.policy import at, lasting
from engine.text.safe import shown

SLACK = 2.0
"""Seconds by which two clock readings of one moment may differ: whole seconds on either side."""

REMOTE = ("nfs", "cifs", "smb", "fuse", "9p", "ceph", "afs", "gfs", "ocfs", "lustre", "virtiofs")
"""Beginnings of the names of file systems whose files other machines may have open, too."""

PROGRAMS = ("nftban", "spooldeck")
"""How the name of a program with a two-line lock, or of the script that it runs, begins."""

NO_PROCESS = (errno.ESRCH, errno.EINVAL, errno.ENOENT)
"""What pidfd_open(2) says of a number that is no process's; the last two where it is a thread's
(ENOENT from Linux 6.15 on)."""


# ---- what /proc says


class Observer(NamedTuple):
    """Who is looking, as far as that decides what can be known from here."""

    pid: int
    uid: int
    boot: str
    pid_ns: int
    host: str
    ancestors: frozenset[int]
    """Our parent, its parent, and so on."""


class HolderProcess(NamedTuple):
    """One live process, as /proc shows it to us."""

    pid: int
    hidden: str = ""
    """Why nothing below is known; "" when it is."""
    started: int = 0
    """Clock ticks between the machine's start and its own."""
    parent: int = 0
    uids: frozenset[int] = frozenset()
    """Its real, effective, saved and file system uid; more than one for a setuid program."""
    command: str = ""
    """Its command line, foreign text."""
    taker: int | None = None
    """If it has the open file whose flock is the lock's: the PID that the kernel says took it (0
    for one that is gone, seen from a container)."""
    files_hidden: bool = False
    """Whether we may not see which files it has open."""
    program: str = ""
    """The name, without folders, of the program that it runs, or of the script."""


def here() -> Observer:
    """Ourselves."""
    ancestors = set()
    pid = os.getppid()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        try:
            _, pid, _, _ = lock_file.stat_of(pid)
        except OSError:
            break  # hidden: if that one held a lock, its being hidden would save it
    return Observer(
        *(
            os.getpid(),
            os.geteuid(),
            lock_file.boot_id(),
            lock_file.pid_namespace(),
            lock_file.host_name(),
        ),
        frozenset(ancestors),
    )


def look(pid: int, lock: os.stat_result) -> HolderProcess | None:
    """What can be seen of a process; None when none of that number lives.

    `lock` is the state of the lock file, of whose flock is told whether the process has it.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS:
            return None
        if error.errno != errno.ENOSYS:
            raise
        return HolderProcess(pid, "this kernel has no pidfds") if _answers(pid) else None
    try:
        process = _look(pid, lock)
        if has_ended(pidfd):
            return None
        # While this process is not waited for, its number is nobody else's: all that was read
        # was its own, if /proc counts as we do.
        if f"\nPid:\t{pid}\n".encode() not in lock_file.read(f"/proc/self/fdinfo/{pidfd}"):
            return HolderProcess(pid, "/proc is that of another PID namespace")
        return process
    except (FileNotFoundError, ProcessLookupError):
        return None if has_ended(pidfd) else HolderProcess(pid, "/proc does not show it to us")
    except PermissionError:
        return HolderProcess(pid, "/proc hides it from us")
    finally:
        os.close(pidfd)


def has_ended(pidfd: int, seconds: float = 0.0) -> bool:
    """Whether a process ends within so many seconds, or has ended; waited for by others or not."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _look(pid: int, lock: os.stat_result) -> HolderProcess:
    _, parent, _, started = lock_file.stat_of(pid)
    uids: frozenset[int] = frozenset()
    for line in lock_file.read(f"/proc/{pid}/status").split(b"\n"):
        if line.startswith(b"Uid:"):
            uids = frozenset(map(int, line.split()[1:]))
    words = (
        lock_file.read(f"/proc/{pid}/cmdline").decode("utf-8", "replace").rstrip("\0").split("\0")
    )
    command = " ".join(words)
    process = HolderProcess(pid, "", started, parent, uids, command, program=program_of(words))
    try:
        return process._replace(taker=_taker(pid, lock))
    except PermissionError:
        return process._replace(files_hidden=True)


def program_of(words: Sequence[str]) -> str:
    """What a command line runs: its program, or the script where that is an interpreter."""
    name, script = (os.path.basename(word) for word in (*words, "", "")[:2])
    interpreter = name.lstrip("-").rstrip("0123456789.") in ("bash", "sh", "dash", "python")
    return script if interpreter else name


def _taker(pid: int, lock: os.stat_result) -> int | None:
    """Return the PID that the kernel reports for the flock on the lock, if it is open there."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            # Looked at by name first: a file on a dead server would keep us waiting.
            if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/"):
                continue
            for line in lock_file.read(f"/proc/{pid}/fdinfo/{fd}").split(b"\n"):
                # lock:	1: FLOCK  ADVISORY  WRITE 5011 fe:00:2146309 0 EOF
                words = line.split()
                if words[:1] == [b"lock:"] and words[2:5] == [b"FLOCK", b"ADVISORY", b"WRITE"]:
                    file = os.stat(f"/proc/{pid}/fd/{fd}")
                    if os.path.samestat(file, lock):
                        return int(words[5])
        except FileNotFoundError:
            continue  # closed since it was listed
    return None


def all_with(lock: os.stat_result) -> tuple[HolderProcess, ...]:
    """Every process that we can see to have the open file whose flock is the lock's."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if _taker(int(name), lock) is None:
                continue
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue  # another user's, or gone since
        process = look(int(name), lock)
        if process is not None and process.taker is not None:
            found.append(process)
    return tuple(found)


def remote(fd: int) -> str:
    """The name of the file system of an open file, if other machines may share it; else ""."""
    for line in lock_file.read(f"/proc/self/fdinfo/{fd}").split(b"\n"):
        if line.startswith(b"mnt_id:"):
            mount = line.split()[1]
            break
    else:
        return ""
    for line in lock_file.read("/proc/self/mountinfo").split(b"\n"):
        if line.split(b" ", 1)[0] == mount:
            kind = line.partition(b" - ")[2].split(b" ")[0].decode("ascii", "replace")
            return kind if kind.startswith(REMOTE) else ""
    return ""


# ---- what follows


class LockScene(NamedTuple):
    """All that was found out about a lock that names a process."""

    claim: LockClaim
    busy: bool
    """Whether somebody has its flock."""
    named: HolderProcess | None
    """The live process of that number."""
    others: tuple[HolderProcess, ...]
    """Those others that were seen to have its flock; looked for only where that one has it not."""
    here: Observer
    owner: int
    """Uid of the owner of the lock's folder."""
    writer: int
    """Uid of the owner of the lock file: its program made it, and can make none of another's."""
    remote: str
    """Which file system that other machines may share it lies on; "" for none."""
    mtime: float
    booted: float
    """When this machine was started, by today's clock; epoch seconds UTC."""

    @property
    def is_elsewhere(self) -> bool:
        """Whether its PID means nothing here: written on another machine or in a container."""
        mark, here = self.claim.mark, self.here
        return mark is not None and (mark.host, mark.boot, mark.pid_ns) != (
            *(here.host, here.boot, here.pid_ns),
        )

    @property
    def holder(self) -> HolderProcess | None:
        """The process that the lock means; None when it is gone, or its number another's now."""
        named, mark = self.named, self.claim.mark
        if named is None or self.is_elsewhere:
            return None
        if mark is not None:
            return named if named.hidden or named.started == mark.started else None
        # One that is hidden from us started at some time after the machine did.
        return named if self.started_at(named) <= self.latest + SLACK else None

    @property
    def latest(self) -> float:
        """When it was last written to, at the latest; epoch seconds UTC."""
        return max(self.claim.written, self.mtime)

    def started_at(self, process: HolderProcess) -> float:
        """When a process started, by today's clock."""
        return self.booted + process.started / os.sysconf("SC_CLK_TCK")

    @property
    def targets(self) -> tuple[HolderProcess, ...]:
        """Whom there is to end before the lock is free: its holder, or else who has its flock."""
        return (self.holder,) if self.holder is not None else self.others


def doubt(scene: LockScene) -> str:
    """Why nobody may be signalled for this lock; "" when there is no reason left."""
    return next(filter(None, _doubts(scene)), "")


def _doubts(scene: LockScene) -> Iterator[str]:
    claim, mark, here = scene.claim, scene.claim.mark, scene.here
    if scene.remote:
        yield f"the lock lies on a file system that other machines may share ({scene.remote})"
    if mark is not None:
        if mark.host != here.host:
            yield f"it was taken on the host {shown(mark.host)}, and this is {here.host}"
        if mark.boot != here.boot:
            yield "it was taken before this machine was started"
        if mark.pid_ns != here.pid_ns:
            yield f"PID {claim.pid} is a number of another PID namespace (a container's)"
        yield contradiction(scene)
    targets = scene.targets
    if not targets:
        yield "whoever holds the flock cannot be seen from here"
    for process in targets:
        yield _unfit(process, scene)
        if process is scene.holder:
            yield from _foreign(process, scene) if mark is None else _ours(process, scene)
        elif process.taker not in (claim.pid, 0) or process.pid == claim.pid or mark is None:
            # Its taker is on record in the kernel: this is no child of the holder, but somebody
            # who took the flock since, perhaps to free this queue as we do.
            yield f"PID {process.pid} has the flock, but not from PID {claim.pid}"


def contradiction(scene: LockScene) -> str:
    """Two facts of a lock of ours that cannot both be true; "" where there are none.

    Both are of CLOCK_BOOTTIME, which no change of the date moves. A two-line lock has no such
    facts: a process that started after it was written is not its holder (`Scene.holder`).
    """
    mark = scene.claim.mark
    if mark is None or mark.boot != scene.here.boot:
        return ""
    started, heartbeat = mark.started / os.sysconf("SC_CLK_TCK"), mark.alive_at
    if heartbeat >= started - SLACK:
        return ""
    began, last = at(scene.booted + started), at(scene.booted + heartbeat)
    return f"PID {scene.claim.pid} started {began}, after its last heartbeat {last}: one is wrong"


def _unfit(process: HolderProcess, scene: LockScene) -> str:
    """Why a process must not be signalled, whatever else it is."""
    pid, here = process.pid, scene.here
    if pid == 1:
        return "PID 1 is never signalled"
    if pid == here.pid:
        return f"PID {pid} is this process"
    if pid in here.ancestors:
        return f"PID {pid} started this process, directly or not"
    if process.hidden:
        return f"nothing can be proven of PID {pid}: {process.hidden}"
    if len(process.uids) != 1:
        return f"PID {pid} runs under several uids"
    (uid,) = process.uids
    if here.uid not in (0, uid):
        who = "root" if uid == 0 else f"uid {uid}"
        return f"PID {pid} runs as {who}, and we may not signal it (root may)"
    if uid not in (0, scene.owner):
        return f"PID {pid} runs as uid {uid}, and the lock's folder belongs to uid {scene.owner}"
    if process.files_hidden:
        return f"whether PID {pid} holds the flock is hidden from us"
    return ""


def _ours(process: HolderProcess, scene: LockScene) -> Iterator[str]:
    mark = scene.claim.mark
    assert mark is not None
    pid = process.pid
    if mark.uid not in process.uids:
        yield f"PID {pid} runs under another uid than {mark.uid}, which took the lock"
    if process.taker is None:
        yield f"PID {pid} does not hold the flock of this lock: its file says more than is true"
    elif process.taker != pid:
        yield f"PID {pid} has the flock from PID {process.taker}, which took it"


def _foreign(process: HolderProcess, scene: LockScene) -> Iterator[str]:
    pid = process.pid
    if abs(scene.mtime - scene.claim.written) > SLACK:
        yield "its file was touched after it was written, so its times prove nothing"
    if scene.busy and process.taker != pid:
        yield f"somebody else than PID {pid} has the flock"
    if process.uids != {scene.writer}:
        yield f"PID {pid} is not the user's who made the lock file (uid {scene.writer})"
    if not process.program.startswith(PROGRAMS):
        yield f"PID {pid} is no worker by its command line: {shown(process.command[:80])}"


def silence(scene: LockScene, now: float, up: float, slept: float) -> float:
    """Seconds since the holder's last sign of life; 0 for one that lies in the future.

    `up`: seconds since the machine was started, for `slept` of which it slept.
    """
    mark = scene.claim.mark
    if mark is not None and mark.boot == scene.here.boot:
        return max(0.0, up - mark.alive_at - max(0.0, slept - mark.slept))
    return max(0.0, now - scene.mtime)


def lingering(path: str, proc: str = "/proc") -> int | None:
    """A process that has a lock file open that is at its path no more; None when none is seen.

    A worker whose lock file somebody removed works on; its descriptor names what it has open. Of
    other users' processes only root sees that.
    """
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            opened = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            continue  # it has ended, or is not ours to look at
        for fd in opened:
            try:
                target = os.readlink(f"{proc}/{pid}/fd/{fd}")
            except OSError:
                continue  # closed meanwhile
            if (
                target.startswith(path)
                and target.endswith(" (deleted)")
                and int(pid) != os.getpid()
            ):
                return int(pid)
    return None


def proven(scene: LockScene, verdict: Verdict) -> bool:
    """Whether a verdict follows from what the kernel says; else from times, which may deceive.

    A lock of ours names its holder beyond mistake. Of another program's, only that the process is
    gone is certain, where no other machine has a share in the file.
    """
    if scene.remote:
        return False
    if scene.claim.mark is not None:
        return scene.named is None or not scene.named.hidden
    return verdict is Verdict.STALE and scene.named is None


def facts(scene: LockScene, age: float, threshold: float) -> tuple[tuple[str, str], ...]:
    """What was found out, for a person to judge by; `age` and `threshold` in seconds."""
    claim, mark, named = scene.claim, scene.claim.mark, scene.named
    found = [("holder", _whose(claim, named, scene.holder))]
    if named is not None and not named.hidden:
        found.append(("started", f"{at(scene.started_at(named))}: {_identity(scene)}"))
    now = scene.latest if mark is None else scene.booted + mark.alive_at
    found += [
        ("last sign of life", f"{at(now)}, {lasting(age)} ago"),
        ("limit", f"{lasting(threshold)} without one"),
    ]
    if mark is None:
        found.append(("written by", "another program: PID and time, no more"))
    else:
        same = mark.boot == scene.here.boot, mark.pid_ns == scene.here.pid_ns
        found += [
            ("boot", "this one" if same[0] else "an earlier one, or another machine's"),
            ("PID namespace", "ours" if same[1] else "another one: a container's"),
            ("host", shown(mark.host) + (", this one" if mark.host == scene.here.host else "")),
            ("user", f"uid {mark.uid}"),
        ]
    if scene.remote:
        found.append(("file system", scene.remote))
    found.append(("flock", _who_has_it(scene)))
    return tuple(found)


def _identity(scene: LockScene) -> str:
    """Whether the live process of the lock's number is the one that took it, and how one knows."""
    if scene.is_elsewhere:
        return "it is another, the lock was taken elsewhere"
    if scene.claim.mark is not None:
        ours = scene.holder is not None
        return "as the lock says: it took it" if ours else "not as the lock says: it is another"
    if scene.holder is None:
        return "after the lock was written: it is another"
    return "before the lock was written: it may be the one"


def _whose(claim: LockClaim, named: HolderProcess | None, holder: HolderProcess | None) -> str:
    if named is None:
        return f"PID {claim.pid}, gone"
    if named.hidden:
        return f"PID {claim.pid}: {named.hidden}"
    command = shown(named.command[:200]) or "(no command line)"
    if holder is None:
        return f"PID {claim.pid} is another process now: {command}"
    return f"PID {claim.pid}: {command}"


def _who_has_it(scene: LockScene) -> str:
    if not scene.busy:
        return "free: nobody has it"
    having = [p for p in (scene.named, *scene.others) if p is not None and p.taker is not None]
    if having:
        # Of a holder whose files are hidden it is not known whether it has it, too.
        hidden = scene.holder is not None and (scene.holder.hidden or scene.holder.files_hidden)
        return (
            ("? " if hidden else "")
            + "held by "
            + ", ".join(
                f"PID {p.pid}" if p is scene.named else f"PID {p.pid} ({shown(p.command[:80])})"
                for p in having
            )
        )
    return "? held, but by whom is hidden from us"
