"""Read and write the text of a lock file.

It has one value per line; the first two are fixed by the contract:

    PID of the holder
    last heartbeat, epoch seconds
    boot id when it was taken (/proc/sys/kernel/random/boot_id)
    start time of the holder in clock ticks since that boot (/proc/PID/stat, field 22)
    PID namespace of the holder (inode of /proc/PID/ns/pid)
    host name
    uid of the holder
    process group of the holder
    a random token, a new one each time the lock is taken
    last heartbeat in seconds of CLOCK_BOOTTIME, which a change of the date does not affect
    how many of those seconds the machine was suspended (CLOCK_BOOTTIME minus CLOCK_MONOTONIC), so
    that a suspended worker does not count as stuck

A file with only the first two lines was written by another program. The parser is strict: if any
number has another form, the file names no process.

Sources: NFTBan Queue and Mail Contract, "Lock file"; proc(5).

What reads /proc raises OSError: no such process, or permission denied."""

from __future__ import annotations

import os
import time

from engine.system.cleanup import closing_fd
from engine.text.safe import safe_line
from engine.values import NamedTuple

MAX_PID = 2**22
"""The largest PID that the kernel assigns (`PID_MAX_LIMIT`)."""

MAX_LOCK_BYTES = 4096
"""Maximum size of a lock file in bytes; a longer one is invalid."""


def boot_seconds() -> float:
    """Seconds since boot, suspended time included (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def suspended_seconds() -> float:
    """Seconds since boot for which this machine was suspended."""
    return max(0.0, boot_seconds() - time.clock_gettime(time.CLOCK_MONOTONIC))


class ProcessMark(NamedTuple):
    """The lines that only our own lock files have, in file order."""

    boot: str
    started: int
    pid_ns: int
    host: str
    uid: int
    group: int
    token: str
    alive_at: int
    slept: int


class LockClaim(NamedTuple):
    """The parsed content of a lock file."""

    pid: int
    written: int
    """Line 2, epoch seconds."""
    mark: ProcessMark | None = None
    """None: another program's lock."""


def make_claim(token: str, now: float, up: float) -> LockClaim:
    """The lock file content of this process; `now` in epoch seconds, `up` in seconds since boot."""
    _, _, group, started = process_stat("self")
    boot, space, host, uid = boot_id(), pid_namespace(), host_name(), os.geteuid()
    alive, slept = int(up), int(suspended_seconds())
    mark = ProcessMark(
        boot, started, space, host, uid, group=group, token=token, alive_at=alive, slept=slept
    )
    return LockClaim(os.getpid(), int(now), mark)


def format_claim(claim: LockClaim) -> bytes:
    """Format the file. Its length is constant, so that a heartbeat can overwrite it in place."""
    lines = [str(claim.pid), f"{max(0, claim.written):010d}"]
    if claim.mark is not None:
        lines += [*map(str, claim.mark[:-2]), f"{claim.mark.alive_at:+011d}"]
        lines.append(f"{claim.mark.slept:010d}")
    return ("\n".join(lines) + "\n").encode()


def parse_claim(data: bytes) -> LockClaim | None:
    """Parse a lock file; None if it does not clearly name a process."""
    lines = data.split(b"\n")
    if len(data) > MAX_LOCK_BYTES or len(lines) not in range(3, MAX_LOCK_BYTES):
        return None
    pid, written = _number(lines[0]), _number(lines[1])
    if pid is None or written is None or not 1 <= pid <= MAX_PID or lines[0].startswith(b"0"):
        return None
    if lines[2:] == [b""]:
        return LockClaim(pid, written)
    mark = _mark(lines[2:])
    return mark and LockClaim(pid, written, mark)


def _mark(lines: list[bytes]) -> ProcessMark | None:
    if len(lines) <= len(ProcessMark._fields):
        return None
    try:
        boot, started, pid_ns, host, uid, group, token, alive_at, slept = (
            line.decode() for line in lines[: len(ProcessMark._fields)]
        )
    except UnicodeDecodeError:
        return None
    counts = (started, pid_ns, uid, group, alive_at[1:], slept)
    numbers = [_number(text.encode()) for text in counts]
    if None in numbers or alive_at[:1] not in ("+", "-") or not _is_hex(token):
        return None
    if len(boot) != 36 or not _is_hex(boot.replace("-", "")):
        return None
    a, b, c, d, e, f = (number or 0 for number in numbers)
    alive = -e if alive_at[0] == "-" else e
    return ProcessMark(boot, a, b, host, uid=c, group=d, token=token, alive_at=alive, slept=f)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 20 else None


def _is_hex(text: str) -> bool:
    return 0 < len(text) <= 64 and all(c in "0123456789abcdef" for c in text)


# ---- this process


def boot_id() -> str:
    """The kernel's random id of this boot."""
    return read_proc_file("/proc/sys/kernel/random/boot_id").decode().strip()


def pid_namespace() -> int:
    """Inode of our PID namespace: a PID means the same process only within one namespace."""
    return os.stat("/proc/self/ns/pid").st_ino


def host_name() -> str:
    """Name of this machine or container."""
    return safe_line(os.uname().nodename)


def process_stat(pid: int | str) -> tuple[str, int, int, int]:
    """State, parent, process group, and start in clock ticks since boot, from /proc/PID/stat."""
    # The state follows the command name, which may itself contain parentheses.
    fields = read_proc_file(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


def read_proc_file(path: str) -> bytes:
    """Read a /proc file completely."""
    with closing_fd(os.open(path, os.O_RDONLY | os.O_CLOEXEC)) as fd:
        data = os.read(fd, 65536)
        while len(data) % 4096 == 0 and (more := os.read(fd, 65536)):
            data += more
        return data
