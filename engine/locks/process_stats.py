"""What a process does just now: two readings of /proc, and what lies between them, in words.

Reading and concluding are apart. `take` reads, and blocks as long as the kernel likes; all else
is made from what it read. What may not be read is told as `?`, with the reason.

Source: proc(5).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from engine.locks import lock_file
from engine.policy import lasting
from engine.text.safe import shown

FILES = 512
"""Open files that are looked at, and told as "more" beyond."""

NAMED = 4
"""Files below the spool that are named."""

KIN = 12
"""Children, and theirs, that are looked at."""

LEAST = 0.25
"""Seconds between two readings from which on their difference says something."""

WORKS = 0.02
"""Share of one processor from which on a process is at work: to wake up now and then is none."""

MOVES = 65536
"""Bytes a second, read and written, from which on it is at work."""


class Proc(NamedTuple):
    """How /proc is read: handed in, so that what follows from it can be shown without one."""

    read: Callable[[str], bytes] = lock_file.read
    names: Callable[[str], list[str]] = os.listdir
    link: Callable[[str], str] = os.readlink
    clock: Callable[[], float] = lock_file.uptime
    """Seconds since the machine was started."""


REAL = Proc()


class Files(NamedTuple):
    """The files that a process has open."""

    amount: int
    below: tuple[str, ...] = ()
    """Those below the spool, by their paths from there; each once."""
    more: bool = False
    """Whether there are more than were looked at."""


class Vitals(NamedTuple):
    """One process at one moment."""

    pid: int
    when: float
    """Seconds since the machine was started."""
    unknown: str = ""
    """Why nothing below is known: it is gone, or hidden."""
    state: str = ""
    """The kernel's letter: R, S, D, T, Z and so on."""
    started: int = 0
    """Clock ticks between the machine's start and its own."""
    cpu: int = 0
    """Clock ticks of processor time that it has used."""
    moved: tuple[int, int] | str = ""
    """Bytes that it has read and written, files and connections alike; else why that is hidden."""
    waits: str = ""
    """The place in the kernel where it waits; "" where it does not, or that is hidden."""
    command: str = ""
    """Its command line, foreign text."""
    files: Files | str = ""
    """What it has open; else why that is hidden."""
    kin: tuple[Vitals, ...] | str = ()
    """Its children and theirs, without files; else why those are hidden."""


class ProcessDelta(NamedTuple):
    """What a process and its children did between two readings."""

    seconds: float
    cpu: float
    """Seconds of processor time."""
    moved: int | None
    """Bytes read and written; None where that is hidden."""

    @property
    def works(self) -> bool:
        """Whether it is at work, and not only waking up now and then."""
        return self.cpu >= WORKS * self.seconds or (self.moved or 0) >= MOVES * self.seconds


def take(pid: int, below: str = "", proc: Proc = REAL) -> Vitals:
    """Read what a process does now; `below` is the folder whose open files are of interest."""
    seen = _read(pid, proc)
    if seen.unknown:
        return seen
    return seen._replace(files=_files(pid, below, proc), kin=_kin(pid, proc))


def _read(pid: int, proc: Proc) -> Vitals:
    when = proc.clock()
    try:
        # The state follows the command's name, which may itself hold parentheses.
        fields = proc.read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
        command = proc.read(f"/proc/{pid}/cmdline").decode("utf-8", "replace")
    except OSError as error:
        return Vitals(pid, when, _why(error))
    state, used, started = fields[0].decode(), int(fields[11]) + int(fields[12]), int(fields[19])
    words = shown(command.rstrip("\0").replace("\0", " "))
    moved, waits = _moved(pid, proc), _waits(pid, proc)
    return Vitals(pid, when, "", state, started, used, moved, waits, words)


def _why(error: OSError) -> str:
    """Why /proc did not answer."""
    if isinstance(error, FileNotFoundError | ProcessLookupError):
        return "it is gone"
    return (error.strerror or str(error)).lower()


def _moved(pid: int, proc: Proc) -> tuple[int, int] | str:
    try:
        rows = dict(row.split(b": ") for row in proc.read(f"/proc/{pid}/io").splitlines())
        return int(rows[b"rchar"]), int(rows[b"wchar"])
    except OSError as error:
        return _why(error)
    except (ValueError, KeyError):
        return "not told in a form that is known"


def _waits(pid: int, proc: Proc) -> str:
    try:
        symbol = proc.read(f"/proc/{pid}/wchan").decode("ascii", "replace").strip()
    except OSError:
        return ""  # the state says that it waits; only for what is not known
    return "" if symbol == "0" else symbol


def _files(pid: int, below: str, proc: Proc) -> Files | str:
    folder, under = f"/proc/{pid}/fd", os.path.join(below, "") if below else ""
    found: dict[str, None] = {}
    try:
        numbers = proc.names(folder)
        for number in numbers[:FILES]:
            try:
                path = proc.link(f"{folder}/{number}")
            except FileNotFoundError:
                continue  # closed since
            if under and path.startswith(under):
                found[shown(path.removeprefix(under))] = None
    except OSError as error:
        return _why(error)
    return Files(len(numbers), tuple(found), len(numbers) > FILES)


def _kin(pid: int, proc: Proc) -> tuple[Vitals, ...] | str:
    """Its children and theirs, parents first."""
    found: list[Vitals] = []
    waiting = [pid]
    while waiting and len(found) < KIN:
        parent = waiting.pop(0)
        try:
            children = list(_children(parent, proc))
        except OSError as error:
            if parent == pid:
                return _why(error)
            continue  # it ended since
        seen = [_read(child, proc) for child in children]
        found += [child for child in seen if not child.unknown]
        waiting += children
    return tuple(found[:KIN])


def _children(pid: int, proc: Proc) -> Iterator[int]:
    for thread in proc.names(f"/proc/{pid}/task"):
        yield from map(int, proc.read(f"/proc/{pid}/task/{thread}/children").split())


# ---- what follows


def between(before: Vitals, now: Vitals) -> ProcessDelta | None:
    """What was done between two readings; None where they are too close, or not of one process."""
    seconds = now.when - before.when
    if before.unknown or now.unknown or before.started != now.started or seconds < LEAST:
        return None
    known = {(each.pid, each.started): each for each in _all(before)}
    ticks, moved = 0, 0
    for each in _all(now):
        # Of a child that came since, all is new.
        then = known.get((each.pid, each.started), Vitals(each.pid, 0.0, moved=(0, 0)))
        ticks += each.cpu - then.cpu
        if not isinstance(each.moved, str) and not isinstance(then.moved, str):
            moved += sum(each.moved) - sum(then.moved)
    hidden = isinstance(now.moved, str)
    return ProcessDelta(seconds, ticks / os.sysconf("SC_CLK_TCK"), None if hidden else moved)


def _all(vitals: Vitals) -> Sequence[Vitals]:
    return (vitals, *(() if isinstance(vitals.kin, str) else vitals.kin))


STATES: Mapping[str, str] = {
    "R": "runs",
    "S": "sleeps",
    "D": "waits for a disk or a server, and hears no signal meanwhile",
    "T": "is stopped by a signal",
    "t": "is stopped by a debugger",
    "Z": "has ended, and nobody has waited for it",
    "X": "ends just now",
    "I": "is idle",
}
"""The kernel's letters for what a process does, in words."""

CHANNELS: tuple[tuple[str, str], ...] = (
    ("do_wait", "for a child to end"),
    ("hrtimer_nanosleep", "until a time of its own"),
    ("do_nanosleep", "until a time of its own"),
    ("futex", "for another of its threads"),
    ("pipe_read", "for something to come through a pipe"),
    ("pipe_wait_readable", "for something to come through a pipe"),
    ("anon_pipe_read", "for something to come through a pipe"),
    ("pipe_w", "for somebody to read from a pipe"),
    ("anon_pipe_write", "for somebody to read from a pipe"),
    ("poll_schedule_timeout", "for a connection, a pipe or a timer"),
    ("do_sys_poll", "for a connection, a pipe or a timer"),
    ("do_select", "for a connection, a pipe or a timer"),
    ("ep_poll", "for a connection, a pipe or a timer"),
    ("do_epoll_wait", "for a connection, a pipe or a timer"),
    ("nfs", "for a file server (NFS)"),
    ("rpc_", "for a file server (NFS)"),
    ("fuse", "for a file system in user space"),
    ("request_wait_answer", "for a file system in user space"),
    ("io_schedule", "for a disk"),
    ("folio_wait", "for a disk"),
    ("wait_on_page", "for a disk"),
    ("jbd2", "for a disk"),
    ("flock", "for a lock on a file"),
    ("locks_lock", "for a lock on a file"),
    ("fcntl_setlk", "for a lock on a file"),
    ("sk_wait", "for the network"),
    ("inet_csk", "for the network"),
    ("tcp_", "for the network"),
    ("unix_stream", "for a program on a socket"),
    ("__skb_wait", "for the network"),
    ("wait_woken", "for a terminal or a connection"),
    ("do_signal_stop", "to be let go on"),
    ("do_sigtimedwait", "for a signal"),
    ("sigsuspend", "for a signal"),
    ("__do_sys_pause", "for a signal"),
    ("__x64_sys_pause", "for a signal"),
    ("__arm64_sys_pause", "for a signal"),
)
"""How the kernel's names for the places where a process waits begin, and what it waits for there.
"""


def is_stopped(vitals: Vitals) -> bool:
    """Whether it goes on only when it is told to."""
    return vitals.state in ("T", "t")


def hears_nothing(vitals: Vitals) -> bool:
    """Whether no signal ends it before the disk or the server that it waits for has answered."""
    return vitals.state == "D"


def doing(vitals: Vitals) -> str:
    """What a process does, in words: `sleeps, waits for a child to end (do_wait)`."""
    if vitals.unknown:
        return f"? {vitals.unknown}"
    state = STATES.get(vitals.state, f"is in the state {shown(vitals.state)}")
    if not vitals.waits or is_stopped(vitals) or vitals.state in ("R", "Z", "X"):
        return state
    symbol = shown(vitals.waits)
    known = [words for start, words in CHANNELS if symbol.startswith(start)]
    what = f"waits {known[0]} ({symbol})" if known else f"waits in the kernel ({symbol})"
    return f"{state}, {what}" if vitals.state == "S" else f"{state} ({symbol})"


def pace(done: ProcessDelta | None) -> str:
    """What was done lately, in words: `no CPU, nothing read or written in the last 5 s`."""
    if done is None:
        return "? being measured"
    over = f"in the last {done.seconds:.0f} s" if done.seconds >= 1.5 else "in the last second"
    cpu = f"{done.cpu:.2f} s of CPU" if done.cpu else "no CPU"
    if done.moved is None:
        return f"{cpu} {over}; what it read and wrote is hidden from us"
    moved = f"{_bytes(done.moved)} read and written" if done.moved else "nothing read or written"
    return f"{cpu}, {moved} {over}"


def _bytes(amount: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}"
        amount = amount // 1024
    return f"{amount:,} GiB"


def facts(vitals: Vitals, done: ProcessDelta | None) -> tuple[tuple[str, str], ...]:
    """What is to be told of a process, as pairs of a name and words; foreign words are inert."""
    if vitals.unknown:
        return (("it does", f"? PID {vitals.pid}: {vitals.unknown}"),)
    rows = [("it does", doing(vitals)), ("lately", pace(done))]
    if isinstance(done, ProcessDelta) and done.moved is None and isinstance(vitals.moved, str):
        rows[1] = ("lately", f"{pace(done)} ({vitals.moved})")
    files = vitals.files
    rows.append(("open files", f"? {files}" if isinstance(files, str) else _told(files)))
    if isinstance(vitals.kin, str):
        rows.append(("children", f"? {vitals.kin}"))
    elif not vitals.kin:
        rows.append(("children", "none"))
    else:
        rows += [
            ("children" if number == 0 else "", _child(each, vitals.when))
            for number, each in enumerate(vitals.kin)
        ]
    return tuple(rows)


def _told(files: Files) -> str:
    amount = f"{files.amount:,}" + (f", of which {FILES} were looked at" if files.more else "")
    if not files.below:
        return f"{amount}, none below the spool"
    below = sorted(files.below, key=_interest)
    named, left = ", ".join(below[:NAMED]), len(below) - NAMED
    more = f" and {left} more" if left > 0 else ""
    return f"{amount}; below the spool: {named}{more}"


def _interest(path: str) -> tuple[bool, bool]:
    """Files come before folders, and what has no name any more last."""
    return path.endswith(" (deleted)"), "." not in os.path.basename(path)


def _child(vitals: Vitals, now: float) -> str:
    age = lasting(max(0.0, now - vitals.started / os.sysconf("SC_CLK_TCK")))
    command = vitals.command[:120] or "(no command line)"
    return f"PID {vitals.pid} {command}, {age} old: {doing(vitals)}"
