"""Run a program of another server and stream its output: the runner of stores that read and act
through programs. Programs that get a mail on standard input are run by `engine.mail.run_program`.

No shell, no terminal, and a fixed environment: what the program does depends on its arguments and
its standard input alone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from engine.text.error_text import error_text
from engine.text.safe import safe_line

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""PATH for our search and for the programs that we run; the caller's PATH is ignored."""

ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C", "TZ": "UTC"}
"""The environment of a program here: one more variable (MAIL_CONFIG) would choose another server.
HOME is added, if there is one: ssh has its keys there."""

READER_SECONDS = 60.0
"""Seconds without a byte after which a program that only reads is ended."""
ACT_SECONDS = 120.0
"""Seconds in all after which a program that changes something is ended."""
KILL_SECONDS = 5.0
"""Seconds between SIGTERM and SIGKILL."""
MAX_LINE_BYTES = 16 << 20
"""A longer line is skipped to its end, and counted."""
FIRST_ERROR_BYTES, LAST_ERROR_BYTES = 64 << 10, 4 << 10
"""What is kept of standard error: its start and its end."""
_READ_BYTES = 1 << 16


class CannotStart(Exception):
    """A program cannot be started; the message names it and the system's reason."""


class ProgramEnd(NamedTuple):
    """How a program ended."""

    status: int | None
    """Exit status; negative: the signal that ended it."""
    errors: bytes
    """The start of its standard error, and its end if that is longer."""
    seconds: float
    """How long it ran."""
    limit: str = ""
    """The limit for which we ended it, as text; "" if it ended by itself."""
    long_lines: tuple[int, ...] = ()
    """Numbers, from 1, of the lines that were skipped as too long."""

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
        home = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**ENVIRONMENT, **home},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            raise CannotStart(f"{safe_line(argv[0])}: {error_text(error)}") from error
        self._input = memoryview(stdin or b"")
        self._errors = bytearray()
        self._last_errors = b""
        self._long_lines: list[int] = []
        self.end: ProgramEnd | None = None
        """How it ended; None while it runs."""

    def lines(self) -> Iterator[bytes]:
        """Yield each line of standard output without its newline, the last one also if it is cut
        off; afterwards `end` is set."""
        number, rest, is_skipping = 0, b"", False
        for chunk in self._chunks():
            *whole, last = (rest + chunk).split(b"\n")
            for line in whole:
                number += 1
                if is_skipping or len(line) > MAX_LINE_BYTES:
                    self._long_lines.append(number)
                    is_skipping = False
                    continue
                yield line
            rest = last
            if is_skipping or len(rest) > MAX_LINE_BYTES:
                rest, is_skipping = b"", True
        if is_skipping:
            self._long_lines.append(number + 1)
        elif rest:
            yield rest
        self._finish("")

    def _chunks(self) -> Iterator[bytes]:
        """Yield what it prints on standard output; feed its input and collect its errors beside."""
        process, poll = self._process, select.poll()
        assert process.stdout is not None and process.stderr is not None
        output, errors = process.stdout.fileno(), process.stderr.fileno()
        feed = -1 if process.stdin is None else process.stdin.fileno()
        for fd in (output, errors):
            poll.register(fd, select.POLLIN)
        if feed >= 0:
            os.set_blocking(feed, False)
            poll.register(feed, select.POLLOUT)
        open_fds = {output, errors}
        while open_fds:
            ready = poll.poll(1000 * self._patience())
            if not ready:
                self._finish(self._describe_limit())
                return
            for fd, _ in ready:
                if fd == feed:
                    if not self._write(feed):
                        poll.unregister(feed)
                        feed = -1
                    continue
                data = os.read(fd, _READ_BYTES)
                if not data:
                    poll.unregister(fd)
                    open_fds.discard(fd)
                elif fd == output:
                    yield data
                else:
                    self._keep_errors(data)

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

    def _finish(self, limit: str) -> None:
        """Wait for its end, and set `end`; end it first if a limit was reached."""
        if self.end is not None:
            return
        process = self._process
        if limit:
            self._signal(signal.SIGTERM)
            try:
                process.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        errors, seconds = bytes(self._errors) + self._last_errors, time.monotonic() - self._began
        numbers = tuple(self._long_lines)
        self.end = ProgramEnd(process.returncode, errors, seconds, limit, numbers)

    def _signal(self, number: signal.Signals) -> None:
        # It has its own session, and is not waited for yet: the group cannot be another's.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def close(self) -> None:
        """End it, if it still runs."""
        self._finish("no longer needed")


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
