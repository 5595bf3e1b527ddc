"""Examine the process that a lock file names: read /proc and decide whether it may be signalled.

Reading (`describe_observer`, `read_process`, `processes_with_flock`) and deciding are separate:
the decisions use only values of one `LockReading`, so they can be repeated and never mix two
moments.

Sources: proc(5), proc_pid_fdinfo(5), pidfd_open(2); NFTBan Queue and Mail Contract, "Lock file"."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Iterator, Sequence

from engine.locks import lock_file
from engine.locks.lock_file import LockClaim
from engine.model import Verdict
from engine.text.safe import safe_line, safe_start
from engine.text.times import describe_limit, format_rough_duration, format_time
from engine.values import NamedTuple

CLOCK_SLACK_SECONDS = 2.0
"""Seconds by which two clock readings of one event may differ: each is rounded to seconds."""

PROC_HIDES, PROC_LACKS = "/proc hides it from us", "/proc does not show it to us"
"""Why the facts of a process are unknown: no permission to read them, or /proc has no such PID."""

_NETWORK_TYPES = "nfs", "cifs", "smb", "fuse", "9p"
_CLUSTER_TYPES = "ceph", "afs", "gfs", "ocfs", "lustre", "virtiofs"
SHARED_FILE_SYSTEMS = (*_NETWORK_TYPES, *_CLUSTER_TYPES)
"""Prefixes of file system types whose files can be open on other machines too."""

WORKER_NAMES = ("nftban", "spooldeck")
"""Prefixes of the program or script names that write two-line locks."""

MAX_COMMAND_CHARACTERS = 500
"""Characters of the holder's command line in the evidence; a longer one ends in an ellipsis."""

NO_PROCESS_ERRORS = (errno.ESRCH, errno.EINVAL, errno.ENOENT)
"""errno values of pidfd_open(2) for a PID without a process; the last two are for a thread id
(ENOENT from Linux 6.15 on)."""


# ---- reading /proc


class Observer(NamedTuple):
    """The examining process: what it can see depends on its user, boot and namespace."""

    pid: int
    uid: int
    boot: str
    pid_ns: int
    host: str
    ancestors: frozenset[int]
    """PIDs of our parent, its parent, and so on."""


class HolderProcess(NamedTuple):
    """One live process, as read from /proc."""

    pid: int
    hidden: str = ""
    """Why the fields below are unknown; "" if they are known."""
    started: int = 0
    """Start time in clock ticks since boot (field 22 of /proc/PID/stat)."""
    parent: int = 0
    uids: frozenset[int] = frozenset()
    """Real, effective, saved and file system uid; more than one value for a setuid program."""
    command: str = ""
    """Command line; untrusted text."""
    taker: int | None = None
    """If it has the locked file open: the PID that called flock(2) according to the kernel (0 if
    that process is gone, or invisible from this container)."""
    files_hidden: bool = False
    """True if we have no permission to see its open files."""
    program: str = ""
    """Base name of its program, or of the script that an interpreter runs."""


def describe_observer() -> Observer:
    """Describe this process as the observer."""
    ancestors = set()
    pid = os.getppid()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        try:
            _, pid, _, _ = lock_file.process_stat(pid)
        except OSError:
            break  # hidden: a hidden ancestor that held a lock is never signalled anyway
    return Observer(
        os.getpid(),
        os.geteuid(),
        lock_file.boot_id(),
        pid_ns=lock_file.pid_namespace(),
        host=lock_file.host_name(),
        ancestors=frozenset(ancestors),
    )


def read_process(pid: int, lock: os.stat_result) -> HolderProcess | None:
    """Read one process from /proc; None if no process has this PID. `lock` is the fstat(2) of the
    lock file, to find out whether the process has its flock."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError as error:
        if error.errno in NO_PROCESS_ERRORS:
            return None
        if error.errno != errno.ENOSYS:
            raise
        return HolderProcess(pid, "this kernel has no pidfds") if _exists(pid) else None
    try:
        process = _read_proc(pid, lock)
        if has_ended(pidfd):
            return None
        # Until the process is reaped its PID is not reused, so everything read was about this
        # process, if /proc belongs to our PID namespace.
        info = lock_file.read_proc_file(f"/proc/self/fdinfo/{pidfd}")
        if f"\nPid:\t{pid}\n".encode() not in info:
            return HolderProcess(pid, "/proc is that of another PID namespace")
        return process
    except (FileNotFoundError, ProcessLookupError):
        return None if has_ended(pidfd) else HolderProcess(pid, PROC_LACKS)
    except PermissionError:
        return HolderProcess(pid, PROC_HIDES)
    finally:
        os.close(pidfd)


def has_ended(pidfd: int, seconds: float = 0.0) -> bool:
    """Wait up to so many seconds for a process to exit; True if it has, even if not yet reaped."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _read_proc(pid: int, lock: os.stat_result) -> HolderProcess:
    _, parent, _, started = lock_file.process_stat(pid)
    uids: frozenset[int] = frozenset()
    for line in lock_file.read_proc_file(f"/proc/{pid}/status").split(b"\n"):
        if line.startswith(b"Uid:"):
            uids = frozenset(map(int, line.split()[1:]))
    command = lock_file.read_proc_file(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
    words = command.rstrip("\0").split("\0")
    process = HolderProcess(
        pid,
        started=started,
        parent=parent,
        uids=uids,
        command=" ".join(words),
        program=program_name(words),
    )
    try:
        return process._replace(taker=_flock_taker(pid, lock))
    except PermissionError:
        return process._replace(files_hidden=True)


def program_name(words: Sequence[str]) -> str:
    """Base name of the program in a command line, or of the script if that is an interpreter."""
    name, script = (os.path.basename(word) for word in (*words, "", "")[:2])
    interpreter = name.lstrip("-").rstrip("0123456789.") in ("bash", "sh", "dash", "python")
    return script if interpreter else name


def _flock_taker(pid: int, lock: os.stat_result) -> int | None:
    """Return the PID that the kernel reports for the flock on the lock, if it is open there."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            # Check by name first: stat(2) of a file on an unreachable server would block.
            if not os.readlink(f"/proc/{pid}/fd/{fd}").startswith("/"):
                continue
            for line in lock_file.read_proc_file(f"/proc/{pid}/fdinfo/{fd}").split(b"\n"):
                # lock:	1: FLOCK  ADVISORY  WRITE 5011 fe:00:2146309 0 EOF
                words = line.split()
                if words[:1] == [b"lock:"] and words[2:5] == [b"FLOCK", b"ADVISORY", b"WRITE"]:
                    file = os.stat(f"/proc/{pid}/fd/{fd}")
                    if os.path.samestat(file, lock):
                        return int(words[5])
        except FileNotFoundError:
            continue  # closed since it was listed
    return None


def processes_with_flock(lock: os.stat_result) -> tuple[HolderProcess, ...]:
    """Return all visible processes that have the locked file open with its flock."""
    holders = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            if _flock_taker(int(name), lock) is None:
                continue
        except (PermissionError, FileNotFoundError, ProcessLookupError):
            continue  # another user's, or it has exited
        process = read_process(int(name), lock)
        if process is not None and process.taker is not None:
            holders.append(process)
    return tuple(holders)


def shared_file_system(fd: int) -> str:
    """File system type of an open file if other machines may share it; else ""."""
    for line in lock_file.read_proc_file(f"/proc/self/fdinfo/{fd}").split(b"\n"):
        if line.startswith(b"mnt_id:"):
            mount = line.split()[1]
            break
    else:
        return ""
    for line in lock_file.read_proc_file("/proc/self/mountinfo").split(b"\n"):
        if line.split(b" ", 1)[0] == mount:
            kind = line.partition(b" - ")[2].split(b" ")[0].decode("ascii", "replace")
            return kind if kind.startswith(SHARED_FILE_SYSTEMS) else ""
    return ""


# ---- decisions


class LockReading(NamedTuple):
    """All facts about a lock that names a process, read at one time."""

    claim: LockClaim
    busy: bool
    """True if a process holds the flock."""
    named: HolderProcess | None
    """The live process with the PID in the lock file."""
    others: tuple[HolderProcess, ...]
    """Other processes seen with the flock; searched only if `named` does not have it."""
    observer: Observer
    owner: int
    """Uid of the owner of the lock's folder."""
    writer: int
    """Uid of the owner of the lock file, which is the user who created it."""
    remote: str
    """File system type if other machines may share it; else ""."""
    mtime: float
    booted: float
    """Boot time of this machine by the present clock, in epoch seconds UTC."""

    @property
    def is_elsewhere(self) -> bool:
        """True if the PID is meaningless here: written on another host, boot or in a container."""
        mark, observer = self.claim.mark, self.observer
        here = observer.host, observer.boot, observer.pid_ns
        return mark is not None and (mark.host, mark.boot, mark.pid_ns) != here

    @property
    def holder(self) -> HolderProcess | None:
        """The process that took the lock; None if it has exited or its PID was reused."""
        named, mark = self.named, self.claim.mark
        if named is None or self.is_elsewhere:
            return None
        if mark is not None:
            return named if named.hidden or named.started == mark.started else None
        # The start time of a hidden process reads as 0, the boot time, so it is accepted here.
        return named if self.started_at(named) <= self.latest + CLOCK_SLACK_SECONDS else None

    @property
    def latest(self) -> float:
        """Latest time at which the file can have been written; epoch seconds UTC."""
        return max(self.claim.written, self.mtime)

    def started_at(self, process: HolderProcess) -> float:
        """Start time of a process in epoch seconds UTC, by the present clock."""
        return self.booted + process.started / os.sysconf("SC_CLK_TCK")

    @property
    def targets(self) -> tuple[HolderProcess, ...]:
        """Processes to end to free the lock: the holder, else those that have the flock."""
        return (self.holder,) if self.holder is not None else self.others


def signal_refusal(reading: LockReading) -> str:
    """Why no process may be signalled for this lock; "" if one may be."""
    return next(filter(None, _signal_refusals(reading)), "")


def _signal_refusals(reading: LockReading) -> Iterator[str]:
    claim, mark, observer = reading.claim, reading.claim.mark, reading.observer
    if reading.remote:
        yield f"the lock is on a file system that other machines may share ({reading.remote})"
    if mark is not None:
        if mark.host != observer.host:
            yield f"the lock was taken on host {safe_line(mark.host)}; this is {observer.host}"
        if mark.boot != observer.boot:
            yield "the lock was taken before the last boot"
        if mark.pid_ns != observer.pid_ns:
            yield f"PID {claim.pid} belongs to another PID namespace (a container)"
        yield heartbeat_contradiction(reading)
    targets = reading.targets
    if not targets:
        yield "the process with the flock is not visible from here"
    for process in targets:
        yield _process_refusal(process, reading)
        if process is reading.holder:
            yield from (
                _foreign_lock_refusals(process, reading)
                if mark is None
                else _our_lock_refusals(process, reading)
            )
        elif process.taker not in (claim.pid, 0) or process.pid == claim.pid or mark is None:
            # The kernel names its own taker: not a child of the holder, but a process that took
            # the flock later, perhaps another operator freeing this queue.
            yield f"PID {process.pid} has the flock, but did not inherit it from PID {claim.pid}"


def heartbeat_contradiction(reading: LockReading) -> str:
    """Describe two facts of a lock of this project that exclude each other; "" if there are none.
    Both use CLOCK_BOOTTIME, which is independent of the date. A two-line lock has no such facts;
    there, a process that started after the lock was written is not its holder."""
    mark = reading.claim.mark
    if mark is None or mark.boot != reading.observer.boot:
        return ""
    started, heartbeat = mark.started / os.sysconf("SC_CLK_TCK"), mark.alive_at
    if heartbeat >= started - CLOCK_SLACK_SECONDS:
        return ""
    began, last = format_time(reading.booted + started), format_time(reading.booted + heartbeat)
    return f"PID {reading.claim.pid} started {began}, after its last heartbeat {last}"


def find_contradiction(reading: LockReading) -> str:
    """Describe facts about a lock that exclude each other, so that its verdict cannot be sure; ""
    if there are none."""
    mark, named = reading.claim.mark, reading.named
    if early := heartbeat_contradiction(reading):
        return early
    if mark is None or not any(p is not None and p.taker for p in (named, *reading.others)):
        return ""
    if mark.boot != reading.observer.boot:
        return "the lock file is from another boot, but a process here holds the flock"
    if named is not None and named.taker == named.pid and named.started != mark.started:
        return f"PID {named.pid} holds the flock, but its start time does not match the lock file"
    return ""


def _process_refusal(process: HolderProcess, reading: LockReading) -> str:
    """Why a process must not be signalled, independent of the lock; "" if there is no reason."""
    pid, observer = process.pid, reading.observer
    if pid == 1:
        return "PID 1 is never signalled"
    if pid == observer.pid:
        return f"PID {pid} is this process"
    if pid in observer.ancestors:
        return f"PID {pid} is an ancestor of this process"
    if process.hidden:
        return f"PID {pid} cannot be verified: {process.hidden}"
    if len(process.uids) != 1:
        return f"PID {pid} runs under several uids"
    (uid,) = process.uids
    if observer.uid not in (0, uid):
        who = "root" if uid == 0 else f"uid {uid}"
        return f"PID {pid} runs as {who}: permission denied to signal it (use root)"
    if uid not in (0, reading.owner):
        return f"PID {pid} runs as uid {uid}, but the lock's folder belongs to uid {reading.owner}"
    if process.files_hidden:
        return f"permission denied: cannot see whether PID {pid} holds the flock"
    return ""


def _our_lock_refusals(process: HolderProcess, reading: LockReading) -> Iterator[str]:
    mark = reading.claim.mark
    assert mark is not None
    pid = process.pid
    if mark.uid not in process.uids:
        yield f"PID {pid} does not run as uid {mark.uid}, which took the lock"
    if process.taker is None:
        yield f"PID {pid} does not hold the flock: the lock file is wrong"
    elif process.taker != pid:
        yield f"PID {pid} inherited the flock from PID {process.taker}"


def _foreign_lock_refusals(process: HolderProcess, reading: LockReading) -> Iterator[str]:
    pid = process.pid
    if abs(reading.mtime - reading.claim.written) > CLOCK_SLACK_SECONDS:
        yield "the lock file was modified after it was written: its times prove nothing"
    if reading.busy and process.taker != pid:
        yield f"another process than PID {pid} has the flock"
    if process.uids != {reading.writer}:
        yield f"PID {pid} does not run as the owner of the lock file (uid {reading.writer})"
    if not process.program.startswith(WORKER_NAMES):
        yield f"PID {pid} does not look like a worker: {safe_start(process.command, 80)}"


def heartbeat_age(reading: LockReading, now: float, up: float, slept: float) -> float:
    """Seconds since the holder's last heartbeat; 0 if that is in the future. `up`: seconds since
    boot; `slept`: how many of them the machine was suspended."""
    mark = reading.claim.mark
    if mark is not None and mark.boot == reading.observer.boot:
        return max(0.0, up - mark.alive_at - max(0.0, slept - mark.slept))
    return max(0.0, now - reading.mtime)


def deleted_lock_holder(path: str, proc: str = "/proc") -> int | None:
    """PID of a process that has a deleted lock file open; None if it sees none. A worker keeps
    running if its lock file is removed; its link in /proc/PID/fd then ends in "(deleted)". Only
    root can see the files of other users' processes."""
    for pid in filter(str.isdigit, os.listdir(proc)):
        try:
            opened = os.listdir(f"{proc}/{pid}/fd")
        except OSError:
            continue  # it has exited, or permission denied
        for fd in opened:
            try:
                target = os.readlink(f"{proc}/{pid}/fd/{fd}")
            except OSError:
                continue  # closed in the meantime
            is_deleted = target.startswith(path) and target.endswith(" (deleted)")
            if is_deleted and int(pid) != os.getpid():
                return int(pid)
    return None


def is_proven(reading: LockReading, verdict: Verdict) -> bool:
    """True if the verdict is based on kernel facts; False if only on times, which can be wrong. Our
    own lock identifies its holder exactly. For another program's lock, only the absence of the
    process is certain, and only if no other machine shares the file."""
    if reading.remote:
        return False
    if reading.claim.mark is not None:
        return reading.named is None or not reading.named.hidden
    return verdict is Verdict.STALE and reading.named is None


def list_facts(reading: LockReading, age: float, threshold: float) -> tuple[tuple[str, str], ...]:
    """Findings as (name, text) pairs for the operator; `age` and `threshold` in seconds."""
    claim, mark, named = reading.claim, reading.claim.mark, reading.named
    facts = [("holder", _describe_holder(claim, named, reading.holder))]
    if named is not None and not named.hidden:
        facts.append(("started", f"{format_time(reading.started_at(named))}: {_identity(reading)}"))
    now = reading.latest if mark is None else reading.booted + mark.alive_at
    facts += [
        ("last heartbeat", f"{format_time(now)}, {format_rough_duration(age)} ago"),
        ("limit", f"{describe_limit(threshold)} without one"),
    ]
    if mark is None:
        facts.append(("written by", "another program (PID and time only)"))
    else:
        same = mark.boot == reading.observer.boot, mark.pid_ns == reading.observer.pid_ns
        here = ", this host" if mark.host == reading.observer.host else ""
        facts += [
            ("boot", "same" if same[0] else "an earlier one or another machine"),
            ("PID namespace", "same" if same[1] else "another one (a container)"),
            ("host", f"{safe_line(mark.host)}{here}"),
            ("user", f"uid {mark.uid}"),
        ]
    if reading.remote:
        facts.append(("file system", reading.remote))
    facts.append(("flock", _describe_flock(reading)))
    return tuple(facts)


def _identity(reading: LockReading) -> str:
    """Compare the start time of the live process with the lock file, as text."""
    if reading.is_elsewhere:
        return "another process: the lock was taken elsewhere"
    words = {
        (True, True): "matches lock file (same process)",
        (True, False): "PID reused: not the process that took it",
        (False, True): "before the lock was written: may be the holder",
        (False, False): "after the lock was written: PID reused",
    }
    return words[reading.claim.mark is not None, reading.holder is not None]


def _describe_holder(
    claim: LockClaim, named: HolderProcess | None, holder: HolderProcess | None
) -> str:
    if named is None:
        return f"PID {claim.pid}, gone"
    if named.hidden:
        return f"PID {claim.pid}: {named.hidden}"
    command = safe_start(named.command, MAX_COMMAND_CHARACTERS) or "(no command line)"
    if holder is None:
        return f"PID {claim.pid} is now another process: {command}"
    return f"PID {claim.pid}: {command}"


def _describe_flock(reading: LockReading) -> str:
    if not reading.busy:
        return "free"
    having = [p for p in (reading.named, *reading.others) if p is not None and p.taker is not None]
    if not having:
        return "? held; the process is not visible from here"
    # The holder may have it too, if its open files are hidden.
    holder = reading.holder
    is_hidden = holder is not None and (holder.hidden or holder.files_hidden)
    names = (
        f"PID {p.pid}" + ("" if p is reading.named else f" ({safe_start(p.command, 80)})")
        for p in having
    )
    return f"{'? ' if is_hidden else ''}held by {', '.join(names)}"
