"""The cost of the console: the real program on a pseudo terminal, measured from outside.

Bytes are exact. Processor time is that of all its threads, as the kernel counts it, in
milliseconds; the machine's speed is in it, so floors are measured beside it. Wall-clock times mean
something only where nothing else runs: the load is printed with them.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from engine.model import State
from tests.tui.spools import a_task, make_spool, put_file

ROOT = Path(__file__).resolve().parents[2]

SIZE = (80, 24)
QUIET = 0.06
"""Seconds without a byte after which a key has been answered."""
PATIENCE = 60.0
PLACES, TASKS = 4, 300
"""Queues on the overview, and tasks waiting in each."""

EMPTY = (
    "from textual.app import App; from textual.widgets import Static\n"
    "class Empty(App):\n"
    "    ENABLE_COMMAND_PALETTE = False\n"
    "    def compose(self): yield Static('all is well ' * 40)\n"
    "Empty().run(mouse=False)"
)
"""A program of the terminal library that does nothing but paint once: no console is cheaper."""

_ESCAPES = re.compile(rb"\x1b\[[0-9;?>]*[ -/]*[@-~]")


class Frame(NamedTuple):
    """When something was on screen: wall-clock ms, CPU ms, and bytes written until then."""

    wall: float
    cpu: float
    size: int


class Screen:
    """A program on a pseudo terminal."""

    def __init__(self, argv: list[str], size: tuple[int, int] = SIZE) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("NFTBAN_", "PYTHON"))}
        told = {**clean, "TERM": "xterm-256color", "LANG": "C.UTF-8", "COLORTERM": "truecolor"}
        told.pop("LC_ALL", None)
        self._began = time.perf_counter()
        self.pid, self._fd = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.chdir(ROOT)
            os.execve(argv[0], argv, told)
        self.said = bytearray()

    def read(self, seconds: float) -> bool:
        """Take in what comes within so many seconds; whether anything did."""
        if not select.select([self._fd], [], [], max(0.0, seconds))[0]:
            return False
        self.said += os.read(self._fd, 1 << 16)
        return True

    def until(self, wanted: str) -> Frame:
        """Read until it has written this."""
        pattern, deadline = re.compile(wanted.encode()), time.perf_counter() + PATIENCE
        while not pattern.search(_ESCAPES.sub(b"", bytes(self.said))):
            assert time.perf_counter() < deadline, bytes(self.said[-2000:])
            self.read(0.2)
        wall = (time.perf_counter() - self._began) * 1000
        return Frame(wall, self.cpu(), len(self.said))

    def settle(self, seconds: float = 1.5) -> None:
        """Let it come to rest: nothing for so long, or nothing but what it does each second."""
        deadline = time.perf_counter() + 2 * seconds
        while self.read(seconds) and time.perf_counter() < deadline:
            pass

    def cpu(self) -> float:
        """Milliseconds on a processor so far, of all threads that live."""
        spent = 0
        for thread in Path(f"/proc/{self.pid}/task").iterdir():
            try:
                spent += int((thread / "schedstat").read_text().split()[0])
            except FileNotFoundError:
                continue  # ended just now
        return spent / 1e6

    def key(self, key: bytes) -> tuple[float, int]:
        """Press a key: CPU ms and bytes of its answer."""
        self.read(0)
        cpu, size = self.cpu(), len(self.said)
        os.write(self._fd, key)
        while self.read(QUIET):
            pass
        return self.cpu() - cpu, len(self.said) - size

    def rest(self, seconds: float, act: Callable[[], object] = lambda: None) -> tuple[float, float]:
        """Bytes a second, and percent of a processor, while `act` is done once a second."""
        cpu, size, began = self.cpu(), len(self.said), time.perf_counter()
        for turn in range(round(seconds)):
            act()
            while (rest := began + turn + 1 - time.perf_counter()) > 0:
                self.read(rest)
        took = time.perf_counter() - began
        return (len(self.said) - size) / took, (self.cpu() - cpu) / took / 10

    def close(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGTERM)
        deadline = time.perf_counter() + PATIENCE
        while os.waitpid(self.pid, os.WNOHANG) == (0, 0):
            assert time.perf_counter() < deadline
            try:
                self.read(0.05)
            except OSError:
                time.sleep(0.01)  # it has closed the terminal, and is about to end
        os.close(self._fd)


@contextmanager
def running(argv: Sequence[str], size: tuple[int, int] = SIZE) -> Iterator[Screen]:
    """A Python program on a pseudo terminal."""
    screen = Screen([sys.executable, *argv], size)
    try:
        yield screen
    finally:
        screen.close()


def showing(*words: str) -> AbstractContextManager[Screen]:
    """The console with these words on its command line, on the screen that they open."""
    return running(["-P", "-m", "tui.cli", *words])


@contextmanager
def empty_app() -> Iterator[Screen]:
    """The empty program, once it has painted."""
    with running(["-c", EMPTY]) as empty:
        empty.until("all is well")
        yield empty


class Place:
    """A spool in which tasks go their way."""

    def __init__(self, root: Path) -> None:
        make_spool(root, [a_task(n) for n in range(TASKS)])
        self.root = root
        self._queue = root / "queue"
        self._number = TASKS

    def turn(self) -> None:
        """One comes, one is taken, one that was taken dies, one dead is retried."""
        self._number += 1
        put_file(self.root, a_task(self._number, State.PENDING))
        for source, goal in (("dlq", "pending"), ("work", "dlq"), ("pending", "work")):
            first = min((self._queue / source).iterdir(), default=None)
            if first:
                first.rename(self._queue / goal / first.name)


def start(place: str, rounds: int) -> None:
    """What it takes until something is on screen, beside what can be had for no less."""
    floors = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "import textual.app": [sys.executable, "-c", "import textual.app"],
    }
    spent: dict[str, list[float]] = {name: [] for name in floors}
    seen: dict[str, list[Frame]] = {"empty app": [], "opening": [], "overview": [], "queue": []}
    # Only cells that change are sent: the count comes without the name before it.
    wanted = {"overview": rf"\D{TASKS}\D", "queue": "row 1 of"}
    for _ in range(rounds):
        for name, argv in floors.items():
            began = time.perf_counter()
            subprocess.run(argv, check=True, cwd=ROOT)
            spent[name].append((time.perf_counter() - began) * 1000)
        with running(["-c", EMPTY]) as empty:
            seen["empty app"].append(empty.until("all is well"))
        for screen, text in wanted.items():
            with showing("--open", screen, place) as console:
                if screen == "overview":
                    seen["opening"].append(console.until(r"opening 1 place \.\.\."))
                seen[screen].append(console.until(text))
    floor = median(frame.cpu for frame in seen["empty app"])
    for name, walls in spent.items():
        print(f"start  {name:20} {median(walls):6.0f} ms")
    for name, frames in seen.items():
        wall, cpu, size = (median(values) for values in zip(*frames, strict=True))
        print(
            f"start  {name:20} {wall:6.0f} ms, CPU {cpu:4.0f} ms (x{cpu / floor:.2f} of the empty"
            f" app), {size:,.0f} bytes; load {os.getloadavg()[0]:.1f}"
        )


def keys(place: str) -> None:
    """Print the cost of a key in the list, beside one that the library throws away."""
    with empty_app() as empty:
        empty.settle()
        cpu = median(empty.key(b"z")[0] for _ in range(15))
    print(f"key    {'unused, empty app':20} CPU {cpu:5.2f} ms")
    with showing("--open", "queue", place) as console:
        console.until("row 1 of")
        console.settle()
        keys = ("cursor", b"j", 15), ("page", b"\x1b[6~", 8), ("unused", b"\x1b[24~", 8)
        for name, key, times in keys:
            answers = [console.key(key) for _ in range(times)]
            cpu, size = (median(values) for values in zip(*answers, strict=True))
            print(f"key    {name:20} CPU {cpu:5.2f} ms, {size:6,.0f} bytes")


def steady(places: Sequence[Place], seconds: float) -> None:
    """What goes to the terminal while nobody touches a key."""

    def churn() -> None:
        for place in places:
            place.turn()

    roots = [str(place.root) for place in places]
    ready = {"overview": f"{places[0].root.name} +[0-9]", "queue": "row 1 of"}
    nothing = ("idle, one queue", 1, lambda: None), ("idle", len(roots), lambda: None)
    for name, count, act in (*nothing, ("changes in each queue", len(roots), churn)):
        for screen, wanted in ready.items():
            with showing("--open", screen, *roots[:count]) as console:
                console.until(wanted)
                console.settle()
                size, cpu = console.rest(seconds, act)
            print(f"rest   {screen:8} {name:24} {size:6,.0f} B/s, {cpu:.2f} % CPU")
    with empty_app() as empty:
        empty.settle()
        size, cpu = empty.rest(seconds)
    print(f"rest   {'empty app':33} {size:6,.0f} B/s, {cpu:.2f} % CPU")


def measure(rounds: int, seconds: float) -> None:
    """Print every line; `seconds` is how long each rest is watched."""
    load = os.getloadavg()[0]
    print(f"console at {SIZE[0]}x{SIZE[1]}: {PLACES} queues of {TASKS} tasks; load {load:.1f}")
    with tempfile.TemporaryDirectory(prefix="spooldeck-bench-") as folder:
        places = [Place(Path(folder, f"queue{n}")) for n in range(PLACES)]
        start(str(places[0].root), rounds)
        keys(str(places[0].root))
        steady(places, seconds)
