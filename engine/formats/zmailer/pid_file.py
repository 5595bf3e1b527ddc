"""The pid file of a scheduler: `.pid.scheduler` in the spool, with its PID and a LF.

It stays after a crash, and its number may then be that of another process. So a process is only
signalled if it is proven to be the scheduler, and by pidfd. Ours also holds a flock on the file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from os import stat_result

from engine.formats.zmailer.spool import lock_process
from engine.formats.zmailer.spool.lock_process import PID_FILE
from engine.store import Unavailable
from engine.system import files
from engine.text.error_text import error_text

END_SECONDS = 30.0
"""How long an earlier scheduler may take to end."""

_MODE = 0o644
_POLL_SECONDS = 0.05


def signal_scheduler(root: int, transport: stat_result, number: signal.Signals) -> int | None:
    """Signal the scheduler of a spool; return its PID, or None if none is proven to run. `root` is
    the open folder of the spool.

    Raises:
        PermissionError: it belongs to another user.
    """
    pid = lock_process.find_scheduler(root, transport)
    if pid is None:
        return None
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        # The descriptor is of the process that is examined now, and stays so.
        if not lock_process.is_scheduler(pid, root, transport):
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

        Raises:
            Unavailable: another one does not end, or the file cannot be written.
        """
        until = clock() + END_SECONDS
        try:
            old = signal_scheduler(root, transport, signal.SIGTERM)
            named = lock_process.find_scheduler(root, transport)
            if old is None and named and lock_process.is_named(named, root, transport):
                raise Unavailable(
                    f"{PID_FILE}: PID {named} works in transport/, but is not proven to be a "
                    "scheduler of this spool's user or ours: not ended; end it or remove the file"
                )
            while old is not None and lock_process.find_scheduler(root, transport) == old:
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
