"""Run the command that sends a test mail as a child, and read its output and result."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine

from engine.text.safe import safe_line
from tui.format.present import Run
from tui.session.background_command import BackgroundCommand


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
        said, look = self.outcome
        last = " ".join(self.lines[-1].split()) if self.lines and look != "ok" else ""
        return f"test mail: {said}" + (f": {last}" if last else "")

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
