"""Find out whether the process of a lock, or the scheduler of the pid file, is running.

The pid file stays after a crash, and its number may then be that of another process. So a process
is only signalled if it is proven to be the scheduler, and by pidfd. Ours also holds a flock on it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from os import stat_result

from engine.locks import lock_file
from engine.store import Unavailable
from engine.system import files
from engine.system.cleanup import closing_fd
from engine.text import decode
from engine.text.error_text import error_text

PID_FILE = ".pid.scheduler"
"""Below the spool's folder: the scheduler's PID and a LF. It stays after SIGTERM and crashes."""

SCHEDULER_PROGRAM = b"scheduler"
"""Name of the original program."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_SLACK_SECONDS = 2.0


def has_ended(pid: int, locked_at: float, transport: stat_result) -> bool:
    """True if the process that wrote a lock has ended (kill 0, /proc).

    A PID that is in use again counts as ended if its process started after the lock was last
    written, `locked_at` in epoch seconds UTC, and has not the working directory of all agents,
    `transport`. What cannot be found out counts as running."""
    try:
        os.kill(pid, 0)
        started = start_time(pid)
    except (ProcessLookupError, FileNotFoundError, OverflowError):
        return True
    except (OSError, ValueError, IndexError):
        return False
    if started <= locked_at + _CLOCK_SLACK_SECONDS:
        return False
    return _works_in(pid, transport) is False


def start_time(pid: int) -> float:
    """When a process started, epoch seconds UTC (/proc). Raises ProcessLookupError,
    FileNotFoundError: it has ended; OSError, ValueError, IndexError: it cannot be found out."""
    state, _, _, started = lock_file.process_stat(pid)
    if state == "Z":
        raise ProcessLookupError(pid)
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_SECOND
    return time.time() - age


def find_scheduler(root: int, transport: stat_result) -> int | None:
    """The PID of the running scheduler; None if none runs. `root` is the open folder of the spool.

    The pid file can be old: the process must work in transport/. Of another user's process that
    cannot be seen, so it counts."""
    pid, _ = _read_pid_file(root)
    if not pid or has_ended(pid, float("inf"), transport):
        return None
    return None if _works_in(pid, transport) is False else pid


def is_scheduler(pid: int, root: int, transport: stat_result) -> bool:
    """True if a process is proven to be the scheduler of a spool. `root` as above.

    The pid file names it and was written after its start, as an agent's never is, and it works in
    transport/. The owner of the spool can write that file, so it also runs as us or as that owner,
    and it has the flock of the file, as ours has, or the program's name of the original."""
    if not is_named(pid, root, transport):
        return False
    try:
        user = os.stat(f"/proc/{pid}").st_uid
        if user not in (os.geteuid(), os.fstat(root).st_uid):
            return False
        program = lock_file.read_proc_file(f"/proc/{pid}/cmdline").partition(b"\0")[0]
        if os.path.basename(program) == SCHEDULER_PROGRAM:
            return True
        file_stat = os.stat(PID_FILE, dir_fd=root, follow_symlinks=False)
    except OSError:
        return False
    return pid in files.flock_holders(file_stat)


def is_ours(root: int) -> bool:
    """True if the running scheduler is that of spooldeck: it holds the flock of the pid file."""
    try:
        fd = files.open_guarded(PID_FILE, root)
    except (OSError, files.Refused):
        return False
    with closing_fd(fd):
        return not files.is_unclaimed(fd)


def is_named(pid: int, root: int, transport: stat_result) -> bool:
    """True if the pid file names a process and is younger, and that works in transport/."""
    named, written_at = _read_pid_file(root)
    try:
        is_older = start_time(pid) <= written_at + _CLOCK_SLACK_SECONDS
    except (OSError, ValueError, IndexError):
        return False
    return pid == named and is_older and _works_in(pid, transport) is True


def _read_pid_file(root: int) -> tuple[int, float]:
    """The PID in the pid file, 0 if there is none, and when it was written."""
    try:
        fd = files.open_guarded(PID_FILE, root)
    except (OSError, files.Refused):
        return 0, 0.0
    try:
        return decode.parse_digits(os.read(fd, 32).strip()) or 0, os.fstat(fd).st_mtime
    except OSError:
        return 0, 0.0  # a folder, or a FIFO that is being written
    finally:
        os.close(fd)


def _works_in(pid: int, folder: stat_result) -> bool | None:
    """True if this is the working directory of a process; None if that is hidden."""
    try:
        cwd_stat = os.stat(f"/proc/{pid}/cwd")
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return os.path.samestat(cwd_stat, folder)


END_SECONDS = 30.0
"""How long an earlier scheduler may take to end."""

_MODE = 0o644
_POLL_SECONDS = 0.05


def signal_scheduler(root: int, transport: stat_result, number: signal.Signals) -> int | None:
    """Signal the scheduler of a spool; return its PID, or None if none is proven to run. `root` is
    the open folder of the spool. Raises PermissionError: it belongs to another user."""
    pid = find_scheduler(root, transport)
    if pid is None:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # The descriptor is of the process that is examined now, and stays so.
        if not is_scheduler(pid, root, transport):
            return None
        signal.pidfd_send_signal(pidfd, number)
        return pid
    except ProcessLookupError:
        return None
    finally:
        os.close(pidfd)


class PidFile:
    """Our pid file, held until `release`."""

    def __init__(self, root: int, fd: int) -> None:
        self._root, self._fd = root, fd

    @classmethod
    def claim(
        cls,
        root: int,
        transport: stat_result,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
    ) -> PidFile:
        """End the scheduler that runs, by SIGTERM, and write our PID; we must work in transport/.
        Raises Unavailable: another one does not end, or the file cannot be written."""
        until = clock() + END_SECONDS
        try:
            old = signal_scheduler(root, transport, signal.SIGTERM)
            named = find_scheduler(root, transport)
            if old is None and named and is_named(named, root, transport):
                raise Unavailable(
                    f"{PID_FILE}: PID {named} works in transport/, but is not proven to be a "
                    "scheduler of this spool's user or ours: not ended; end it or remove the file"
                )
            while old is not None and find_scheduler(root, transport) == old:
                if clock() >= until:
                    raise Unavailable(f"{PID_FILE}: the scheduler, PID {old}, does not end")
                pause(_POLL_SECONDS)
            fd = files.open_shared(PID_FILE, root, os.O_RDWR, _MODE)
            try:
                while not files.claim_flock(fd):
                    if clock() >= until:
                        raise Unavailable(f"{PID_FILE}: another scheduler starts or ends")
                    pause(_POLL_SECONDS)
                os.ftruncate(fd, 0)
                files.write_all(fd, b"%d\n" % os.getpid())
                files.fsync(fd)
            except BaseException:
                os.close(fd)
                raise
        except OSError as error:
            raise Unavailable(f"{PID_FILE}: {error_text(error)}") from error
        return cls(root, fd)

    def release(self) -> None:
        """Remove the file, unless another process has put its own there."""
        with suppress(FileNotFoundError):
            file_stat = os.stat(PID_FILE, dir_fd=self._root, follow_symlinks=False)
            if os.path.samestat(file_stat, os.fstat(self._fd)):
                os.unlink(PID_FILE, dir_fd=self._root)
        os.close(self._fd)
