"""Start, watch and stop a worker as a child of the console, never a worker of another process.

If the console is killed, the worker continues: it is a normal worker with the queue's lock.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
import threading
from typing import IO

from engine.store import Unavailable

STOP_TIMEOUT_SECONDS = 5.0


class WorkerProcess:
    """One child process in its own session, or none; methods may block."""

    def __init__(self, command: tuple[str, ...]) -> None:
        self._command = command
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
        """Start the child; return a message.

        Raises:
            Unavailable: it did not start, one is running, or the console is closing.
        """
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
                self._command,
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
        how = (
            f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"ended with exit code {code}"
        )
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
        return lines[-1] if lines else ""

    def _release(self) -> None:
        if self._stderr_file is not None:
            self._stderr_file.close()
        self._process = self._stderr_file = None
