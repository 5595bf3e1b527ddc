"""Run programs under a supervisor process that kills them if this process dies, even by SIGKILL.

`SupervisorPool.run` forks a supervisor, or takes an idle one, and sends it the program over a
socket pair. Only this process has our end: end of file on it means "end the program", whether we
shut it down (timeout, cancelled) or were killed. The supervisor starts the program, writes its
standard input, reads its output, and reports its end. It has all of the input before the start: if
we are killed in the middle of a mail, the program never sees end of file after half of it."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import marshal
import mmap
import os
import select
import signal
import socket
import subprocess
import termios
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NoReturn

from engine.system.users import Account
from engine.text.error_text import error_text
from engine.values import NamedTuple

MAX_OUTPUT_BYTES = 64 << 10
"""Bytes of output to keep (the last ones): a program may print without end."""

KILL_DELAY_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""

CANCEL_CHECK_SECONDS = 1.0
"""Seconds between checks whether a running program was cancelled."""

READS_PER_CHECK = 32
"""Reads of 64 KiB between two checks of the clock; a pipe holds at most 1 MiB."""

MAX_SCANS = 10
"""Maximum scans of /proc for the program's processes: each finds those forked meanwhile."""

PR_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphaned descendants become children of this process."""

_prctl = ctypes.CDLL(None).prctl
_prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class ProgramResult(NamedTuple):
    """The result of a program."""

    status: int | None
    """Exit status; negative: the signal that ended it; None: unknown, or not ended."""
    output: bytes
    """The end of its standard output and standard error, together."""
    end_reason: str = ""
    """Why it was ended: `timeout after N s` or `stopped`; "" if it was not ended by us."""
    has_unread_input: bool = False
    """True if it did not read all of its standard input."""


OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""errno values of a call that failed for want of our descriptors or memory, not by the peer."""


def descriptor_lack() -> str:
    """Why no file can be opened now, for want of descriptors or memory; "" if one can."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return os.strerror(error.errno) if error.errno in OWN_LIMITS else ""
    return ""


def own_limit(error: BaseException | None) -> str:
    """The text of an error for want of our own descriptors or memory; "" if it has another cause.

    Without descriptors a name seems unknown and a certificate untrusted, as their files cannot be
    opened: for these errors it is tried whether one can."""
    if isinstance(error, socket.gaierror) or hasattr(error, "verify_code"):
        return descriptor_lack()
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number in OWN_LIMITS and number else ""


_FAULTS_OF_REQUEST = (errno.E2BIG, errno.EINVAL, errno.ENAMETOOLONG)
"""errno values of a start that fails for what the program was given, not for what is missing."""


class CannotRun(Exception):
    """The program cannot be started or watched; the message is the system's reason."""

    def __init__(self, why: str, *, started: bool = False, code: int = 0) -> None:
        """`code` is the errno, 0 if there is none."""
        super().__init__(why)
        self.started = started
        self.is_lack = not started and code != 0 and code not in _FAULTS_OF_REQUEST
        """True if no instruction of the program has run, for want of a process, memory, descriptors
        or the program itself: not the fault of what it was to work on."""


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
    kept_fds: Collection[int] = ()
    """File descriptors that only the supervisor keeps open while it runs: a lock that must outlive
    us, and that a program could release (flock -u)."""
    stdin_fd: int = -1
    """An open file that is the standard input, instead of bytes; -1: none."""


class SupervisorPool:
    """Supervisor processes, each with one program at a time; they are used again and end with us.

    A supervisor that still has a child process after its program (a daemon, or one that cannot be
    killed) is not used again. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._idle: list[_Link] = []

    def run(
        self,
        program: Program,
        timeout: float,
        cancelled: Callable[[], bool],
        *,
        linger: float = 0.0,
        abandon: bool = False,
    ) -> ProgramResult:
        """Run a program for at most `timeout` seconds; end it early if `cancelled()` is true.

        It runs in its own session. To end it, all processes of that session and all its descendants
        in other sessions (setsid) get SIGTERM, and SIGKILL `grace` seconds later. If it ends by
        itself, the rest of its process group is killed; after status 0 that waits up to `linger`
        seconds for its output to be closed.

        We may have no permission to signal a program of another user (setuid): with `abandon` we
        stop waiting for it two graces after the timeout, otherwise we wait. If it has not got all
        of its input by then, it never sees end of file.

        Raises:
            CannotRun: it cannot be started or watched."""
        started = is_over = is_reusable = False
        try:
            link = self._take_link(tuple(program.pass_fds), tuple(program.kept_fds))
            try:
                deadline = time.monotonic() + timeout
                link.send_request(program, (deadline, linger, abandon))
                started = True
                why = link.await_report(deadline, timeout, cancelled)
                is_over = True
                result, is_over, is_reusable = link.read_report(why)
                return result
            finally:
                if is_reusable:
                    self._idle.append(link)
                else:
                    link.close(at_once=is_over)
        except OSError as error:
            why, code = error_text(error), error.errno or 0
            raise CannotRun(why, started=started, code=code) from error

    def _take_link(self, pass_fds: tuple[int, ...], kept_fds: tuple[int, ...]) -> _Link:
        """Return an idle supervisor that was started for these descriptors, or a new one."""
        with suppress(IndexError):  # no other thread can take the same one
            while True:
                link = self._idle.pop()
                if (link.pass_fds, link.kept_fds) == (pass_fds, kept_fds) and link.is_alive():
                    return link
                link.close(at_once=True)
        return _Link.open(pass_fds, kept_fds)

    def close(self) -> None:
        """End the idle supervisors; call it when no program runs."""
        while self._idle:
            self._idle.pop().close(at_once=True)

    def __enter__(self) -> SupervisorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run_supervised(
    program: Program,
    timeout: float,
    cancelled: Callable[[], bool],
    *,
    linger: float = 0.0,
    abandon: bool = False,
) -> ProgramResult:
    """Run one program under its own supervisor, as `SupervisorPool.run` does."""
    with SupervisorPool() as pool:
        return pool.run(program, timeout, cancelled, linger=linger, abandon=abandon)


def _send(sock: socket.socket, value: tuple[Any, ...], fds: Sequence[int] = ()) -> None:
    """Send a value of built-in types, after its length, with descriptors."""
    data = marshal.dumps(value)
    data = len(data).to_bytes(8, "little") + data
    sent = socket.send_fds(sock, [data], fds) if fds else sock.send(data)
    if sent < len(data):
        sock.sendall(memoryview(data)[sent:])


def _receive(sock: socket.socket, fds: int) -> tuple[Any, list[int]]:
    """Receive a value, with up to so many descriptors. Raises `EOFError`: the other end was closed
    before all of it was sent."""
    first, received, _, _ = socket.recv_fds(sock, 65536, fds, socket.MSG_CMSG_CLOEXEC)
    data = bytearray(first)
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        if not first:
            raise EOFError
        first = sock.recv(1 << 20)
        data += first
    return marshal.loads(memoryview(data)[8:]), received


# ---- this process


class _Link(NamedTuple):
    """A supervisor process, and our end of the socket pair."""

    pid: int
    sock: socket.socket
    running: mmap.mmap
    """Memory shared with the supervisor: the PID of the program, 0 before it is started."""
    pass_fds: tuple[int, ...]
    """Numbers of the descriptors that its programs inherit."""
    kept_fds: tuple[int, ...]
    """Numbers of those that only it has."""

    @classmethod
    def open(cls, pass_fds: tuple[int, ...], kept_fds: tuple[int, ...]) -> _Link:
        """Fork a supervisor."""
        our_end, theirs = socket.socketpair()
        with theirs:
            try:
                running = mmap.mmap(-1, 8)
                pid = os.fork()
            except OSError:
                our_end.close()
                raise
            if pid == 0:
                _supervise(theirs, running, pass_fds, kept_fds)
        return cls(pid, our_end, running, pass_fds, kept_fds)

    def is_alive(self) -> bool:
        """True if the supervisor waits for a program."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        return not poll.poll(0)

    def send_request(self, program: Program, how: tuple[float, float, bool]) -> None:
        """Send a program, and how to run it: its deadline, `linger`, `abandon`."""
        self.running[:] = bytes(8)
        account = program.account and tuple(program.account)
        text = tuple(program.argv), dict(program.env)
        request = (*text, program.stdin, program.cwd, account, program.grace, how)
        fds = (*self.pass_fds, *self.kept_fds)
        if program.stdin_fd >= 0:
            fds = (*fds, program.stdin_fd)
        with suppress(BrokenPipeError, ConnectionResetError):  # it has ended: `read_report` tells
            _send(self.sock, request, fds)

    def await_report(self, deadline: float, timeout: float, cancelled: Callable[[], bool]) -> str:
        """Wait for the supervisor's report. Return why the program is ended early, else ""."""
        poll = select.poll()
        poll.register(self.sock, select.POLLIN)
        why = ""
        while True:
            seconds = deadline - time.monotonic()
            if not why and (seconds <= 0 or cancelled()):
                why = f"timeout after {timeout:g} s" if seconds <= 0 else "stopped"
                self.sock.shutdown(socket.SHUT_WR)
            if poll.poll(
                1000 * (CANCEL_CHECK_SECONDS if why else min(CANCEL_CHECK_SECONDS, seconds))
            ):
                return why

    def read_report(self, why: str) -> tuple[ProgramResult, bool, bool]:
        """Return the result; True if the supervisor is about to end or idle; True if it is idle."""
        try:
            (word, *values), _ = _receive(self.sock, 0)
        except (EOFError, ConnectionResetError):
            self._kill_unsupervised()
            return ProgramResult(None, b"", why), True, False
        if word != "ended":
            raise CannotRun(values[0], started=word == "lost", code=values[1])
        status, output, unread, forced, is_over, is_idle = values
        return ProgramResult(status, output, why if forced else "", unread), is_over, is_idle

    def _kill_unsupervised(self) -> None:
        pid = int.from_bytes(self.running[:], "little")
        with suppress(ProcessLookupError, PermissionError):
            if pid and os.getsid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)

    def close(self, *, at_once: bool) -> None:
        """End the supervisor, and wait for it: in a thread if it still has a program."""
        self.sock.close()
        self.running.close()
        if at_once:
            _reap(self.pid)
        else:
            try:
                threading.Thread(target=_reap, args=(self.pid,), daemon=True).start()
            except RuntimeError:
                return  # without a thread, the end of this process reaps it


def _reap(supervisor: int) -> None:
    with suppress(ChildProcessError):  # SIGCHLD is ignored: the kernel has reaped it
        os.waitpid(supervisor, 0)


# ---- the supervisor


def _supervise(
    sock: socket.socket, running: mmap.mmap, pass_fds: tuple[int, ...], kept_fds: tuple[int, ...]
) -> NoReturn:
    """Run the supervisor process, from fork to exit.

    It is forked while other threads may run: so it must not wait for locks that they hold, nor free
    their objects, whose finalizers (of a database) belong to the parent process."""
    try:
        gc.disable()
        os.setsid()  # signals to our process group must not reach it
        _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            # The supervisor must outlive its program; SIG_IGN would be inherited.
            signal.signal(number, lambda *_: None)
        null = _close_all_but({sock.fileno(), *pass_fds, *kept_fds})
        for fd in pass_fds + kept_fds:
            os.dup2(null, fd, inheritable=False)  # keep the number, but not the flock
        supervisor = _Supervisor(sock, running, null)
        signal.signal(signal.SIGCHLD, supervisor.reap_adopted)
        is_idle = True
        while is_idle:
            listed = len(pass_fds) + len(kept_fds)
            (argv, env, stdin, cwd, account, grace, how), fds = _receive(sock, listed + 1)
            runs_as = account and Account(*account)
            program = Program(
                argv,
                env,
                stdin,
                stdin_fd=fds.pop() if len(fds) > listed else -1,
                cwd=cwd,
                pass_fds=pass_fds,
                account=runs_as,
                grace=grace,
                kept_fds=kept_fds,
            )
            is_idle = supervisor.serve(program, fds, how)
    except (EOFError, ConnectionResetError):
        pass  # our parent has closed its end, or was killed
    except Exception as error:
        with suppress(BrokenPipeError):
            _send(sock, ("refused", *_reason(error)))
    finally:
        os._exit(0)


def _reason(error: Exception) -> tuple[str, int]:
    """The reason as text, and the errno; 0 if it has none."""
    why = error_text(error)
    code = errno.ENOMEM if isinstance(error, MemoryError) else getattr(error, "errno", None)
    return why.encode("utf-8", "replace").decode(), code or 0


def _close_all_but(exempt: Collection[int]) -> int:
    """Close the inherited descriptors; the standard ones become /dev/null, also those that were
    closed. Return another one of that."""
    null = fcntl.fcntl(os.open(os.devnull, os.O_RDWR), fcntl.F_DUPFD_CLOEXEC, 3)
    for fd in {0, 1, 2} - set(exempt):
        os.dup2(null, fd)
    for name in os.listdir("/proc/self/fd"):
        fd = int(name)
        if fd > 2 and fd not in exempt and fd != null:
            with suppress(OSError):  # the descriptor of the listing itself
                os.close(fd)
    return null


class _Supervisor:
    """Starts a program, serves its input and output, reports its end; kills it if the other end of
    the socket is closed."""

    _program: Program
    _deadline: float
    _linger: float
    _abandon: bool

    def __init__(self, sock: socket.socket, running: mmap.mmap, null: int) -> None:
        self._sock, self._running, self._null = sock, running, null
        self._output = self._written = self._reading = self._writing = -1
        """Ends of the pipes from and to the program. We keep the read end of its standard input to
        count unread bytes and to avoid EPIPE when writing, and until it has ended the write end of
        its output, so that the end of that does not wake us just before its own."""
        self._input = memoryview(b"")
        self._collected = b""
        self._pid = 0

    def serve(self, program: Program, fds: Sequence[int], how: tuple[float, float, bool]) -> bool:
        """Run a program and report its end; True if another one can be run."""
        self._program = program
        self._deadline, self._linger, self._abandon = how
        self._input, self._collected = memoryview(program.stdin or b""), b""
        try:
            return self._watch(fds)
        except Exception as error:
            if self._pid:
                self._signal(signal.SIGKILL)
            with suppress(BrokenPipeError):
                _send(self._sock, ("lost" if self._pid else "refused", *_reason(error)))
            return False

    def _watch(self, fds: Sequence[int]) -> bool:
        """Run the program to its end; True if it has left no process behind.

        Raises:
            OSError, subprocess.SubprocessError, ValueError: it cannot be started or watched."""
        self._start(fds)
        self.reap_adopted()
        pidfd = os.pidfd_open(self._pid)
        forced = self._follow(pidfd)
        os.close(self._written)
        end = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOWAIT)
        assert end is not None
        status = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        self._read_remaining(self._linger if status == 0 and not forced else 0.0)
        unread = self._unread()
        # It has not been reaped yet, so its PID cannot have been reused.
        self._signal(signal.SIGKILL, session=forced)
        pid, self._pid = self._pid, 0
        os.waitpid(pid, 0)
        is_idle = not forced and _is_childless()
        for number in self._program.kept_fds:
            os.dup2(self._null, number, inheritable=False)
        self._report(status, unread=unread, forced=forced, is_idle=is_idle)
        for fd in (pidfd, self._output, self._reading, self._writing):
            if fd >= 0:
                os.close(fd)
        self._output = self._reading = self._writing = -1
        return is_idle

    def _start(self, fds: Sequence[int]) -> None:
        program = self._program
        for fd, number in zip(fds, (*program.pass_fds, *program.kept_fds), strict=True):
            os.dup2(fd, number, inheritable=number in program.pass_fds)
            os.close(fd)
        # Use a pipe: a confined program (AppArmor, SELinux) may not read a file that we opened.
        if program.stdin is not None:
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
        self._output, self._written = os.pipe()
        os.set_blocking(self._output, False)
        stdin = self._null if program.stdin is None else self._reading
        if program.stdin_fd >= 0:
            stdin = program.stdin_fd
        self._pid = _spawn(program, stdin, self._written)
        if program.stdin_fd >= 0:
            os.close(program.stdin_fd)
        self._running[:] = self._pid.to_bytes(8, "little")
        for number in program.pass_fds:
            os.dup2(self._null, number, inheritable=False)

    def reap_adopted(self, *_: object) -> None:
        """Reap orphans that we adopted (subreaper), but not the program itself, to keep its PID."""
        with suppress(ChildProcessError):
            while self._pid:
                end = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if end is None or end.si_pid == self._pid:
                    return
                os.waitpid(end.si_pid, 0)

    def _follow(self, pidfd: int) -> bool:
        """Wait until the program has ended; True if it was signalled, as the socket was closed."""
        poll, writing, closed = select.poll(), self._writing, False
        for fd in (pidfd, self._output, self._sock.fileno()):
            poll.register(fd, select.POLLIN)
        if self._write():
            poll.register(writing, select.POLLOUT)
        steps: list[Callable[[], None]] = [
            partial(self._signal, signal.SIGKILL, session=True),
            partial(self._signal, signal.SIGTERM, session=True),
        ]
        if self._abandon:
            steps.insert(0, partial(self._report, None, forced=True, is_over=False))
        until = 0.0
        while True:
            milliseconds = 1000 * max(0.0, until - time.monotonic()) if closed and steps else None
            ready = dict(poll.poll(milliseconds))
            if pidfd in ready:
                return closed
            if self._output in ready:
                self._read()
            if self._sock.fileno() in ready:
                poll.unregister(self._sock)
                if self._input:
                    poll.unregister(writing)  # stay open: half a mail must not end
                closed = True
            elif writing in ready and not self._write():
                poll.unregister(writing)
            if closed and steps and until <= time.monotonic():
                steps.pop()()
                until = time.monotonic() + self._program.grace

    def _read_remaining(self, seconds: float) -> None:
        """Read the output, up to so many seconds while it and the socket are still open."""
        poll = select.poll()
        poll.register(self._output, select.POLLIN)
        poll.register(self._sock, select.POLLIN)
        until = min(self._deadline, time.monotonic() + seconds)
        while self._read() and (remaining := until - time.monotonic()) > 0:
            if self._sock.fileno() in dict(poll.poll(1000 * remaining)):
                return

    def _read(self) -> bool:
        # Limited: a program may write faster than we read, and the deadline must still be checked.
        for _ in range(READS_PER_CHECK):
            try:
                more = os.read(self._output, 65536)
            except BlockingIOError:
                return True
            if not more:
                return False
            whole = more if len(more) >= MAX_OUTPUT_BYTES else self._collected + more
            self._collected = whole[-MAX_OUTPUT_BYTES:]
        return True

    def _write(self) -> bool:
        """Write as much input as fits, and close it after the last byte; True if there is more."""
        with suppress(BlockingIOError):
            while self._input:
                self._input = self._input[os.write(self._writing, self._input) :]
            if self._writing >= 0:
                os.close(self._writing)
                self._writing = -1
        return bool(self._input)

    def _unread(self) -> bool:
        if self._reading < 0:
            return False
        return bool(self._input) or any(fcntl.ioctl(self._reading, termios.FIONREAD, bytes(4)))

    def _report(
        self,
        status: int | None,
        *,
        unread: bool = False,
        forced: bool = False,
        is_over: bool = True,
        is_idle: bool = False,
    ) -> None:
        """Send what `_Link.read_report` reads."""
        with suppress(BrokenPipeError):  # our parent has ended
            _send(self._sock, ("ended", status, self._collected, unread, forced, is_over, is_idle))

    def _signal(self, number: signal.Signals, *, session: bool = False) -> None:
        """Signal the program's process group; with `session`, its session and its descendants. A
        program such as timeout(1) makes its own process group, setsid(1) its own session."""
        with suppress(ProcessLookupError, PermissionError):  # none left, or another user's
            os.killpg(self._pid, number)
        signalled: set[int] = set()
        for _ in range(MAX_SCANS if session else 0):
            new = _session_members(self._pid) - signalled
            if not new:
                return
            for pid in new:
                with suppress(ProcessLookupError, PermissionError):
                    if os.getpgid(pid) != self._pid:
                        os.kill(pid, number)
            signalled |= new


def _spawn(program: Program, stdin: int, output: int) -> int:
    """Start a program in its own session; return its PID.

    `posix_spawn` takes half the processor time of `Popen`, but sets no user or folder and reads our
    PATH. It closes nothing: all other descriptors of a supervisor are closed by exec."""
    if program.account is None and program.cwd is None and "/" in program.argv[0]:
        into = ((stdin, 0), (output, 1), (output, 2))
        return os.posix_spawn(
            program.argv[0],
            list(program.argv),
            program.env,
            file_actions=[(os.POSIX_SPAWN_DUP2, *fds) for fds in into],
            setsid=True,
            setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),  # Python ignores them
        )
    return spawn(program, stdin, output, output)


def spawn(
    program: Program,
    stdin: int,
    output: int,
    errors: int,
    before_exec: Callable[[], None] | None = None,
) -> int:
    """Start a program in its own session with these descriptors and those of `pass_fds`; return its
    PID, which the caller must wait for (waitid). Its `stdin` and `grace` are not used.

    `before_exec` is called in the new process, with the rights of the program: only a process
    without other threads may pass it.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: it cannot be started."""
    process = subprocess.Popen(
        program.argv,
        stdin=stdin,
        stdout=output,
        stderr=errors,
        env=program.env,
        cwd=program.cwd,
        pass_fds=tuple(program.pass_fds),
        start_new_session=True,
        user=program.account and program.account.uid,
        group=program.account and program.account.gid,
        extra_groups=program.account and program.account.groups,
        preexec_fn=before_exec,
    )
    process.returncode = 0  # the caller waits for it
    return process.pid


def _is_childless() -> bool:
    """Reap child processes that have ended; True if there is no other."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _session_members(session: int) -> set[int]:
    """PIDs of a session and of our descendants, as far as /proc lists them."""
    members: set[int] = set()
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                # After the name in parentheses, which may contain any byte: state, parent, group,
                # session
                _, parent, _, its = stat.read().rpartition(b")")[2].split()[:4]
                children.setdefault(int(parent), []).append(int(name))
                if int(its) == session:
                    members.add(int(name))
    below = children.get(os.getpid(), [])
    while below:
        members.update(below)
        below = [pid for parent in below for pid in children.get(parent, [])]
    return members
