"""Child processes in sessions of their own, with their output read from a file; they outlive the
console. `MailTestProcess` sends a test mail by one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence

from engine.text.safe import safe_line, safe_lines
from tui.text.lines import Run

POLL_INTERVAL_SECONDS = 0.05
"""Seconds between two reads of the child's output: its lines get their times by them."""

MAX_OUTPUT_BYTES = 65536
"""Bytes of the child's output that are shown; our commands print about a dozen lines."""


class BackgroundCommand:
    """One child at a time, in a session of its own."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()
        """Output of the last run so far, escaped."""
        self.line_seconds: tuple[float, ...] = ()
        """For each line, the seconds from the child's start until the line was read."""
        self.elapsed_seconds = 0.0
        """Seconds that the last run has taken so far, or took."""
        self._is_detached = False

    def clear(self) -> None:
        """Clear the output of the last run, so that it is not taken for that of the next one."""
        self.lines, self.line_seconds, self.elapsed_seconds = (), (), 0.0

    def detach(self) -> None:
        """Stop waiting for the child; it continues."""
        self._is_detached = True

    def run(self, argv: Sequence[str]) -> int:
        """Run a command until it ends or `leave` is called; return its exit code. Blocks.

        Raises:
            OSError: it cannot be started.
        """
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
                self._keep_output(
                    os.pread(output.fileno(), MAX_OUTPUT_BYTES, 0), time.monotonic() - began
                )
            if child.returncode is None:
                child.returncode = 0  # detached: Popen must not wait for it
            return child.returncode

    def _keep_output(self, output: bytes, after: float) -> None:
        lines = tuple(safe_lines(output))
        self.line_seconds += (after,) * (len(lines) - len(self.line_seconds))
        self.lines, self.elapsed_seconds = lines, after


class MailTestProcess:
    """One test mail at a time; the console itself sends nothing and does not block."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """`command` sends a test mail; transport and address are appended."""
        self._command = command
        self._child = BackgroundCommand()
        self.running = False
        self.transport, self.to = "", ""
        """Transport and address of the last one; "" before the first."""
        self.outcome: Run = ("", "")
        """Result and its style; "" until it has ended."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Output of the last run so far, escaped."""
        return self._child.lines

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the last run has taken so far, or took."""
        return self._child.elapsed_seconds

    def argv(self, transport: str, to: str) -> tuple[str, ...]:
        """The command that sends a test mail to an address via one transport only."""
        return (*self._command, "--transport", transport, to)

    def run(self, transport: str, to: str) -> Coroutine[None, None, str]:
        """Send one; return the result as text."""
        # Set here, not in the coroutine: the screen must not show the run before this one.
        self.running, self.outcome = True, ("", "")
        self.transport, self.to = transport, to
        self._child.clear()
        return self._run()

    async def _run(self) -> str:
        name = safe_line(self.transport)
        try:
            argv = self.argv(self.transport, self.to)
            self.outcome = _describe_exit(name, await asyncio.to_thread(self._child.run, argv))
        except OSError as error:
            self.outcome = (f"nothing sent: the command did not start: {error}", "error")
        finally:
            self.running = False
        outcome_text, style = self.outcome
        last = " ".join(self.lines[-1].split()) if self.lines and style != "ok" else ""
        return f"test mail: {outcome_text}" + (f": {last}" if last else "")

    def detach(self) -> None:
        """Do not wait for the child on quit; it continues."""
        self._child.detach()


def _describe_exit(name: str, code: int) -> Run:
    if code < 0:
        return f"the command was ended by {signal.Signals(-code).name}", "error"
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


LOCK_UNCHANGED_CODE = 2
"""Exit code if the lock stays with its holder (contract: lock held)."""

EXIT_MESSAGES: Mapping[int, tuple[str, str]] = {
    0: ("lock freed", "ok"),
    LOCK_UNCHANGED_CODE: ("lock unchanged", "warn"),
}
"""Message and style of each exit code."""


class RecoveryProcess:
    """One run at a time; a run continues when the screen or the console is closed."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._child = BackgroundCommand()
        self.running = False
        self.outcome: Run = ("", "")
        """Result of the last run and its style; "" until it has ended."""

    @property
    def lines(self) -> tuple[str, ...]:
        """Output of the last run so far, escaped."""
        return self._child.lines

    @property
    def line_seconds(self) -> tuple[float, ...]:
        """For each line, the seconds from the child's start until the line was read."""
        return self._child.line_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Seconds that the last run has taken so far, or took."""
        return self._child.elapsed_seconds

    def run(self, identity: str, hold: Sequence[str] = ()) -> Coroutine[None, None, str]:
        """Free exactly the lock that was seen; return the result as text.

        `hold`: ids of active tasks to hold, so that they do not run again.
        """
        # Set here, not in the coroutine: the screen must not show the run before this one.
        self.running, self.outcome = True, ("", "")
        self._child.clear()
        words = (identity, *(word for id in hold for word in ("--hold", id)))
        return self._run(words)

    async def _run(self, words: Sequence[str]) -> str:
        try:
            argv = (*self._command, *words)
            self.outcome = _exit_message(await asyncio.to_thread(self._child.run, argv))
        except OSError as error:
            self.outcome = (f"nothing done: the command did not start: {error}", "error")
        finally:
            self.running = False
        outcome_text, style = self.outcome
        last = self.lines[-1] if self.lines and style != "ok" else ""
        return f"unlock: {outcome_text}" + (f": {last}" if last else "")

    def detach(self) -> None:
        """Do not wait for the child on quit; it continues."""
        self._child.detach()


def _exit_message(code: int) -> Run:
    if code < 0:
        return f"the command was ended by {signal.Signals(-code).name}", "error"
    return EXIT_MESSAGES.get(code, (f"the command ended with exit code {code}", "error"))
