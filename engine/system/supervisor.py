"""Run a program under a supervisor process that kills it if this process dies, even by SIGKILL.

`run` forks the supervisor, which starts the program. Two pipes connect us to the supervisor. Only
this process has the write end of the first: end of file on it means "end the program", whether we
closed it (timeout, cancelled) or were killed. On the second the supervisor reports the PID, then
the exit status. The supervisor also writes the program's standard input: if we are killed in the
middle of a mail, the program never sees end of file after half of it.
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

MAX_OUTPUT_BYTES = 8192
"""Bytes of output to keep (the last ones): a program may print without end."""

KILL_DELAY_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""

CANCEL_CHECK_SECONDS = 1.0
"""Seconds between checks whether a running program was cancelled."""

READS_PER_CHECK = 32
"""Reads of 64 KiB between two checks of the clock; a pipe holds at most 1 MiB."""

MAX_SCANS = 10
"""Maximum number of scans of /proc for the program's processes: each finds those forked during
the previous one."""

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphaned descendants become children of this process."""

_prctl = ctypes.CDLL(None).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class ProgramResult(NamedTuple):
    """The result of a program."""

    status: int | None
    """Exit status; the negative number of the signal that ended it; None: unknown, or it could not
    be ended."""
    output: bytes
    """The end of its standard output and standard error, together."""
    end_reason: str = ""
    """Why it was ended: `timeout after N s` or `stopped`; "" if it ended by itself."""
    has_unread_input: bool = False
    """True if it did not read all of its standard input."""


class CannotRun(Exception):
    """The program cannot be started or watched; the message is the system's reason."""

    def __init__(self, why: str, *, started: bool = False) -> None:
        super().__init__(why)
        self.started = started


class Program(NamedTuple):
    """A program, and how to start and end it."""

    argv: Sequence[str]
    env: Mapping[str, str]
    stdin: bytes | None = None
    """Standard input; None: /dev/null."""
    cwd: str | None = None
    """Working directory; None: ours."""
    pass_fds: Collection[int] = ()
    """File descriptors that it inherits."""
    account: Account | None = None
    """The user to run it as, which needs root; None: our own."""
    grace: float = KILL_DELAY_SECONDS
    """Seconds between SIGTERM and SIGKILL."""


def run_supervised(
    program: Program,
    timeout: float,
    cancelled: Callable[[], bool],
    *,
    linger: float = 0.0,
    abandon: bool = False,
) -> ProgramResult:
    """Run a program for at most `timeout` seconds; end it early if `cancelled()` is true.

    It runs in its own session. To end it, all processes of that session and all its descendants in
    other sessions (setsid) get SIGTERM, and SIGKILL `grace` seconds later. If it ends by itself,
    the
    rest of its process group is killed; after status 0 that waits up to `linger` seconds for its
    output to be closed.

    We may have no permission to signal a program of another user (setuid): with `abandon` we stop
    waiting for it two graces after the timeout, otherwise we wait. If it has not got all of its
    input
    by then, it never sees end of file.

    Raises:
        CannotRun: it cannot be started or watched.
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
                return following.watch_until_end(program.grace, timeout, cancelled, linger, abandon)
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
    """Wait for the supervisor; in a thread if it still waits for a program that cannot be ended."""

    def wait() -> None:
        with suppress(ChildProcessError):  # SIGCHLD is ignored: the kernel has reaped it
            os.waitpid(supervisor, 0)

    if at_once:
        wait()
    else:
        threading.Thread(target=wait, daemon=True).start()


# ---- this process


class _ChildWatch:
    """Our view of a running program: its output and the supervisor's reports."""

    def __init__(self, life: FileIO, report: FileIO, output: FileIO) -> None:
        self._life, self._report, self._output = life, report, output
        self._said, self._reported, self._pid = b"", b"", 0
        self.is_over = False
        """True if the supervisor is about to exit."""

    def watch_until_end(
        self,
        grace: float,
        timeout: float,
        cancelled: Callable[[], bool],
        linger: float,
        abandon: bool,
    ) -> ProgramResult:
        """Watch the program until it has ended or is abandoned."""
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
                return ProgramResult(None, self._said, ended)
            ready = dict(poll.poll(1000 * min(CANCEL_CHECK_SECONDS, max(left, 0.01))))
            if self._output.fileno() in ready and not self._read():
                poll.unregister(self._output)
            if self._report.fileno() in ready:
                result = self._result()
        status, unread = result
        self._read_remaining(min(linger, max(0.0, left)) if status == 0 and not ended else 0.0)
        return ProgramResult(status, self._said, ended, unread)

    def _result(self) -> tuple[int | None, bool] | None:
        """The program's status and whether it left input unread; None while it runs.

        Raises:
            CannotRun: the supervisor could not start or watch it.
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
        """Kill the program after its supervisor was killed."""
        with suppress(ProcessLookupError, PermissionError):
            if self._pid and os.getsid(self._pid) == self._pid:
                os.killpg(self._pid, signal.SIGKILL)

    def _read_remaining(self, seconds: float) -> None:
        """Read the output; continue up to so many seconds while another process has it open."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        deadline = time.monotonic() + seconds
        while self._read() and (left := deadline - time.monotonic()) > 0:
            poll.poll(1000 * left)

    def _read(self) -> bool:
        """Read available output; False at end of file."""
        # Limited: a program may write faster than we read, and the timeout must still be checked.
        for _ in range(READS_PER_CHECK):
            try:
                more = os.read(self._output.fileno(), 65536)
            except BlockingIOError:
                return True
            if not more:
                return False
            self._said = (self._said + more)[-MAX_OUTPUT_BYTES:]
        return True


# ---- the supervisor


def _supervise(program: Program, life: int, report: int, output: int) -> NoReturn:
    """Run the supervisor process, from fork to exit.

    It is forked while other threads may run: so it must not wait for locks that they hold, nor free
    their objects, whose finalizers (of a database) belong to the parent process.
    """
    supervisor = _Supervisor(program, life, report)
    try:
        gc.disable()
        os.setsid()  # signals to our process group must not reach it
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, _ignore_signal)  # a handler, because SIG_IGN would be inherited
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _close_all_but({life, report, output, *program.pass_fds})
        supervisor.watch(output)
    except Exception as error:
        supervisor.report_error(error)
    finally:
        os._exit(0)


def _ignore_signal(*_: object) -> None:
    """Ignore a signal: the supervisor must outlive its program."""


def _close_all_but(kept: Collection[int]) -> None:
    """Close the inherited descriptors; the standard ones become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd in kept or fd == null:
            continue
        if fd <= 2:
            os.dup2(null, fd)
            continue
        with suppress(OSError):  # the descriptor of the listing itself
            os.close(fd)


class _Supervisor:
    """Starts a program, writes its input, reports its end, and kills it when `life` is closed."""

    def __init__(self, program: Program, life: int, report: int) -> None:
        self._program, self._life, self._report = program, life, report
        self._reading = self._writing = -1
        """Ends of the pipe to the program's standard input. We keep the read end to count unread
        bytes and to avoid EPIPE when writing."""
        self._left = memoryview(program.stdin or b"")
        self._pid = 0

    def watch(self, output: int) -> None:
        """Run the program to its end.

        Raises:
            OSError, SubprocessError, ValueError: the program cannot be started or watched.
        """
        # Use a pipe: a confined program (AppArmor, SELinux) may not read a file that we opened.
        if self._program.stdin is not None:
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
        process = self._start(output)
        self._pid = process.pid
        signal.signal(signal.SIGCHLD, self._reap_adopted)
        self._reap_adopted()
        self._report_line(f"pid {self._pid}")
        for fd in (output, *self._program.pass_fds):
            os.close(fd)
        pidfd = os.pidfd_open(self._pid)
        forced = self._follow(pidfd)
        end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        assert end is not None
        status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        self._report_line(f"ended {status} {int(self._unread())}")
        if not forced:
            os.read(self._life, 1)
        # It has not been reaped yet, so its PID cannot have been reused.
        self._signal(signal.SIGKILL, session=forced)

    def report_error(self, error: Exception) -> None:
        """Report an error: `refused` if the program was not started; else kill it and report
        `lost`."""
        why = (error.strerror if isinstance(error, OSError) else "") or str(error) or repr(error)
        if self._pid:
            self._signal(signal.SIGKILL)
        self._report_line(f"{'lost' if self._pid else 'refused'} {why}")

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
        """Reap orphans that we adopted (subreaper), but not the program itself, to keep its PID."""
        while (end := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if end.si_pid == self._pid:
                return
            os.waitpid(end.si_pid, 0)

    def _follow(self, pidfd: int) -> bool:
        """Wait until the program has ended; True if it was signalled because `life` was closed."""
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
                        poll.unregister(self._writing)  # stay open: half a mail must not end
                self._signal(signals.pop(), session=True)
            elif not self._write():
                poll.unregister(self._writing)
                os.close(self._writing)

    def _write(self) -> bool:
        """Write as much as fits; True if there is more to write."""
        with suppress(BlockingIOError):
            while self._left:
                self._left = self._left[os.write(self._writing, self._left) :]
        return bool(self._left)

    def _unread(self) -> bool:
        """True if input is unread in the pipe or not yet written."""
        if self._reading < 0:
            return False
        return bool(self._left) or any(fcntl.ioctl(self._reading, termios.FIONREAD, bytes(4)))

    def _signal(self, number: signal.Signals, *, session: bool = False) -> None:
        """Signal the program's process group; with `session`, its session and its descendants.

        A program such as timeout(1) makes its own process group, setsid(1) its own session.
        """
        with suppress(ProcessLookupError, PermissionError):  # none left, or another user's
            os.killpg(self._pid, number)
        found: set[int] = set()
        for _ in range(MAX_SCANS if session else 0):
            new = _session_members(self._pid) - found
            if not new:
                return
            for pid in new:
                with suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(pid) != self._pid:
                        os.kill(pid, number)
            found |= new

    def _report_line(self, line: str) -> None:
        with suppress(BrokenPipeError):  # our parent has ended
            os.write(self._report, line.replace("\n", " ").encode("utf-8", "replace") + b"\n")


def _session_members(session: int) -> set[int]:
    """PIDs of a session and of our descendants, as far as /proc lists them."""
    found: set[int] = set()
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                # After the name in parentheses, which may contain any byte: state, parent, group,
                # session
                _, parent, _, its = stat.read().rpartition(b")")[2].split()[:4]
                children.setdefault(int(parent), []).append(int(name))
                if int(its) == session:
                    found.add(int(name))
    below = children.get(os.getpid(), [])
    while below:
        found.update(below)
        below = [pid for parent in below for pid in children.get(parent, [])]
    return found
