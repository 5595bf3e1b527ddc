"""A command that runs beside the console, and what it says meanwhile; it outlives the console."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence

from engine.text.safe import shown_lines

LOOK = 0.2
"""Seconds between two looks at what the child has said."""

MOST = 65536
"""Bytes of the child's words that are shown; those we start say a dozen lines."""


class Spoken:
    """One run at a time, in a session of its own."""

    def __init__(self) -> None:
        self.lines: tuple[str, ...] = ()
        """What the child of the last run has said so far, safe to show."""
        self.after: tuple[float, ...] = ()
        """For each line, how many seconds after the child was started it was noticed."""
        self.took = 0.0
        """Seconds for which the last run has run so far, or ran."""
        self._left = False

    def clear(self) -> None:
        """Forget what the last run said: nobody shall take it for what the next one says."""
        self.lines, self.after, self.took = (), (), 0.0

    def leave(self) -> None:
        """Wait for no child any more: it goes on without us."""
        self._left = True

    def run(self, argv: Sequence[str]) -> int:
        """Run a command until it ends, or is left; answers with its exit code. Blocks.

        Raises:
            OSError: it cannot be started.
        """
        # A file and not a pipe: a child that outlives the console must still be able to write.
        began = time.monotonic()
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                argv,
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
