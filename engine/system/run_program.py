"""Run a program of another server and stream its output: the runner of stores that read and act
through programs; and the PATH and environment of all programs that we start. Programs that get a
mail on standard input are run by `engine.mail.run_program`.

No shell, no terminal, and a fixed environment: what the program does depends on its arguments and
its standard input alone."""

from __future__ import annotations

import fcntl
import os
import select
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from engine.system.users import Account, login_environment
from engine.text.error_text import error_text
from engine.text.safe import safe_line
from engine.values import NamedTuple

if TYPE_CHECKING:
    import subprocess

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH for our search and for the programs that we run; the caller's PATH is ignored."""

PASSED_VARIABLES = ("HOME", "LOGNAME", "TZ", "USER", "XDG_CONFIG_HOME")
"""Environment variables passed to a mail program or handler: for its own configuration and the time
zone. All others are withheld, among them the relay's password."""

PREFIX_VARIABLES = ("HOME", "SSH_AUTH_SOCK")
"""Environment variables passed to a program of another server: kubectl and docker have their
configuration below HOME, and ssh asks the agent for a key that is in no file. No mail server reads
them; one more (MAIL_CONFIG) would choose another server."""

READER_SECONDS = 60.0
"""Seconds without a byte after which a program that only reads is ended."""
ACT_SECONDS = 120.0
"""Seconds in all after which a program that changes something is ended."""
KILL_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""
LINGER_SECONDS = 0.5
"""Seconds that child processes have for more output after the program's end: the connection that
ssh keeps open in the background (ControlPersist) may have our pipes for an hour."""
MAX_LINE_BYTES = 16 << 20
"""A longer line is skipped to its end, and counted."""
FIRST_ERROR_BYTES, LAST_ERROR_BYTES = 64 << 10, 4 << 10
"""What is kept of standard error: its start and its end."""
_READ_BYTES = 1 << 18
"""Bytes of a pipe, and the most that is read from it at a time."""
SMALL_BYTES, PAUSE_SECONDS, PAUSE_SHARE = 128 << 10, 0.02, 0.05
"""A program that prints line by line is read after a pause, if there was little: reading each line
alone takes more CPU than parsing it. A pause is at most this share of the time since its start."""
ERRORS_PAUSE_SECONDS = 0.002
"""The same for standard error, whose lines are never needed before the end."""


def environment(
    environ: Mapping[str, str] = os.environ, account: Account | None = None
) -> dict[str, str]:
    """Return the environment of a program that we start: `PASSED_VARIABLES`, a fixed PATH, C.UTF-8.
    For mail programs and handlers. `account` is the user that runs the program; None: our own."""
    account_environ = login_environment(account, environ)
    passed = {name: account_environ[name] for name in PASSED_VARIABLES if name in account_environ}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", **passed}


def find_program(name: str) -> str:
    """Return the path of an installed program; "" if none."""
    paths = (f"{folder}/{name}" for folder in PATH.split(":"))
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


class CannotStart(Exception):
    """A program cannot be started; the message names it and the system's reason."""

    def __init__(self, program: str, error: Exception) -> None:
        super().__init__(f"{safe_line(program)}: {safe_line(error_text(error))}")
        self.is_missing = isinstance(error, FileNotFoundError)
        """True if there is no such program."""


class ProgramEnd(NamedTuple):
    """How a program ended."""

    status: int | None
    """Exit status; negative: the signal that ended it; None: it cannot be ended."""
    errors: bytes
    """The start of its standard error, and its end if that is longer."""
    seconds: float
    """How long it ran."""
    limit: str = ""
    """The limit for which we ended it, as text; "" if it ended by itself."""
    long_lines: tuple[int, ...] = ()
    """Numbers, from 1, of the lines that were skipped as too long."""
    is_cut: bool = False
    """True if its output ended without a newline: `lines` has yielded the rest as a line."""

    @property
    def last_error(self) -> str:
        """Its last line on standard error, to show; "" without any."""
        lines = [line for line in self.errors.decode("utf-8", "replace").splitlines() if line]
        return safe_line(lines[-1]) if lines else ""


class RunningProgram:
    """A started program; `lines` streams its standard output, then `end` says how it ended.

    Its process group gets SIGTERM, and SIGKILL 5 s later, when a limit is reached or `close` is
    called before its end. A program behind ssh may go on all the same: its outcome is unknown."""

    def __init__(
        self,
        argv: Sequence[str],
        stdin: bytes | None = None,
        *,
        idle_seconds: float = READER_SECONDS,
        total_seconds: float | None = None,
    ) -> None:
        """Start it with this standard input; None: /dev/null. `idle_seconds` without a byte of
        output and `total_seconds` in all are its limits; None: no limit.

        Raises:
            CannotStart: it is missing, or the system has no process for it.
        """
        self._began = time.monotonic()
        self._idle_seconds = idle_seconds
        self._deadline = None if total_seconds is None else self._began + total_seconds
        self._process = _start(argv, has_input=stdin is not None, output=None)
        try:
            self._pidfd = os.pidfd_open(self._process.pid)
        except OSError as error:  # too many descriptors
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.communicate()
            raise CannotStart(argv[0], error) from error
        self._input = memoryview(stdin or b"")
        self._errors = bytearray()
        self._last_errors = b""
        self._limit = ""
        self._long_lines: list[int] = []
        self._is_cut = False
        self.end: ProgramEnd | None = None
        """How it ended; None while it runs."""

    def lines(self) -> Iterator[bytes]:
        """Yield each line of standard output without its newline, the last one also if it is cut
        off; afterwards `end` is set."""
        number, size, line = 0, 0, bytearray()  # of the line that has not ended yet
        for chunk in self._chunks():
            first, *pieces = chunk.split(b"\n")
            size += len(first)
            if size <= MAX_LINE_BYTES:
                line += first
            else:
                line = bytearray()
            if not pieces:
                continue
            if size > MAX_LINE_BYTES:
                self._long_lines.append(number + 1)
            else:
                yield bytes(line)
            line = bytearray(pieces.pop())
            yield from pieces  # a chunk is shorter than the longest line
            number, size = number + 1 + len(pieces), len(line)
        self._is_cut = size > 0
        if size > MAX_LINE_BYTES:
            self._long_lines.append(number + 1)
        elif size:
            yield bytes(line)
        self._finish()

    def _chunks(self) -> Iterator[bytes]:
        """Yield what it prints on standard output until it has ended, also by a limit; feed its
        input and collect its errors beside."""
        process, poll = self._process, select.poll()
        assert process.stdout is not None and process.stderr is not None
        output, errors = process.stdout.fileno(), process.stderr.fileno()
        feed = -1 if process.stdin is None else process.stdin.fileno()
        for fd in (output, errors, self._pidfd):
            poll.register(fd, select.POLLIN)
        if feed >= 0:
            os.set_blocking(feed, False)
            poll.register(feed, select.POLLOUT)
        can_pause = _enlarge(output)  # a small pipe would be full after a pause
        while True:
            ready = dict(poll.poll(1000 * self._patience()))
            if self._pidfd in ready:
                break
            if not ready or self._patience() <= 0:  # it may print without end
                self._stop(self._describe_limit())
                break
            if feed in ready and not self._write(feed):
                poll.unregister(feed)
            for fd in ready.keys() & {output, errors}:
                data = os.read(fd, _READ_BYTES)
                if not data:
                    poll.unregister(fd)
                elif fd == output:
                    yield data
                    if can_pause and len(data) < SMALL_BYTES:
                        age = time.monotonic() - self._began
                        _wait(self._pidfd, min(PAUSE_SECONDS, PAUSE_SHARE * age))
                else:
                    self._keep_errors(data)
                    time.sleep(ERRORS_PAUSE_SECONDS)
        # All that it printed itself is in the pipes now; its child processes may print on.
        until = time.monotonic() + LINGER_SECONDS
        yield os.read(output, _unread(output))
        poll = select.poll()
        poll.register(output, select.POLLIN)
        while (remaining := until - time.monotonic()) > 0 and poll.poll(1000 * remaining):
            if not (data := os.read(output, _READ_BYTES)):
                break
            yield data
        self._keep_errors(os.read(errors, _unread(errors)))

    def _patience(self) -> float:
        """Seconds until a limit is reached."""
        if self._deadline is None:
            return self._idle_seconds
        return max(0.0, min(self._idle_seconds, self._deadline - time.monotonic()))

    def _describe_limit(self) -> str:
        if self._deadline is not None and time.monotonic() >= self._deadline:
            return f"not ended after {self._deadline - self._began:g} s"
        return f"nothing printed for {self._idle_seconds:g} s"

    def _write(self, fd: int) -> bool:
        """Write as much input as fits, and close it after the last byte; True if there is more."""
        stdin = self._process.stdin
        assert stdin is not None
        with suppress(BlockingIOError):
            try:
                while self._input:
                    self._input = self._input[os.write(fd, self._input) :]
            except BrokenPipeError:  # it does not read its input: its answer shows what it did
                self._input = memoryview(b"")
            stdin.close()
            return False
        return True

    def _keep_errors(self, data: bytes) -> None:
        room = FIRST_ERROR_BYTES - len(self._errors)
        self._errors += data[:room]
        if len(data) > room:
            self._last_errors = (self._last_errors + data[max(0, room) :])[-LAST_ERROR_BYTES:]

    def _stop(self, limit: str) -> None:
        """End its process group, also the child processes that ignore SIGTERM."""
        self._limit = limit
        for number in (signal.SIGTERM, signal.SIGKILL):
            # It has its own session, and is not waited for yet: the group cannot be another's.
            with suppress(ProcessLookupError, PermissionError):  # sudo's, which obeys a closed pipe
                os.killpg(self._process.pid, number)
            _wait(self._pidfd, KILL_SECONDS)

    def _finish(self) -> None:
        """Set `end`; it has ended, or cannot be ended."""
        process = self._process
        status = process.poll()
        if status is None:
            self._limit += "; it cannot be ended"
            _reap_later(process)
        os.close(self._pidfd)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        errors, seconds = bytes(self._errors) + self._last_errors, time.monotonic() - self._began
        self.end = ProgramEnd(
            status,
            errors,
            seconds,
            limit=self._limit,
            long_lines=tuple(self._long_lines),
            is_cut=self._is_cut,
        )

    def close(self) -> None:
        """End it, if it still runs."""
        if self.end is None:
            if not _wait(self._pidfd, 0):
                self._stop("no longer needed")
            self._finish()


def run_program(
    argv: Sequence[str],
    stdin: bytes | None = None,
    *,
    idle_seconds: float = READER_SECONDS,
    total_seconds: float | None = None,
) -> tuple[list[bytes], ProgramEnd]:
    """Run a program to its end; return its lines on standard output, and how it ended.

    Raises:
        CannotStart: see `RunningProgram`.
    """
    program = RunningProgram(argv, stdin, idle_seconds=idle_seconds, total_seconds=total_seconds)
    try:
        lines = [*program.lines()]
        assert program.end is not None
        return lines, program.end
    finally:
        program.close()


def start_detached(argv: Sequence[str], seconds: float) -> ProgramEnd | None:
    """Start a program that must never be ended, as it delivers mail; after so many seconds it is
    left running, which is None. All that it has printed until its end is in `errors`.

    It writes to a file without a name, as a closed pipe would end it.

    Raises:
        CannotStart: it is missing, or the system has no process or file for it.
    """
    from subprocess import TimeoutExpired  # few commands start such a program
    from tempfile import TemporaryFile

    began = time.monotonic()
    try:
        output = TemporaryFile()  # noqa: SIM115 - closed below
    except OSError as error:
        raise CannotStart(argv[0], error) from error
    with output:
        process = _start(argv, has_input=False, output=output)
        try:
            status = process.wait(seconds)
        except BaseException as error:
            _reap_later(process)
            if isinstance(error, TimeoutExpired):
                return None
            raise
        errors = os.pread(output.fileno(), FIRST_ERROR_BYTES, 0)
        return ProgramEnd(status, errors, time.monotonic() - began)


def _start(
    argv: Sequence[str], *, has_input: bool, output: IO[bytes] | None
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own. `output` is a file for its output and errors; None:
    a pipe for each."""
    import subprocess  # many commands only ask which programs there are

    passed = {name: os.environ[name] for name in PREFIX_VARIABLES if name in os.environ}
    stream = subprocess.PIPE if output is None else output
    try:
        return subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
            env={"PATH": PATH, "LC_ALL": "C", "TZ": "UTC", **passed},
            cwd="/",
            start_new_session=True,
            bufsize=0,
        )
    except (OSError, ValueError) as error:
        raise CannotStart(argv[0], error) from error


def _wait(pidfd: int, seconds: float) -> bool:
    """Wait for the end of a process; True if it has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(1000 * seconds))


def _enlarge(pipe: int) -> bool:
    """Give a pipe room for `_READ_BYTES`; False if this user has too many large ones."""
    with suppress(OSError):
        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _READ_BYTES) >= _READ_BYTES
    return False


def _unread(pipe: int) -> int:
    """Bytes that can be read from a pipe now."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def _reap_later(process: subprocess.Popen[bytes]) -> None:
    """Wait for a process that we leave running, so that it does not stay a zombie."""
    threading.Thread(target=process.wait, daemon=True).start()
