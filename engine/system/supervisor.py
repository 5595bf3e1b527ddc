"""Run a program under a supervisor process, which kills it when this process ends, by SIGKILL too.

`run` forks the supervisor, and that starts the program. Both sides are joined by two pipes. Only
this process has the writing end of the first: end of file on it means "end the program", whether
we closed it (timeout, cancelled) or we were killed. On the second the supervisor reports the PID,
then the exit status. The supervisor writes the program's standard input as well: when we are
killed in the middle of a mail, the program never sees end of file behind half of it.
"""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import select
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from typing import NamedTuple, NoReturn

from engine.system.users import Account

KEPT = 8192
"""Bytes of output that are kept, the last ones; a program may print without end."""

GRACE = 5.0
"""Seconds between SIGTERM and SIGKILL."""

CANCEL_CHECK_SECONDS = 1.0
"""Seconds between two checks whether a running program is cancelled."""

READS_PER_CHECK = 32
"""Reads of 64 KiB between two checks of the clock; a pipe holds 1 MiB at most."""

SCANS = 10
"""Scans of /proc for processes of a program, at most: each finds what was forked during the last.
"""

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphaned descendants become children of this process."""

_prctl = ctypes.CDLL(None).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class Ran(NamedTuple):
    """The result of a program."""

    status: int | None
    """Its exit status; the number of a signal that ended it, negative; None: unknown, or it could
    not be ended."""
    output: bytes
    """The last of its standard output and standard error, together."""
    ended: str = ""
    """Why it was ended: `timeout after N s` or `stopped`; "" when it ended by itself."""
    unread: bool = False
    """Whether it left a part of its standard input unread."""


class CannotRun(Exception):
    """The program cannot be started, or not be followed; the message is the system's reason."""

    def __init__(self, why: str, *, started: bool = False) -> None:
        super().__init__(why)
        self.started = started


class Program(NamedTuple):
    """A program, and how it is started and ended."""

    argv: Sequence[str]
    env: Mapping[str, str]
    stdin: bytes | None = None
    """Its standard input; None: /dev/null."""
    cwd: str | None = None
    """Its working directory; None: ours."""
    pass_fds: Collection[int] = ()
    """Open files that it inherits."""
    account: Account | None = None
    """The user it is run as, which only root can choose; None: as we are."""
    grace: float = GRACE
    """Seconds between SIGTERM and SIGKILL."""


def run(
    program: Program,
    timeout: float,
    cancelled: Callable[[], bool],
    *,
    linger: float = 0.0,
    abandon: bool = False,
) -> Ran:
    """Run a program to its end, at most `timeout` seconds; `cancelled` ends it as well.

    It runs in a session of its own. When it has to end, all processes of that session and all its
    descendants in other sessions (setsid) get SIGTERM, `grace` seconds later SIGKILL. When it ended
    by itself, the rest of its process group is killed; after status 0 that waits up to `linger`
    seconds for its output to be closed.

    A program of another user (setuid) may be out of reach of our signals: with `abandon` it is left
    alone two graces after its time, else waited for. If it had not been given all of its input by
    then, it never gets the end of it.

    Raises:
        CannotRun: it cannot be started, or not be followed.
    """
    started = False
    try:
        with _pipe() as life, _pipe() as report, _pipe() as output:
            supervisor = os.fork()
            started = True
            if supervisor == 0:
                _supervise(program, life[0].fileno(), report[1].fileno(), output[1].fileno())
            for end in (life[0], report[1], output[1]):
                end.close()
            following = _ChildWatch(life[1], report[0], output[0])
            try:
                return following.to_the_end(program.grace, timeout, cancelled, linger, abandon)
            finally:
                life[1].close()
                _reap(supervisor, at_once=following.is_over)
    except OSError as error:
        raise CannotRun(error.strerror or str(error), started=started) from error


@contextmanager
def _pipe() -> Iterator[tuple[FileIO, FileIO]]:
    reading, writing = os.pipe()
    with FileIO(reading, "rb") as here, FileIO(writing, "wb") as there:
        yield here, there


def _reap(supervisor: int, *, at_once: bool) -> None:
    """Wait for the supervisor, in a thread where it still waits for a program out of reach."""

    def wait() -> None:
        with suppress(ChildProcessError):  # SIGCHLD is ignored: the system has waited for it
            os.waitpid(supervisor, 0)

    if at_once:
        wait()
    else:
        threading.Thread(target=wait, daemon=True).start()


# ---- this process


class _ChildWatch:
    """A running program as this process sees it: its output, and the supervisor's reports."""

    def __init__(self, life: FileIO, report: FileIO, output: FileIO) -> None:
        self._life, self._report, self._output = life, report, output
        self._said, self._reported, self._pid = b"", b"", 0
        self.is_over = False
        """Whether the supervisor has no more to wait for."""

    def to_the_end(
        self,
        grace: float,
        timeout: float,
        cancelled: Callable[[], bool],
        linger: float,
        abandon: bool,
    ) -> Ran:
        """Follow the program until it has ended, or is abandoned."""
        os.set_blocking(self._output.fileno(), False)
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(self._report, select.POLLIN)
        deadline, ended = time.monotonic() + timeout, ""
        result: tuple[int | None, bool] | None = None
        while result is None:
            left = deadline - time.monotonic()
            if not ended and (left <= 0 or cancelled()):
                ended = f"timeout after {timeout:g} s" if left <= 0 else "stopped"
                self._life.close()
                deadline = time.monotonic() + 2 * grace if abandon else float("inf")
            elif ended and left <= 0:
                return Ran(None, self._said, ended)
            ready = dict(poll.poll(1000 * min(CANCEL_CHECK_SECONDS, max(left, 0.01))))
            if self._output.fileno() in ready and not self._read():
                poll.unregister(self._output)
            if self._report.fileno() in ready:
                result = self._result()
        status, unread = result
        self._read_on(min(linger, max(0.0, left)) if status == 0 and not ended else 0.0)
        return Ran(status, self._said, ended, unread)

    def _result(self) -> tuple[int | None, bool] | None:
        """The program's status and whether it left input unread; None while it runs.

        Raises:
            CannotRun: the supervisor could not start it, or not follow it.
        """
        more = os.read(self._report.fileno(), 4096)
        self._reported += more
        *lines, _ = self._reported.decode("utf-8", "replace").split("\n")
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "pid":
                self._pid = int(rest)
            elif word == "ended":
                self.is_over = True
                status, unread = rest.split()
                return int(status), unread == "1"
            else:
                self.is_over = True
                raise CannotRun(rest, started=word == "lost")
        if more:
            return None
        self.is_over = True
        self._kill_unsupervised()
        return None, False

    def _kill_unsupervised(self) -> None:
        """Kill the program, whose supervisor was killed just now."""
        with suppress(ProcessLookupError, PermissionError):
            if self._pid and os.getsid(self._pid) == self._pid:
                os.killpg(self._pid, signal.SIGKILL)

    def _read_on(self, seconds: float) -> None:
        """Read what is there, for some seconds while another process has the output open."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        deadline = time.monotonic() + seconds
        while self._read() and (left := deadline - time.monotonic()) > 0:
            poll.poll(1000 * left)

    def _read(self) -> bool:
        """Read what is there; whether more can come."""
        # Not until nothing is there: a program may write faster than we read, and must end in time.
        for _ in range(READS_PER_CHECK):
            try:
                more = os.read(self._output.fileno(), 65536)
            except BlockingIOError:
                return True
            if not more:
                return False
            self._said = (self._said + more)[-KEPT:]
        return True


# ---- the supervisor


def _supervise(program: Program, life: int, report: int, output: int) -> NoReturn:
    """Be the supervisor of a program, from fork to exit.

    Forked with threads running: this calls nothing that could wait for one of their locks, and
    frees none of their objects, whose finalizers (a database's) are for their own process.
    """
    supervisor = _Supervisor(program, life, report)
    try:
        gc.disable()
        os.setsid()  # a signal to our process group is not for it
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, _stay)  # a handler: what is ignored stays so in the program
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _close_all_but({life, report, output, *program.pass_fds})
        supervisor.watch(output)
    except Exception as error:
        supervisor.give_up(error)
    finally:
        os._exit(0)


def _stay(*_: object) -> None:
    """Do nothing: the supervisor ends after its program."""


def _close_all_but(kept: Collection[int]) -> None:
    """Close the files that fork copied; the standard ones become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in kept or fd == null:
            continue
        if fd <= 2:
            os.dup2(null, fd)
            continue
        with suppress(OSError):  # the listing's own
            os.close(fd)


class _Supervisor:
    """Starts a program, writes its input, reports its end, kills it when `life` ends."""

    def __init__(self, program: Program, life: int, report: int) -> None:
        self._program, self._life, self._report = program, life, report
        self._reading = self._writing = -1
        """The program's standard input; our reading end is only asked how much is unread, and keeps
        writing from failing with EPIPE."""
        self._left = memoryview(program.stdin or b"")
        self._pid = 0

    def watch(self, output: int) -> None:
        """Do all of it.

        Raises:
            OSError, SubprocessError, ValueError: the program cannot be started, or followed.
        """
        # A pipe: a confined program (AppArmor, SELinux) may not read a file that we opened.
        if self._program.stdin is not None:
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
        process = self._start(output)
        self._pid = process.pid
        signal.signal(signal.SIGCHLD, self._reap_adopted)
        self._reap_adopted()
        self._tell(f"pid {self._pid}")
        for fd in (output, *self._program.pass_fds):
            os.close(fd)
        pidfd = os.pidfd_open(self._pid)
        forced = self._follow(pidfd)
        end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        assert end is not None
        status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        self._tell(f"ended {status} {int(self._unread())}")
        if not forced:
            os.read(self._life, 1)
        # Its number is still its own: it has not been waited for.
        self._signal(signal.SIGKILL, session=forced)

    def give_up(self, error: Exception) -> None:
        """Report an error: `refused` where the program was not started; else kill it, `lost`."""
        why = (error.strerror if isinstance(error, OSError) else "") or str(error) or repr(error)
        if self._pid:
            self._signal(signal.SIGKILL)
        self._tell(f"{'lost' if self._pid else 'refused'} {why}")

    def _start(self, output: int) -> subprocess.Popen[bytes]:
        program, account = self._program, self._program.account
        return subprocess.Popen(
            program.argv,
            stdin=subprocess.DEVNULL if program.stdin is None else self._reading,
            stdout=output,
            stderr=output,
            env=program.env,
            cwd=program.cwd,
            pass_fds=tuple(program.pass_fds),
            start_new_session=True,
            user=account and account.uid,
            group=account and account.gid,
            extra_groups=account and account.groups,
        )

    def _reap_adopted(self, *_: object) -> None:
        """Wait for children that are not ours but orphans; the program keeps its PID."""
        while (end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if end.si_pid == self._pid:
                return
            os.waitpid(end.si_pid, 0)

    def _follow(self, pidfd: int) -> bool:
        """Wait until the program has ended; whether it was signalled, because `life` ended."""
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(self._life, select.POLLIN)
        if self._write():
            poll.register(self._writing, select.POLLOUT)
        elif self._writing >= 0:
            os.close(self._writing)
        signals = [signal.SIGKILL, signal.SIGTERM]
        while True:
            waiting = 0 < len(signals) < 2
            ready = dict(poll.poll(1000 * self._program.grace if waiting else None))
            if pidfd in ready:
                return len(signals) < 2
            if self._life in ready or not ready:
                if self._life in ready:
                    poll.unregister(self._life)
                    if self._left:
                        poll.unregister(self._writing)  # left open: half a mail has no end
                self._signal(signals.pop(), session=True)
            elif not self._write():
                poll.unregister(self._writing)
                os.close(self._writing)

    def _write(self) -> bool:
        """Write what fits; whether there is more to write."""
        with suppress(BlockingIOError):
            while self._left:
                self._left = self._left[os.write(self._writing, self._left) :]
        return bool(self._left)

    def _unread(self) -> bool:
        """Whether the program left input in the pipe, or we have not written all of it."""
        if self._reading < 0:
            return False
        return bool(self._left) or any(fcntl.ioctl(self._reading, termios.FIONREAD, bytes(4)))

    def _signal(self, number: signal.Signals, *, session: bool = False) -> None:
        """Signal the program's process group; with `session`, its session and its descendants.

        A program such as timeout(1) makes a process group of its own, setsid(1) a session.
        """
        with suppress(ProcessLookupError, PermissionError):  # none left, or of another user
            os.killpg(self._pid, number)
        found: set[int] = set()
        for _ in range(SCANS if session else 0):
            new = _members(self._pid) - found
            if not new:
                return
            for pid in new:
                with suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(pid) != self._pid:
                        os.kill(pid, number)
            found |= new

    def _tell(self, line: str) -> None:
        with suppress(BrokenPipeError):  # who started us has ended
            os.write(self._report, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")


def _members(session: int) -> set[int]:
    """The processes of a session and our descendants, as far as /proc lists them."""
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                # After the name in brackets, which may hold any byte: state, parent, group, session
                _, parent, _, its = stat.read().rpartition(b")")[2].split()[:4]
                children.setdefault(int(parent), []).append(int(name))
                if int(its) == session:
                    found.add(int(name))
    below = children.get(os.getpid(), [])
    while below:
        found.update(below)
        below = [pid for parent in below for pid in children.get(parent, [])]
    return found
