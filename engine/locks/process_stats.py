"""Describe what a process is doing: two readings of /proc (state, CPU, I/O, files, children).

`take` reads, and blocks as long as the kernel does; everything else computes from its result. What
may not be read is shown as `?` with the reason.

Source: proc(5)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from engine.locks import lock_file
from engine.text.error_text import error_text
from engine.text.safe import safe_line, safe_start
from engine.text.times import format_rough_duration
from engine.values import NamedTuple

MAX_FILES = 512
"""Maximum number of open files to examine; further ones are shown as "more"."""

MAX_NAMED_FILES = 4
"""Maximum number of files in the spool to list by name."""

MAX_DESCENDANTS = 12

MIN_INTERVAL_SECONDS = 0.25
"""Minimum seconds between two readings for a useful difference."""

MIN_CPU_SHARE = 0.02
"""Minimum share of one CPU for a process to count as working, not just waking up sometimes."""

MIN_BYTES_PER_SECOND = 65536
"""Minimum bytes per second, read and written, for a process to count as working."""


class ProcReader(NamedTuple):
    """Functions that read /proc; replaceable in tests."""

    read: Callable[[str], bytes] = lock_file.read_proc_file
    names: Callable[[str], list[str]] = os.listdir
    link: Callable[[str], str] = os.readlink
    clock: Callable[[], float] = lock_file.boot_seconds
    """Seconds since boot."""


REAL_PROC = ProcReader()


class OpenFiles(NamedTuple):
    """Open files of a process."""

    amount: int
    below: tuple[str, ...] = ()
    """Paths of those in the spool, relative to it, without repetitions."""
    more: bool = False
    """True if there are more than were examined."""


class ProcessStats(NamedTuple):
    """One process at one time."""

    pid: int
    when: float
    """Seconds since boot."""
    unknown: str = ""
    """Why the fields below are unknown: it has exited, or permission denied."""
    state: str = ""
    """The kernel's state letter: R, S, D, T, Z and so on."""
    started: int = 0
    """Start time in clock ticks since boot."""
    cpu: int = 0
    """CPU time used, in clock ticks."""
    io_bytes: tuple[int, int] | str = ""
    """Bytes read and written so far, files and connections together; a text: why unknown."""
    waits: str = ""
    """Kernel function in which it waits (wchan); "" if it does not wait or this is unknown."""
    command: str = ""
    """Command line; untrusted text."""
    files: OpenFiles | str = ""
    """Open files; a text: why unknown."""
    descendants: tuple[ProcessStats, ...] | str = ()
    """Descendants, without their files; a text: why unknown."""


class ProcessDelta(NamedTuple):
    """What a process and its descendants did between two readings."""

    seconds: float
    cpu: float
    """CPU time in seconds."""
    io_bytes: int | None
    """Bytes read and written; None if unknown."""

    @property
    def is_working(self) -> bool:
        """True if it is working, not just waking up sometimes."""
        return (
            self.cpu >= MIN_CPU_SHARE * self.seconds
            or (self.io_bytes or 0) >= MIN_BYTES_PER_SECOND * self.seconds
        )


def read_stats(pid: int, below: str = "", proc: ProcReader = REAL_PROC) -> ProcessStats:
    """Read the present state of a process; `below` is the folder whose open files to list."""
    stats = _read(pid, proc)
    if stats.unknown:
        return stats
    return stats._replace(files=_files(pid, below, proc), descendants=_read_descendants(pid, proc))


def _read(pid: int, proc: ProcReader) -> ProcessStats:
    when = proc.clock()
    try:
        # The state follows the command name, which may itself contain parentheses.
        fields = proc.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        command = proc.read(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
    except OSError as error:
        return ProcessStats(pid, when, _why(error))
    return ProcessStats(
        pid,
        when,
        state=fields[0].decode(),
        started=int(fields[19]),
        cpu=int(fields[11]) + int(fields[12]),
        io_bytes=_read_io(pid, proc),
        waits=_read_wchan(pid, proc),
        command=safe_line(command.rstrip("\0").replace("\0", " ")),
    )


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return "it has exited"
    return error_text(error).lower()


def _read_io(pid: int, proc: ProcReader) -> tuple[int, int] | str:
    try:
        rows = dict(row.split(b": ") for row in proc.read(f"/proc/{pid}/io").splitlines())
        return int(rows[b"rchar"]), int(rows[b"wchar"])
    except OSError as error:
        return _why(error)
    except (ValueError, KeyError):
        return "unknown format"


def _read_wchan(pid: int, proc: ProcReader) -> str:
    try:
        symbol = proc.read(f"/proc/{pid}/wchan").decode("ascii", "replace").strip()
    except OSError:
        return ""  # the state letter shows that it waits; the reason stays unknown
    return "" if symbol == "0" else symbol


def _files(pid: int, below: str, proc: ProcReader) -> OpenFiles | str:
    folder, under = f"/proc/{pid}/fd", os.path.join(below, "") if below else ""
    paths: dict[str, None] = {}
    try:
        numbers = proc.names(folder)
        for number in numbers[:MAX_FILES]:
            try:
                path = proc.link(f"{folder}/{number}")
            except FileNotFoundError:
                continue  # closed since
            if under and path.startswith(under):
                paths[safe_line(path.removeprefix(under))] = None
    except OSError as error:
        return _why(error)
    return OpenFiles(len(numbers), tuple(paths), len(numbers) > MAX_FILES)


def count_open_files(pid: int, proc: ProcReader = REAL_PROC) -> tuple[int, int] | None:
    """Open file descriptors of a process and their limit (RLIMIT_NOFILE, soft); None if they cannot
    be read, as those of another user, or are not limited."""
    try:
        used = len(proc.names(f"/proc/{pid}/fd"))
        rows = proc.read(f"/proc/{pid}/limits").splitlines()
    except OSError:
        return None
    soft = next((row.split()[3] for row in rows if row.startswith(b"Max open files ")), b"")
    return (used, int(soft)) if soft.isdigit() else None


def _read_descendants(pid: int, proc: ProcReader) -> tuple[ProcessStats, ...] | str:
    """Its descendants, parents first."""
    descendants: list[ProcessStats] = []
    waiting = [pid]
    while waiting and len(descendants) < MAX_DESCENDANTS:
        parent = waiting.pop(0)
        try:
            children = list(_children(parent, proc))
        except OSError as error:
            if parent == pid:
                return _why(error)
            continue  # it has exited
        children_stats = [_read(child, proc) for child in children]
        descendants += [child for child in children_stats if not child.unknown]
        waiting += children
    return tuple(descendants[:MAX_DESCENDANTS])


def _children(pid: int, proc: ProcReader) -> Iterator[int]:
    for thread in proc.names(f"/proc/{pid}/task"):
        yield from map(int, proc.read(f"/proc/{pid}/task/{thread}/children").split())


# ---- conclusions


def stats_delta(before: ProcessStats, now: ProcessStats) -> ProcessDelta | None:
    """Difference of two readings; None if they are too close or of different processes."""
    seconds = now.when - before.when
    is_same = before.started == now.started
    if before.unknown or now.unknown or not is_same or seconds < MIN_INTERVAL_SECONDS:
        return None
    known = {(each.pid, each.started): each for each in _all(before)}
    ticks, moved = 0, 0
    for each in _all(now):
        # All values of a new child count.
        then = known.get((each.pid, each.started), ProcessStats(each.pid, 0.0, io_bytes=(0, 0)))
        ticks += each.cpu - then.cpu
        if not isinstance(each.io_bytes, str) and not isinstance(then.io_bytes, str):
            moved += sum(each.io_bytes) - sum(then.io_bytes)
    hidden = isinstance(now.io_bytes, str)
    return ProcessDelta(seconds, ticks / os.sysconf("SC_CLK_TCK"), None if hidden else moved)


def _all(vitals: ProcessStats) -> Sequence[ProcessStats]:
    return (vitals, *(() if isinstance(vitals.descendants, str) else vitals.descendants))


STATE_TEXTS: Mapping[str, str] = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or a server, no signal can end it",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has exited, but its parent has not reaped it (zombie)",
    "X": "is exiting",
    "I": "is idle",
}
"""State letters of the kernel and their meaning."""

_POLLS = ("poll_schedule_timeout", "do_sys_poll", "do_select", "ep_poll", "do_epoll_wait")
_PAUSES = "do_sigtimedwait", "sigsuspend", "__do_sys_pause", "__x64_sys_pause", "__arm64_sys_pause"
WAIT_CHANNELS: Mapping[str, tuple[str, ...]] = {
    "for a child to end": ("do_wait",),
    "for a timer": ("hrtimer_nanosleep", "do_nanosleep"),
    "for input from a pipe": ("pipe_read", "pipe_wait_readable", "anon_pipe_read"),
    "for the reader of a pipe": ("pipe_w", "anon_pipe_write"),
    "for a connection, a pipe or a timer": _POLLS,
    "for a file server (NFS)": ("nfs", "rpc_"),
    "for a file system in user space": ("fuse", "request_wait_answer"),
    "for a disk": ("io_schedule", "folio_wait", "wait_on_page", "jbd2"),
    "for a lock on a file": ("flock", "locks_lock", "fcntl_setlk"),
    "for the network": ("sk_wait", "inet_csk", "tcp_", "__skb_wait"),
    "for a program on a socket": ("unix_stream",),
    "for a terminal or a connection": ("wait_woken",),
    "for SIGCONT": ("do_signal_stop",),
    "for a signal": _PAUSES,
}
"""What a process waits for, by the prefixes of kernel function names (wchan)."""


def is_stopped(vitals: ProcessStats) -> bool:
    """True if it is stopped and needs SIGCONT or its debugger."""
    return vitals.state in ("T", "t")


def is_uninterruptible(vitals: ProcessStats) -> bool:
    """True if it is in uninterruptible sleep: no signal ends it until the disk or server
    answers."""
    return vitals.state == "D"


def describe_state(vitals: ProcessStats) -> str:
    """Describe what a process is doing: `sleeps, waits for a child to end (do_wait)`."""
    if vitals.unknown:
        return f"? {vitals.unknown}"
    state = STATE_TEXTS.get(vitals.state, f"is in state {safe_line(vitals.state)}")
    if not vitals.waits or is_stopped(vitals) or vitals.state in ("R", "Z", "X"):
        return state
    symbol = safe_line(vitals.waits)
    known = [words for words, starts in WAIT_CHANNELS.items() if symbol.startswith(starts)]
    if vitals.state != "S":
        return f"{state} ({symbol})"
    return f"{state}, waits {known[0]} ({symbol})" if known else f"sleeping in {symbol}"


def describe_activity(done: ProcessDelta | None) -> str:
    """Describe recent activity: `no CPU, nothing read or written in the last 5 s`."""
    if done is None:
        return "? measuring..."
    over = f"in the last {done.seconds:.0f} s" if done.seconds >= 1.5 else "in the last second"
    cpu = f"{done.cpu:.2f} s of CPU" if done.cpu else "no CPU"
    if done.io_bytes is None:
        return f"{cpu} {over}; I/O unknown"
    moved = f"{_bytes(done.io_bytes)} read and" if done.io_bytes else "nothing read or"
    return f"{cpu}, {moved} written {over}"


def _bytes(amount: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}"
        amount = amount // 1024
    return f"{amount:,} GiB"


def list_facts(vitals: ProcessStats, done: ProcessDelta | None) -> tuple[tuple[str, str], ...]:
    """Facts about a process as (name, text) pairs; untrusted text is made safe."""
    if vitals.unknown:
        return (("state", f"? PID {vitals.pid}: {vitals.unknown}"),)
    cpu = moved = "? measuring..."
    if done is not None:
        over = f"in the last {done.seconds:.0f}s" if done.seconds >= 1.5 else "in the last second"
        cpu = f"{done.cpu:.2f}s {over}"
        amount = done.io_bytes
        moved = f"? {vitals.io_bytes}" if amount is None else f"{_bytes(amount)} {over}"
    rows = [("CPU", cpu), ("IO", moved), ("state", describe_state(vitals))]
    files = vitals.files
    rows.append(("open files", f"? {files}" if isinstance(files, str) else _describe_files(files)))
    children = _describe_children(vitals)
    rows += zip(("children", *[""] * (len(children) - 1)), children, strict=True)
    return tuple(rows)


def _describe_children(vitals: ProcessStats) -> list[str]:
    """Each child; several in one state by their number and programs: `4, each sleeps: curl, sh`."""
    children = vitals.descendants
    if isinstance(children, str):
        return [f"? {children}"]
    states = {STATE_TEXTS.get(each.state) for each in children}
    if len(children) > 1 and len(states) == 1 and (state := states.pop()):
        named = (os.path.basename(each.command.partition(" ")[0]) for each in children)
        programs = ", ".join(filter(None, dict.fromkeys(named)))
        amount = f"{len(children)}{'+' * (len(children) == MAX_DESCENDANTS)}"
        return [f"{amount}, each {state}: {programs}" if programs else f"{amount}, each {state}"]
    return [_describe_child(each, vitals.when) for each in children] or ["none"]


def _describe_files(files: OpenFiles) -> str:
    amount = f"{files.amount:,}" + (f" ({MAX_FILES} examined)" if files.more else "")
    if not files.below:
        return f"{amount}, none in the spool"
    below = sorted(files.below, key=_file_order)
    named, unnamed = ", ".join(below[:MAX_NAMED_FILES]), len(below) - MAX_NAMED_FILES
    more = f" and {unnamed} more" if unnamed > 0 else ""
    return f"{amount}; in the spool: {named}{more}"


def _file_order(path: str) -> tuple[bool, bool]:
    """Sort key: files before folders, deleted files last."""
    return path.endswith(" (deleted)"), "." not in os.path.basename(path)


def _describe_child(vitals: ProcessStats, now: float) -> str:
    age = format_rough_duration(max(0.0, now - vitals.started / os.sysconf("SC_CLK_TCK")))
    command = safe_start(vitals.command, 120) or "(no command line)"
    return f"PID {vitals.pid} {command}, {age} old: {describe_state(vitals)}"
