"""The text of a lock file, both ways.

It holds one value a line, the contract's two first:

    the holder's PID
    its last sign of life, epoch seconds
    the boot it was taken in (/proc/sys/kernel/random/boot_id)
    when the holder started, in clock ticks since that boot (/proc/PID/stat, field 22)
    the holder's PID namespace (inode of /proc/PID/ns/pid)
    the host's name
    the holder's uid
    its process group
    a random token, another one each time the lock is taken
    its last sign of life again, in seconds of CLOCK_BOOTTIME, which no change of the date moves
    for how many of those seconds the machine had slept (CLOCK_BOOTTIME less CLOCK_MONOTONIC): a
    worker that slept with it was not silent

A file of exactly the first two is another program's. A number is never guessed at: what has any
other form names nobody.

Sources: NFTBan Queue and Mail Contract, "Lock file"; proc(5).
"""

from __future__ import annotations

import os
import time
from typing import NamedTuple

from engine.text.safe import shown

MOST = 2**22
"""The largest PID that the kernel ever gives (`PID_MAX_LIMIT`)."""

LIMIT = 4096
"""Bytes of a lock file; a longer one is none."""


def uptime() -> float:
    """Seconds since this machine was started, its sleep counted (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def slept() -> float:
    """Seconds for which this machine has slept since it was started."""
    return max(0.0, uptime() - time.clock_gettime(time.CLOCK_MONOTONIC))


class ProcessMark(NamedTuple):
    """What a lock file of ours says besides the contract's two lines, in its order."""

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
    """What a lock file says."""

    pid: int
    written: int
    """Line 2, epoch seconds."""
    mark: ProcessMark | None = None
    """None: another program's lock."""


def claim_of_ours(token: str, now: float, up: float) -> LockClaim:
    """What this process writes; `now` in epoch seconds, `up` in seconds since the start.

    Raises:
        OSError: /proc does not say who we are.
    """
    _, _, group, started = stat_of("self")
    mark = ProcessMark(
        *(boot_id(), started, pid_namespace(), host_name()),
        *(os.geteuid(), group, token),
        *(int(up), int(slept())),
    )
    return LockClaim(os.getpid(), int(now), mark)


def compose(claim: LockClaim) -> bytes:
    """The file. Its length changes with no sign of life: a later one is written over this one."""
    lines = [str(claim.pid), f"{max(0, claim.written):010d}"]
    if claim.mark is not None:
        lines += [*map(str, claim.mark[:-2]), f"{claim.mark.alive_at:+011d}"]
        lines.append(f"{claim.mark.slept:010d}")
    return ("\n".join(lines) + "\n").encode()


def parse(data: bytes) -> LockClaim | None:
    """What a file says; None where it names no process beyond doubt."""
    lines = data.split(b"\n")
    if len(data) > LIMIT or len(lines) not in range(3, LIMIT):
        return None
    pid, written = _number(lines[0]), _number(lines[1])
    if pid is None or written is None or not 1 <= pid <= MOST or lines[0].startswith(b"0"):
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
    return ProcessMark(boot, a, b, host, c, d, token, -e if alive_at[0] == "-" else e, f)


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 20 else None


def _is_hex(text: str) -> bool:
    return 0 < len(text) <= 64 and all(c in "0123456789abcdef" for c in text)


# ---- who we are


def boot_id() -> str:
    """A name for the time since the machine was started; another one after the next start."""
    return read("/proc/sys/kernel/random/boot_id").decode().strip()


def pid_namespace() -> int:
    """Which PID namespace we are in: only in the same one does a PID mean the same process."""
    return os.stat("/proc/self/ns/pid").st_ino


def host_name() -> str:
    """This machine's, or this container's, name."""
    return shown(os.uname().nodename)


def stat_of(pid: int | str) -> tuple[str, int, int, int]:
    """A process: its state, parent, process group, and start in clock ticks since the boot.

    Raises:
        OSError: there is none, or it is hidden from us.
    """
    # The state follows the command's name, which may itself hold parentheses.
    fields = read(f"/proc/{pid}/stat").rpartition(b") ")[2].split()
    return fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[19])


def read(path: str) -> bytes:
    """What a file of /proc says at this moment."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 65536)
        while len(data) % 4096 == 0 and (more := os.read(fd, 65536)):
            data += more
        return data
    finally:
        os.close(fd)
