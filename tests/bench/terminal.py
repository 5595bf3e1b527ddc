"""A program on a pseudo terminal: keys in, text out, its processor time and memory from outside."""

from __future__ import annotations

import fcntl
import math
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests import pseudo_terminals
from tests.bench.measure import CLEAN, ROOT, SPOOLDECK

SIZE = (120, 40)
QUIET_SECONDS, CALM_MS = 0.04, 0.3
"""Without output, and with less processor time than this in so long, a key has been answered."""
IDLE_SECONDS, IDLE_MS = 0.5, 15.0
"""A program that uses less processor time than this in so long only repaints its clock."""
REST_SECONDS = 2
END_SECONDS = 30.0

EMPTY_APP = (
    "from textual.app import App; from textual.widgets import Static\n"
    "class Empty(App):\n"
    "    ENABLE_COMMAND_PALETTE = False\n"
    "    def compose(self): yield Static('all is well ' * 40)\n"
    "Empty().run(mouse=False)"
)
"""A program of the terminal library that only paints once."""

_ESCAPES = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]")


class Spent(NamedTuple):
    """Processor time in milliseconds: of all threads, and of the main one, which paints."""

    all: float
    main: float

    def since(self, earlier: Spent) -> Spent:
        """The difference."""
        return Spent(self.all - earlier.all, self.main - earlier.main)

    @property
    def others(self) -> float:
        """Of the threads that do not paint."""
        return self.all - self.main


class Screen:
    """A running program, its output so far, and the position up to which it was searched."""

    def __init__(self, argv: Sequence[str]) -> None:
        environ = {**CLEAN, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self.pid, self._fd = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", SIZE[1], SIZE[0], 0, 0))
            os.chdir(ROOT)
            os.execve(argv[0], list(argv), environ)
        self._output = bytearray()
        self._screen, self._fed = pseudo_terminals.Screen(*SIZE), 0
        self.rest_mib = 0.0
        self.rest_ms: Spent | None = None
        """Memory, and processor time a second, once it was idle for the first time."""

    def read(self, seconds: float) -> bool:
        """Take in the output of so many seconds, at most until the first; whether there was any."""
        if not select.select([self._fd], [], [], max(0.0, seconds))[0]:
            return False
        self._output += os.read(self._fd, 1 << 16)
        return True

    @property
    def mark(self) -> int:
        """The length of its output."""
        return len(self._output)

    def text(self, since: int = 0) -> str:
        """Its output without escape sequences."""
        return _ESCAPES.sub(b"", bytes(self._output[since:])).decode(errors="replace")

    def find(self, pattern: str) -> str:
        """The first match on the screen as it is now; "" if there is none."""
        self._screen.feed_bytes(bytes(self._output[self._fed :]))
        self._fed = len(self._output)
        match = re.search(pattern, self._screen.text)
        return match[0] if match else ""

    def until_other(self, pattern: str, before: str, seconds: float) -> Spent:
        """Wait for another first match than before; return the processor time until then."""
        deadline = time.perf_counter() + seconds
        while self.find(pattern) in (before, ""):
            assert time.perf_counter() < deadline, f"still {before!r} after {seconds:g} s"
            self.read(min(0.2, seconds))
        return self.spent()

    def until(self, pattern: str, since: int = 0, seconds: float = 600.0) -> Spent:
        """Wait for a text after a mark; return the processor time until it came."""
        expected, deadline = re.compile(pattern), time.perf_counter() + seconds
        while not expected.search(self.text(since)):
            screen_text = " ".join(self.text(max(since, self.mark - 600)).split())[-100:]
            assert time.perf_counter() < deadline, f"no {pattern!r} in {seconds:g} s: {screen_text}"
            self.read(min(0.2, seconds))
        return self.spent()

    def spent(self) -> Spent:
        """Processor time so far, also of threads that have ended."""
        process_clock = (~self.pid << 3) | 2  # the kernel's number of another process's clock
        main = Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0]
        return Spent(time.clock_gettime(process_clock) * 1000, int(main) / 1e6)

    def memory(self) -> float:
        """Resident memory in MiB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def send(self, keys: str) -> None:
        """Press keys."""
        os.write(self._fd, keys.encode())

    def key(self, key: str) -> Spent:
        """Press a key and return what its answer cost."""
        self.read(0)
        before, size, calm = self.spent(), self.mark, 0
        self.send(key)
        last = before
        while calm < (1 if self.mark > size else 5):
            is_quiet, end = True, time.perf_counter() + QUIET_SECONDS
            while (left := end - time.perf_counter()) > 0:
                is_quiet = not self.read(left) and is_quiet
            now = self.spent()
            calm = calm + 1 if is_quiet and now.all - last.all < CALM_MS else 0
            last = now
        return last.since(before)

    def idle(self, most_ms: float = IDLE_MS, seconds: float = math.inf) -> None:
        """Wait until it is idle; the first time, measure its memory and the cost of its clock."""
        before, deadline = self.spent(), time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            self.watch(IDLE_SECONDS)
            now = self.spent()
            if now.since(before).all < most_ms:
                break
            before = now
        if self.rest_ms is None:
            self.rest_mib = self.memory()
            before = self.spent()
            self.watch(REST_SECONDS)
            spent = self.spent().since(before)
            self.rest_ms = Spent(spent.all / REST_SECONDS, spent.main / REST_SECONDS)

    def work(self, keys: str) -> Spent:
        """Press keys, wait until it is idle, and return what that cost without its clock."""
        before, began = self.spent(), time.perf_counter()
        self.send(keys)
        self.idle()
        seconds = math.ceil(time.perf_counter() - began)
        self.watch(began + seconds - time.perf_counter())
        spent, rest = self.spent().since(before), self.rest_ms or Spent(0.0, 0.0)
        return Spent(*(max(0.0, spent[n] - seconds * rest[n]) for n in range(2)))

    def watch(self, seconds: float) -> float:
        """Percent of a processor for so many seconds."""
        before, began = self.spent(), time.perf_counter()
        while (left := began + seconds - time.perf_counter()) > 0:
            self.read(left)
        return self.spent().since(before).all / (time.perf_counter() - began) / 10

    def close(self) -> None:
        """End it: SIGTERM, after a while SIGKILL."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.perf_counter() + END_SECONDS
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            if time.perf_counter() > deadline:
                os.kill(self.pid, signal.SIGKILL)
            with suppress(OSError):  # it has closed the terminal, and ends
                self.read(0.02)
            time.sleep(0.005)
        os.close(self._fd)


@contextmanager
def running(argv: Sequence[str]) -> Iterator[Screen]:
    """A program on a pseudo terminal, ended with the block."""
    screen = Screen(argv)
    try:
        yield screen
    finally:
        screen.close()


def event_waits(
    screen: Screen, change: Callable[[str], float], turns: int, limit: float
) -> tuple[float, int]:
    """Change a text so often; return the median of milliseconds, and how many were not shown."""
    waits, missed = [], 0
    for turn in range(turns):
        mark, word = screen.mark, chr(ord("a") + turn) * 9
        began = change(word)
        try:
            screen.until(word, mark, limit)
            waits.append(1000 * (time.perf_counter() - began))
        except AssertionError:
            missed += 1
        screen.watch(0.2)
    return median(waits or [1e3 * limit]), missed


def console(*words: str) -> list[str]:
    """The command that opens the console."""
    return [SPOOLDECK, *words]


def empty_app() -> list[str]:
    """The command of the empty program."""
    return [sys.executable, "-c", EMPTY_APP]
