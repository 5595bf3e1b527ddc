"""Find out whether the process of a lock, or the scheduler of the pid file, is running."""

from __future__ import annotations

import os
import time
from os import stat_result

from engine.locks import lock_file
from engine.system import files
from engine.text import decode

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
    `transport`. What cannot be found out counts as running.
    """
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
    """When a process started, epoch seconds UTC (/proc).

    Raises:
        ProcessLookupError, FileNotFoundError: it has ended.
        OSError, ValueError, IndexError: it cannot be found out.
    """
    state, _, _, started = lock_file.process_stat(pid)
    if state == "Z":
        raise ProcessLookupError(pid)
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - started / _TICKS_PER_SECOND
    return time.time() - age


def find_scheduler(root: int, transport: stat_result) -> int | None:
    """The PID of the running scheduler; None if none runs. `root` is the open folder of the spool.

    The pid file can be old: the process must work in transport/. Of another user's process that
    cannot be seen, so it counts.
    """
    pid, _ = _read_pid_file(root)
    if not pid or has_ended(pid, float("inf"), transport):
        return None
    return None if _works_in(pid, transport) is False else pid


def is_scheduler(pid: int, root: int, transport: stat_result) -> bool:
    """True if a process is proven to be the scheduler of a spool. `root` as above.

    The pid file names it and was written after its start, as an agent's never is, and it works in
    transport/. The owner of the spool can write that file, so it also runs as us or as that owner,
    and it has the flock of the file, as ours has, or the program's name of the original.
    """
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
    try:
        return not files.is_unclaimed(fd)
    finally:
        os.close(fd)


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
