"""A child process in its own session, with its output read from a file; it outlives the console."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Sequence

from engine.text.safe import safe_lines

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
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            while child.returncode is None and not self._is_detached:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(POLL_INTERVAL_SECONDS)
                self._keep_output(
                    os.pread(said.fileno(), MAX_OUTPUT_BYTES, 0), time.monotonic() - began
                )
            if child.returncode is None:
                child.returncode = 0  # detached: Popen must not wait for it
            return child.returncode

    def _keep_output(self, said: bytes, after: float) -> None:
        lines = tuple(safe_lines(said))
        self.line_seconds += (after,) * (len(lines) - len(self.line_seconds))
        self.lines, self.elapsed_seconds = lines, after
