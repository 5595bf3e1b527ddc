"""Child processes in sessions of their own, with their output read from a file; they outlive the
console. They send a test mail, free a lock, or are a worker, a normal one with the queue's lock."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import IO

from engine.store import Unavailable
from engine.text.safe import safe_line, safe_lines
from tui.text.lines import Run

POLL_INTERVAL_SECONDS = 0.05
"""Seconds between two reads of the child's output: its lines get their times by them."""

MAX_OUTPUT_BYTES = 65536
"""Bytes of the child's output that are shown; our commands print about a dozen lines."""


class BackgroundCommand:
    """Runs one child at a time, in a session of its own."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self.running = False
        self.outcome: Run = ("", "")
        """Result of the last run and its style; "" until it has ended."""
        self.lines: tuple[str, ...] = ()
        """Output of the last run so far, escaped."""
        self.line_seconds: tuple[float, ...] = ()
        """For each line, the seconds from the child's start until the line was read."""
        self.elapsed_seconds = 0.0
        """Seconds that the last run has taken so far, or took."""
        self._is_detached = False

    def detach(self) -> None:
        """Do not wait for the child on quit; it continues."""
        self._is_detached = True

    def _begin(self) -> None:
        """Forget the last run now: the screen must not show it while the next one begins."""
        self.running, self.outcome = True, ("", "")
        self.lines, self.line_seconds, self.elapsed_seconds = (), (), 0.0

    async def _finish(self, argv: Sequence[str], undone: str) -> str:
        """Run a command until its end; return its outcome and, of a failure, its last line."""
        try:
            self.outcome = self._describe_exit(await asyncio.to_thread(self._run, argv))
        except OSError as error:
            self.outcome = (f"nothing {undone}: the command did not start: {error}", "error")
        finally:
            self.running = False
        text, style = self.outcome
        last = self.lines[-1] if self.lines and style != "ok" else ""
        return text + (f": {last}" if last else "")

    def _run(self, argv: Sequence[str]) -> int:
        """Run a command until it ends or `detach` is called; return its exit code. Blocks. Raises
        OSError: it cannot be started."""
        # A file, not a pipe: a child that outlives the console must still be able to write.
        began = time.monotonic()
        with tempfile.TemporaryFile() as output:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while child.returncode is None and not self._is_detached:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(POLL_INTERVAL_SECONDS)
                self.elapsed_seconds = time.monotonic() - began
                lines = tuple(safe_lines(os.pread(output.fileno(), MAX_OUTPUT_BYTES, 0)))
                self.line_seconds += (self.elapsed_seconds,) * (len(lines) - len(self.line_seconds))
                self.lines = lines
            if child.returncode is None:
                child.returncode = 0  # detached: Popen must not wait for it
            return child.returncode

    def _describe_exit(self, code: int) -> Run:
        if code < 0:
            return f"the command was ended by {signal.Signals(-code).name}", "error"
        return self._describe_code(code)

    def _describe_code(self, code: int) -> Run:
        raise NotImplementedError


class MailTestProcess(BackgroundCommand):
    """Sends a test mail by a command; the console itself sends nothing."""

    transport = to = ""
    """Transport and address of the last one; "" before the first."""

    def argv(self, transport: str, to: str) -> tuple[str, ...]:
        """The command that sends a test mail to an address via one transport only."""
        return (*self.command, "--transport", transport, to)

    def run(self, transport: str, to: str) -> Coroutine[None, None, str]:
        """Send one; return the result as text."""
        self._begin()
        self.transport, self.to = transport, to
        return self._send()

    async def _send(self) -> str:
        result = await self._finish(self.argv(self.transport, self.to), "sent")
        return " ".join(f"test mail: {result}".split())

    def _describe_code(self, code: int) -> Run:
        name = safe_line(self.transport)
        if code:
            return f"not sent by {name}: the command ended with exit code {code}", "error"
        return f"accepted by {name}; delivery not confirmed", "ok"


def address_error(text: str) -> str:
    """What is wrong with an address, "" if nothing; a quick check, the command checks again."""
    if not text.strip():
        return "expected the recipient's address"
    if text.startswith("-") or not text.isprintable() or " " in text or "@" not in text:
        return "expected one address, such as admin@example.com"
    return ""


EXIT_MESSAGES: Mapping[int, Run] = {0: ("lock freed", "ok"), 2: ("lock unchanged", "warn")}
"""Message and style of each exit code of the recovery command; 2: it stays with its holder."""


class RecoveryProcess(BackgroundCommand):
    """Runs the lock recovery command; the console itself signals no process."""

    def run(self, identity: str, hold: Sequence[str] = ()) -> Coroutine[None, None, str]:
        """Free exactly the lock that was seen, and hold these tasks; return the result as text."""
        self._begin()
        return self._free((identity, *(word for id in hold for word in ("--hold", id))))

    async def _free(self, words: Sequence[str]) -> str:
        return f"unlock: {await self._finish((*self.command, *words), 'done')}"

    def _describe_code(self, code: int) -> Run:
        return EXIT_MESSAGES.get(code, (f"the command ended with exit code {code}", "error"))


STOP_TIMEOUT_SECONDS = 5.0


class WorkerProcess:
    """One child process in its own session, or none; methods may block."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self.command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr_file: IO[bytes] | None = None
        # One thread starts and stops it, another looks whether it has ended.
        self._lock = threading.Lock()
        self._closed = False
        self.last_end = ""
        """How the last child ended, in full; "" if none has."""

    @property
    def pid(self) -> int | None:
        """PID of the running child; None if none runs."""
        process = self._process
        return None if process is None else process.pid

    def start(self) -> str:
        """Start the child; return a message. Raises Unavailable: it did not start, one is running,
        or the console is closing."""
        with self._lock:
            if self._closed:
                raise Unavailable("the console is closing")
            if self._process is not None and not self.has_ended:
                raise Unavailable(f"a worker started here is running, PID {self._process.pid}")
            return self._start()

    def _start(self) -> str:
        # A file, not a pipe: a worker that outlives the console must still be able to write.
        self._stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - it stays open while the worker runs
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr_file,
                start_new_session=True,
            )
        except OSError as error:
            self._release()
            raise Unavailable(f"the worker did not start: {error}") from error
        return f"worker started, PID {self._process.pid}; W stops it"

    @property
    def has_ended(self) -> bool:
        """True if the child has ended."""
        process = self._process
        return process is not None and process.poll() is not None

    def describe_end(self) -> str:
        """How the child ended, as text, once; "" while it runs and if none."""
        if not self._lock.acquire(blocking=False):
            return ""  # it is being started or released: asked again in a second
        try:
            process = self._process
            if process is None or process.poll() is None:
                return ""
            pid, code, last = process.pid, process.returncode, self._last_line()
            self._release()
        finally:
            self._lock.release()
        how = f"ended with exit code {code}"
        if code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        self.last_end = f"worker PID {pid} {how}" + (f": {last}" if last else "")
        return self.last_end

    def stop(self) -> str:
        """Send SIGTERM; return a message."""
        process = self._process
        if process is None or process.poll() is not None:
            return "the worker has already ended"
        process.terminate()
        return f"worker PID {process.pid} got SIGTERM; it finishes its current task"

    def stop_and_wait(self) -> None:
        """Send SIGTERM and wait at most `STOP_TIMEOUT_SECONDS`; the console is closing."""
        with self._lock:
            self._closed, process = True, self._process
        if process is None:
            return
        self.stop()
        try:
            process.wait(STOP_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            self.detach()
        with self._lock:
            self._release()

    def detach(self) -> None:
        """Detach; the worker continues without the console."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.returncode = self._process.poll() or 0  # detached: do not wait
                self._release()

    def _last_line(self) -> str:
        if self._stderr_file is None:
            return ""
        size = self._stderr_file.seek(0, 2)
        self._stderr_file.seek(max(0, size - 2048))
        lines = self._stderr_file.read().decode("utf-8", "replace").strip().splitlines()
        last = lines[-1].removeprefix("spooldeck: ") if lines else ""
        path, _, reason = last.partition(": ")
        return f"{reason}: {path}" if path.startswith("/") and reason else last

    def _release(self) -> None:
        if self._stderr_file is not None:
            self._stderr_file.close()
        self._process = self._stderr_file = None
