"""Processes around a lock: those that hold it, those that only look as if, and what they wrote."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from engine.locks import lock_file
from engine.locks.lock_file import LockClaim, ProcessMark
from engine.locks.lock_holder import has_ended

Child = subprocess.Popen[str]
THRESHOLD = 1200.0
"""Seconds; the contract's default."""

INNOCENT = """
import signal, sys
def told(number, frame):
    print("signalled", number, flush=True)
for number in set(range(1, 32)) - {9, 17, 19}:
    signal.signal(number, told)
if len(sys.argv) > 1:
    import fcntl, os
    fd = os.open(sys.argv[1], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.readline()
print("unharmed", flush=True)
"""
"""A process that says so if it gets any signal; it holds the flock of the file it is given."""

HOLDER = """
import os, signal, subprocess, sys
from engine.locks import queue_lock as locks
lock = locks.acquire_lock(sys.argv[1], 1200.0)
{manner}
print("held", flush=True)
while not sys.stdin.readline():
    signal.pause()
lock.release()
print("released", flush=True)
"""
"""A worker that has the lock; what it does otherwise is to be filled in."""

PLAIN = ""
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
POLITE = "signal.signal(signal.SIGTERM, lambda *_: (lock.release(), os._exit(0)))"
PARENT = """
child = subprocess.Popen(["sleep", "600"], pass_fds=(lock.fd,), start_new_session=True)
print(child.pid, flush=True)
"""
"""Manners: ends at SIGTERM; ignores it; releases the lock then; has a handler with the flock."""


class Clocks(TypedDict):
    """Both clocks that a lock is judged by."""

    clock: Callable[[], float]
    uptime: Callable[[], float]


def later(seconds: float) -> Clocks:
    """The clocks as they will be so many seconds from now."""
    return {
        "clock": lambda: time.time() + seconds,
        "uptime": lambda: lock_file.boot_seconds() + seconds,
    }


AN_HOUR_ON = later(3600)
"""When a holder without a heartbeat since now counts as stuck."""


CLI_LATER = """
import sys, time
from engine.locks import lock_file as lockfile
seconds, now = float(sys.argv.pop(1)), time.time
uptime, slept = lockfile.boot_seconds, lockfile.suspended_seconds()
lockfile.suspended_seconds = lambda: slept
time.time, lockfile.boot_seconds = lambda: now() + seconds, lambda: uptime() + seconds
from tui.cli import main
sys.exit(main())
"""


def cli_later(seconds: float) -> tuple[str, ...]:
    """The command as it will be so many seconds from now: who is silent until then is stuck."""
    return (sys.executable, "-c", CLI_LATER, str(seconds))


class Impatient:
    """Waits not at all after the first signal to a process, and as long as it takes after more."""

    def __init__(self) -> None:
        self._met: set[int] = set()

    def __call__(self, pidfd: int, seconds: float) -> bool:
        """Whether it ends."""
        again = pidfd in self._met
        self._met.add(pidfd)
        return has_ended(pidfd, 60.0 if again else 0.0)


def said(child: Child) -> str:
    """A child's next line."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: Child) -> None:
    """Let a child go on."""
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def is_unharmed(child: Child) -> bool:
    """Whether an innocent process lives and has got no signal, by its own words."""
    tell(child)
    return said(child) == "unharmed"


def written(path: Path, text: bytes | str, age: float = 0.0) -> None:
    """A lock file as some other program left it, so many seconds ago."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (time.time() - age, time.time() - age))


def true_claim(pid: int) -> LockClaim:
    """What a lock file would say if that process had taken the lock just now."""
    _, _, group, started = lock_file.process_stat(pid)
    uid = Path(f"/proc/{pid}").stat().st_uid
    mark = ProcessMark(
        lock_file.boot_id(),
        started,
        lock_file.pid_namespace(),
        host=lock_file.host_name(),
        uid=uid,
        group=group,
        token="0123456789abcdef",
        alive_at=int(lock_file.boot_seconds()),
        slept=int(lock_file.suspended_seconds()),
    )
    return LockClaim(pid, int(time.time()), mark)


def marked(claim: LockClaim, **changes: object) -> LockClaim:
    """The same with other marks."""
    assert claim.mark is not None
    return claim._replace(mark=ProcessMark._make((claim.mark._asdict() | changes).values()))
