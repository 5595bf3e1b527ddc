"""The child that takes a lock from its holder: the console runs it, and signals nobody itself."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Mapping, Sequence

from tui.format.present import Run
from tui.session.background_command import Spoken

LEFT_ALONE = 2
"""Its exit code where the lock stays with whoever has it (contract: lock held)."""

ENDS: Mapping[int, tuple[str, str]] = {
    0: ("the lock is free again", "good"),
    LEFT_ALONE: ("the lock was left alone", "warning"),
}
"""What its exit codes mean, and how that looks."""


class RecoveryProcess:
    """One run at a time; a run goes on whatever becomes of the screen, or of the console."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._child = Spoken()
        self.running = False
        self.outcome: Run = ("", "")
        """What came of the last run, and how that looks; "" before it has ended."""

    @property
    def lines(self) -> tuple[str, ...]:
        """What the child of the last run has said so far, safe to show."""
        return self._child.lines

    @property
    def after(self) -> tuple[float, ...]:
        """For each line, how many seconds after the child was started it was noticed."""
        return self._child.after

    @property
    def took(self) -> float:
        """Seconds for which the last run has run so far, or ran."""
        return self._child.took

    def run(self, seen: str, hold: Sequence[str] = ()) -> Coroutine[None, None, str]:
        """Free the lock that was seen, and no other; answers with what came of it, in words.

        `hold` are the ids of tasks in work that are held, so that they do not run again.
        """
        # At once, and not when the loop comes to it: nobody shall see the run before this one.
        self.running, self.outcome = True, ("", "")
        self._child.clear()
        words = (seen, *(word for id in hold for word in ("--hold", id)))
        return self._run(words)

    async def _run(self, words: Sequence[str]) -> str:
        try:
            argv = (*self._command, *words)
            self.outcome = _outcome(await asyncio.to_thread(self._child.run, argv))
        except OSError as error:
            self.outcome = (f"nothing was done, its command did not start: {error}", "bad")
        finally:
            self.running = False
        said, look = self.outcome
        last = self.lines[-1] if self.lines and look != "good" else ""
        return f"unlock: {said}" + (f": {last}" if last else "")

    def leave(self) -> None:
        """The console is closing: do not wait for the child, which goes on."""
        self._child.leave()


def _outcome(code: int) -> Run:
    if code < 0:
        return f"its command was ended by {signal.Signals(-code).name}", "bad"
    return ENDS.get(code, (f"its command ended with {code}", "bad"))
