"""What the rows share: figures, interleaved rounds, processor time, folders, spools."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from engine.model import Task
from engine.operations import plans
from engine.operations.journal import Intent, Journal, Who
from engine.operations.run_plan import run_journaled_plan
from engine.store import Store

if TYPE_CHECKING:
    from tests.bench.terminal import Screen

ROOT = Path(__file__).resolve().parents[2]
SPOOLDECK = str(Path(sys.executable).with_name("spooldeck"))
PYTHON = f"Python {sys.version.split()[0]}"

CLEAN = {
    **{"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LC_ALL": "C.UTF-8", "TZ": "UTC"},
    "NFTBAN_MAIL_METHOD": "none",
}
"""The environment of a command that no setting of this machine reaches."""

KINDS = ("feeds_sync", "geoban_apply", "mail_send")
ERRORS = ("421 4.7.0 try again later", "550 5.1.1 user unknown", "connect_timeout mx7 25")
SHARED_MEMORY, DISK = "/dev/shm", "/var/tmp"
PREPARE_SECONDS = 300.0
BYTES_PER_TASK = 6000
"""Memory that one small file takes on a tmpfs, with its inode and name."""


class Unmeasurable(Exception):
    """A row cannot be measured here; the text is the reason."""


class OverBudget(Exception):
    """A row has used up its time."""


class Figure(NamedTuple):
    """One measured line: ours, and the floor or peer of the same run if there is one."""

    what: str
    ours: float
    unit: str
    limit: float | None = None
    """Maximum of the ratio, or of `ours` if there is no floor; None: for information."""
    floor: float | None = None
    beside: str = ""
    """Name and version of the floor or peer."""
    paired: float | None = None
    """The median of the rounds' ratios; None: the ratio of the two values."""

    @property
    def ratio(self) -> float | None:
        """Ours divided by the floor; None without a floor."""
        if self.floor is None:
            return None
        return self.paired if self.paired is not None else self.ours / (self.floor or 1e-9)

    @property
    def is_met(self) -> bool | None:
        """True if it is within its limit; None without a limit."""
        value = self.ours if self.ratio is None else self.ratio
        return None if self.limit is None else round(value, 2) <= self.limit


Figures: TypeAlias = Iterator[Figure]
T = TypeVar("T")
Ways: TypeAlias = dict[str, Callable[[], float]]


def interleave(variants: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call each way once per round, in turning order, as long as the time of the row suffices."""
    costs: dict[str, list[T]] = {name: [] for name in variants}
    for turn in range(rounds):
        began = time.monotonic()
        for name in list(variants)[:: -1 if turn % 2 else 1]:
            costs[name].append(variants[name]())
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        if left and left < 1.5 * (time.monotonic() - began):
            break
    return costs


def compare(
    what: str,
    unit: str,
    costs: tuple[Sequence[float], Sequence[float]],
    compared_with: str,
    limit: float | None,
) -> Figure:
    """The medians of paired rounds, ours and the floor's, and the median of their ratios."""
    paired = median(a / (b or 1e-9) for a, b in zip(*costs, strict=True))
    ours, floor = map(median, costs)
    return Figure(what, ours, unit, limit, floor=floor, beside=compared_with, paired=paired)


# ---- processor time


class Cost(NamedTuple):
    """Milliseconds of processor time, and by the clock."""

    cpu: float
    wall: float


def cpu_and_wall(argv: Sequence[str], ok: Sequence[int] = (0,), **more: str) -> Cost:
    """The cost of a command and of the children that it waited for.

    Raises:
        Unmeasurable: it ended with another exit code than `ok`."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command(*argv, ok=ok, **more)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(1000 * cpu, 1000 * wall)


def command(*argv: str, ok: Sequence[int] = (0,), **more: str) -> str:
    """Run a command and return its output."""
    null, env = subprocess.DEVNULL, CLEAN | more
    done = subprocess.run(argv, env=env, cwd="/", stdin=null, capture_output=True, check=False)
    if done.returncode not in ok:
        last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-1:]
        raise Unmeasurable(f"{' '.join(argv)[:80]}: exit {done.returncode} {' '.join(last)}")
    return done.stdout.decode(errors="replace")


def cpu_of(argv: Sequence[str], ok: Sequence[int] = (0,), **more: str) -> float:
    """Milliseconds of processor time of a command and of the children that it waited for."""
    return cpu_and_wall(argv, ok, **more).cpu


def measured(work: Callable[[], object], number: float = 1) -> Cost:
    """Milliseconds of this process, all threads, and by the clock, each of so many."""
    gc.collect()
    before, began = time.process_time(), time.perf_counter()
    work()
    wall, cpu = time.perf_counter() - began, time.process_time() - before
    return Cost(1000 * cpu / number, 1000 * wall / number)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Seconds of processor time of this process, all threads, for a call."""
    return measured(work).cpu / 1000


def per_task(costs: Mapping[str, Sequence[float]], number: int) -> dict[str, list[float]]:
    """Microseconds a task, of seconds for so many."""
    return {name: [1e6 * seconds / number for seconds in of] for name, of in costs.items()}


# ---- folders and spools


def memory_folder(number: int) -> str:
    """The parent folder for so many small files: in memory if that has room, else on the disk."""
    if os.path.isdir(SHARED_MEMORY):
        file_system = os.statvfs(SHARED_MEMORY)
        free = file_system.f_bavail * file_system.f_frsize
        with open("/proc/meminfo") as lines:
            usable = next(int(x.split()[1]) << 10 for x in lines if x.startswith("MemAvailable"))
        if min(free, usable) > 2 * number * BYTES_PER_TASK and file_system.f_favail > 1.2 * number:
            return SHARED_MEMORY
    return DISK


@contextmanager
def scratch(files: int = 0) -> Iterator[str]:
    """A new folder for so many files, in memory if it has room; for none, on the disk.

    An ext4 without a journal steps over every inode freed lately, so creates become 40 times dearer
    in a used block group; `chattr +T`, where it can, spreads the folders by their names."""
    parent = memory_folder(files) if files else DISK
    folder = tempfile.mkdtemp(prefix="spooldeck-bench-", dir=parent)
    subprocess.run(["chattr", "+T", folder], capture_output=True, check=False)
    try:
        yield tempfile.mkdtemp(dir=folder)
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def task_text(name: str, kind: str, created: int, due: int, number: int) -> bytes:
    """A task file of the contract, about 270 bytes."""
    error = ERRORS[number % 3] if number % 5 < 2 else ""
    text = (
        f'TASK_ID="{name}"\nTASK_TYPE="{kind}"\n'
        f'TASK_DESCRIPTION="mail to user{number % 5000}@host{number % 200}.example.net"\n'
        f'TASK_CREATED_EPOCH="{created}"\nTASK_RETRIES="{int(bool(error))}"\n'
        f'TASK_NEXT_ATTEMPT_EPOCH="{due}"\nTASK_LAST_ERROR="{error}"\nTASK_PAYLOAD_FILE=""\n'
    )
    return text.encode()


FIRST_CREATED = 1_767_312_000
"""2026-01-02, epoch seconds UTC. Ids begin with the time: with that of a run, the first digit of a
filter matched all tasks at some times of the day."""


def fill_spool(root: str, number: int) -> None:
    """Make a place declared exclusive, with so many pending tasks, none due for a day."""
    command(SPOOLDECK, "init", root, "--exclusive")
    first, due = FIRST_CREATED, int(time.time()) + 86400
    folder = os.open(f"{root}/queue/pending", os.O_RDONLY | os.O_DIRECTORY)
    for n in range(number):
        created = first + n
        if n % 1000 == 0:
            stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(created))
        kind = KINDS[n % 3]
        name = f"{stamp}-{kind}-{n:08x}"
        fd = os.open(f"{name}.task", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o640, dir_fd=folder)
        os.write(fd, task_text(name, kind, created, due + n % 3600, n))
        os.utime(fd, (due, due + n % 3600))
        os.close(fd)
    os.close(folder)


def plan_for(store: Store, tasks: Sequence[Task], verb: str, folder: str) -> Callable[[], None]:
    """Freeze a plan for these tasks; return what carries it out, with its journal in a folder."""
    now = time.time() + 3600
    plan = plans.freeze_plan(verb, tasks, now, edges=store.edges)
    intent = Intent(verb, Who("bench", pid=1))

    def run() -> None:
        report = run_journaled_plan(store, Journal(folder), plan, intent, lambda: now)
        assert len(report.done) == len(tasks), report

    return run


class Bench:
    """The sizes of this run, and the places and consoles that several rows use."""

    def __init__(self, *, quick: bool, rounds: int, budget: float) -> None:
        self.quick, self.rounds, self.budget = quick, rounds, budget
        self._keep = ExitStack()
        self._spools: dict[int, str] = {}
        self.open_consoles: dict[int, Screen] = {}
        """The console that the last row left open, by the size of its place."""

    @property
    def large(self) -> int:
        """Tasks of the large place."""
        return 10_000 if self.quick else 1_000_000

    @property
    def log_size(self) -> tuple[int, str]:
        """Size of a large log, in bytes and in words."""
        return (64 << 20, "64 MiB") if self.quick else (1 << 30, "1 GiB")

    @property
    def sizes(self) -> tuple[int, ...]:
        """Tasks of the places whose costs are compared."""
        return (300, 10_000) if self.quick else (300, 100_000, 1_000_000)

    def versus(
        self,
        what: str,
        unit: str,
        ways: tuple[Callable[[], float], Callable[[], float]],
        compared_with: str,
        limit: float | None,
    ) -> Figure:
        """Interleave ours and the floor, and compare them."""
        costs = interleave(dict(zip(("ours", "floor"), ways, strict=True)), self.rounds)
        return compare(what, unit, (costs["ours"], costs["floor"]), compared_with, limit)

    def close_consoles(self) -> None:
        """End the console that is still open."""
        while self.open_consoles:
            self.open_consoles.popitem()[1].close()

    def spool(self, number: int) -> str:
        """A place with so many tasks, none due; made at its first use."""
        if number not in self._spools:
            with self.outside_budget(PREPARE_SECONDS):
                root = self._keep.enter_context(scratch(number))
                fill_spool(root, number)
            self._spools[number] = root
        return self._spools[number]

    def clear(self) -> None:
        """End the console and remove the places: the row needs the room."""
        with self.outside_budget(PREPARE_SECONDS):
            self.close_consoles()
            self._spools.clear()
            self._keep.close()

    @contextmanager
    def outside_budget(self, seconds: float) -> Iterator[None]:
        """Stop the budget of the row for a preparation, which has its own limit."""
        left = signal.setitimer(signal.ITIMER_REAL, seconds)[0]
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, left)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OverBudget in the block after so many seconds (SIGALRM)."""

    def stop(*_: object) -> None:
        raise OverBudget(f"over its {seconds:.0f} s")

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
