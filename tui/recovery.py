"""The child that takes a lock from its holder: the console runs it, and signals nobody itself."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Mapping, Sequence

from engine.text import shown_lines
from tui.present import Run

LOOK = 0.2
"""Seconds between two looks at what the child has said."""

MOST = 65536
"""Bytes of the child's words that are shown; it says a dozen lines."""

LEFT_ALONE = 2
"""Its exit code where the lock stays with whoever has it (contract: lock held)."""

ENDS: Mapping[int, tuple[str, str]] = {
    0: ("the lock is free again", "good"),
    LEFT_ALONE: ("the lock was left alone", "warning"),
}
"""What its exit codes mean, and how that looks."""


class Recovery:
    """One run at a time; a run goes on whatever becomes of the screen, or of the console."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._left = False
        self.running = False
        self.lines: tuple[str, ...] = ()
        """What the child of the last run has said so far, safe to show."""
        self.after: tuple[float, ...] = ()
        """For each line, how many seconds after the child was started it was noticed."""
        self.took = 0.0
        """Seconds for which the last run has run so far, or ran."""
        self.outcome: Run = ("", "")
        """What came of the last run, and how that looks; "" before it has ended."""

    def run(self, seen: str, hold: Sequence[str] = ()) -> Coroutine[None, None, str]:
        """Free the lock that was seen, and no other; answers with what came of it, in words.

        `hold` are the ids of tasks in work that are held, so that they do not run again.
        """
        # At once, and not when the loop comes to it: nobody shall see the run before this one.
        self.running, self.lines, self.outcome = True, (), ("", "")
        self.after, self.took = (), 0.0
        words = (seen, *(word for id in hold for word in ("--hold", id)))
        return self._run(words)

    async def _run(self, words: Sequence[str]) -> str:
        try:
            self.outcome = _outcome(await asyncio.to_thread(self._free, words))
        except OSError as error:
            self.outcome = (f"nothing was done, its command did not start: {error}", "bad")
        finally:
            self.running = False
        said, look = self.outcome
        last = self.lines[-1] if self.lines and look != "good" else ""
        return f"unlock: {said}" + (f": {last}" if last else "")

    def leave(self) -> None:
        """The console is closing: do not wait for the child, which goes on."""
        self._left = True

    def _free(self, words: Sequence[str]) -> int:
        # A file and not a pipe: a child that outlives the console must still be able to write.
        began = time.monotonic()
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                (*self._command, *words),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while child.returncode is None and not self._left:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(LOOK)
                self._note(os.pread(said.fileno(), MOST, 0), time.monotonic() - began)
            if child.returncode is None:
                child.returncode = 0  # not ours to wait for any more
            return child.returncode

    def _note(self, said: bytes, after: float) -> None:
        lines = tuple(shown_lines(said))
        self.after += (after,) * (len(lines) - len(self.after))
        self.lines, self.took = lines, after


def _outcome(code: int) -> Run:
    if code < 0:
        return f"its command was ended by {signal.Signals(-code).name}", "bad"
    return ENDS.get(code, (f"its command ended with {code}", "bad"))
