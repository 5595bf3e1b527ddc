"""The worker as a child of the console: started, watched and stopped, never anybody else's.

A console that is killed leaves it running: it is a worker like any other, with the queue's lock.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from typing import IO

PATIENCE = 5.0
"""Seconds that a worker gets to finish when the console is closed."""


class WorkerProcess:
    """One child process in its own session, or none; its methods may block."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The PID of the child that is running; None when none is."""
        return self._process.pid if self._process is not None else None

    def start(self) -> str:
        """Start it; answers with what happened, in words."""
        # A file and not a pipe: a worker that outlives the console must still be able to write.
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - it stays open while the worker runs
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._said,
                start_new_session=True,
            )
        except OSError as error:
            self._forget()
            return f"the worker did not start: {error}"
        return f"worker started, PID {self._process.pid}; W stops it"

    @property
    def has_ended(self) -> bool:
        """Whether a child that was started is no longer running."""
        return self._process is not None and self._process.poll() is not None

    def farewell(self) -> str:
        """How it ended, in words, once; "" while it runs and when there is none."""
        if self._process is None or not self.has_ended:
            return ""
        pid, code, last = self._process.pid, self._process.returncode, self._last_words()
        self._forget()
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        return f"worker PID {pid} {how}" + (f": {last}" if last else "")

    def stop(self) -> str:
        """Tell it to stop (SIGTERM); answers with what happened, in words."""
        if self._process is None or self._process.poll() is not None:
            return "the worker has ended already"
        self._process.terminate()
        return f"worker PID {self._process.pid} told to stop (SIGTERM); it finishes what it has"

    def finish(self) -> None:
        """Tell it to stop and wait a little: the console is closing."""
        if self._process is not None:
            self.stop()
            try:
                self._process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.leave()
            self._forget()

    def leave(self) -> None:
        """Let it run on without the console."""
        if self._process is not None:
            self._process.returncode = self._process.poll() or 0  # not ours to wait for any more
            self._forget()

    def _last_words(self) -> str:
        if self._said is None:
            return ""
        size = self._said.seek(0, 2)
        self._said.seek(max(0, size - 2048))
        lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _forget(self) -> None:
        if self._said is not None:
            self._said.close()
        self._process = self._said = None
