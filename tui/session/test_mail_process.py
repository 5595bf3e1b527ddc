"""A test mail: the child that sends it, what it says, and how it ended."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine

from engine.text.safe import shown
from tui.format.present import Run
from tui.session.background_command import Spoken


class Trial:
    """One test mail at a time; the console sends nothing itself, and waits for nothing."""

    def __init__(self, command: tuple[str, ...]) -> None:
        """`command` sends a test mail, without the transport and the address."""
        self._command = command
        self._child = Spoken()
        self.running = False
        self.transport, self.to = "", ""
        """By which way the last one went, and to whom; "" before there was one."""
        self.outcome: Run = ("", "")
        """What came of it, and how that looks; "" before it has ended."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What the child of the last run has said so far, safe to show."""
        return self._child.lines

    @property
    def took(self) -> float:
        """Seconds for which the last run has run so far, or ran."""
        return self._child.took

    def argv(self, transport: str, to: str) -> tuple[str, ...]:
        """The command that sends a test mail to an address by one transport and no other."""
        return (*self._command, "--transport", transport, to)

    def run(self, transport: str, to: str) -> Coroutine[None, None, str]:
        """Send one; answers with what came of it, in words."""
        # At once, and not when the loop comes to it: nobody shall see the run before this one.
        self.running, self.outcome = True, ("", "")
        self.transport, self.to = transport, to
        self._child.clear()
        return self._run()

    async def _run(self) -> str:
        name = shown(self.transport)
        try:
            argv = self.argv(self.transport, self.to)
            self.outcome = _outcome(name, await asyncio.to_thread(self._child.run, argv))
        except OSError as error:
            self.outcome = (f"nothing was sent, its command did not start: {error}", "bad")
        finally:
            self.running = False
        said, look = self.outcome
        last = " ".join(self.lines[-1].split()) if self.lines and look != "good" else ""
        return f"test mail: {said}" + (f": {last}" if last else "")

    def leave(self) -> None:
        """The console is closing: do not wait for the child, which goes on."""
        self._child.leave()


def _outcome(name: str, code: int) -> Run:
    if code < 0:
        return f"its command was ended by {signal.Signals(-code).name}", "bad"
    if code:
        return f"not sent by {name}: its command ended with {code}", "bad"
    return f"{name} has taken it; whether it arrives is for its reader to say", "good"


def wrong_address(text: str) -> str:
    """What is wrong with an address at first sight; "" when nothing is: the command looks again."""
    if not text.strip():
        return "an address: to whom the test mail goes"
    if text.startswith("-") or not text.isprintable() or " " in text or "@" not in text:
        return "expected one address, such as admin@example.com"
    return ""
