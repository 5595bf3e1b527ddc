"""Run the lock recovery command as a child; the console itself signals no process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence

from tui.session.background_command import BackgroundCommand
from tui.text.lines import Run

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
