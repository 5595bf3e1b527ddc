"""`make bench`: the cost of engine and console, beside a bare floor measured in the same run.

Ratios are what to read: the machine's speed cancels out of them. Rounds are interleaved, medians
are printed. Times are microseconds a task unless they say otherwise.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TypeAlias

from engine import verbs
from engine.model import Move
from engine.stores.nftban import NftbanStore, SpoolFolders, make_spool

ROUNDS = 5
Cycle: TypeAlias = Callable[[str, int], tuple[float, float]]
"""A folder and a number of tasks -> seconds to add them, seconds to take and finish them."""

FORM = (
    'TASK_ID="{id}"\nTASK_TYPE="feeds_sync"\nTASK_DESCRIPTION="Feed enabled: spamhaus"\n'
    'TASK_CREATED_EPOCH="1795239223"\nTASK_RETRIES="0"\nTASK_NEXT_ATTEMPT_EPOCH="0"\n'
    'TASK_LAST_ERROR=""\nTASK_PAYLOAD_FILE=""\n'
)


@contextmanager
def scratch() -> Iterator[str]:
    """A folder of its own in another part of the disk than the one before, where chattr can."""
    folder = tempfile.mkdtemp(prefix="spooldeck-bench-", dir="/var/tmp")
    # An ext4 without a journal steps over every inode freed lately; +T spreads the folders.
    subprocess.run(["chattr", "+T", folder], capture_output=True, check=False)
    inside = f"{folder}/here"
    os.mkdir(inside)
    try:
        yield inside
    finally:
        shutil.rmtree(folder)


# ---- the floor: nothing but the system calls


def floor(
    folder: str, number: int, *, durable: bool = False, batch: int = 1
) -> tuple[float, float]:
    """open, write, close, rename | rename, open, read, close, unlink: nine calls a task."""
    fds = {}
    for name in ("tmp", "pending", "work"):
        os.mkdir(f"{folder}/{name}")
        fds[name] = os.open(f"{folder}/{name}", os.O_RDONLY | os.O_DIRECTORY)
    tmp, pending, work = fds["tmp"], fds["pending"], fds["work"]
    names = [f"20261121T053343Z-feeds_sync-{n:08x}.task" for n in range(number)]
    data = FORM.format(id=names[0][:-5]).encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    began = time.perf_counter()
    for start in range(0, number, batch):
        group = names[start : start + batch]
        opened = []
        for name in group:
            fd = os.open(name, flags, 0o640, dir_fd=tmp)
            os.write(fd, data)
            opened.append(fd)
        if durable and batch > 1:
            for fd in opened:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        for name, fd in zip(group, opened, strict=True):
            if durable:
                os.fsync(fd)
            os.close(fd)
            os.rename(name, name, src_dir_fd=tmp, dst_dir_fd=pending)
        if durable:
            os.fsync(pending)
    added = time.perf_counter()
    for name in sorted(os.listdir(pending)):
        os.rename(name, name, src_dir_fd=pending, dst_dir_fd=work)
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=work)
        os.read(fd, 65537)
        os.close(fd)
        os.unlink(name, dir_fd=work)
    done = time.perf_counter()
    for fd in fds.values():
        os.close(fd)
    return added - began, done - added


# ---- ours, through the seam


def ours(folder: str, number: int, *, durable: bool = False, batch: int = 1) -> tuple[float, float]:
    """add by swap (or swap_all), then take and ack by swap."""
    queue, words = f"{folder}/queue", "Feed enabled: spamhaus"
    spool = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", max_pending=10**9)
    make_spool(spool._replace(durable=durable), exclusive=True)
    store = NftbanStore(spool._replace(durable=durable))
    began = time.perf_counter()
    new = (verbs.enqueue("feeds_sync", began, f"{n:08x}", words) for n in range(number))
    if batch > 1:
        for outcome in store.swap_all(Move(None, task) for task in new):
            assert outcome.error is None
    else:
        for task in new:
            store.swap(None, task)
    added = time.perf_counter()
    finished = 0
    for task in store.take(time.time(), "bench", number):
        store.swap(task, None)
        finished += 1
    done = time.perf_counter()
    assert finished == number, f"{finished} of {number} came back"
    store.close()
    return added - began, done - added


def compare(name: str, number: int, rounds: int, **options: object) -> None:
    """One line: ours beside the floor, paired round by round."""
    pairs = []
    for _ in range(rounds):
        with scratch() as folder:
            bare = floor(folder, number, **options)  # type: ignore[arg-type]
        with scratch() as folder:
            mine = ours(folder, number, **options)  # type: ignore[arg-type]
        pairs.append((bare, mine))

    spent = [
        median(pair[side][part] for pair in pairs) / number * 1e6
        for side in range(2)
        for part in range(2)
    ]
    ratios = [median(mine[part] / bare[part] for bare, mine in pairs) for part in range(2)]
    ratios.append(median(sum(mine) / sum(bare) for bare, mine in pairs))
    line = "  floor {:6.1f} + {:6.1f}  ours {:6.1f} + {:6.1f}  x{:.2f} + x{:.2f}  all x{:.2f}"
    print(f"{name:28} {number:>7,}{line.format(*spent, *ratios)}")


def growth(name: str, cycle: Cycle, small: int, large: int, rounds: int) -> None:
    """One line: what a task costs in a large queue against a small one."""
    ratios = []
    for _ in range(rounds):
        costs = []
        for number in (large, small):
            with scratch() as folder:
                costs.append(sum(cycle(folder, number)) / number)
        ratios.append(costs[0] / costs[1])
    print(f"{name:28} {large:,} against {small:,}: x{median(ratios):.2f} a task")


# ---- system calls


def system_calls() -> None:
    """Calls a task of add, take and ack, by strace on a child with and without tasks."""
    if shutil.which("strace") is None:
        print("system calls: not counted, strace is not installed")
        return
    number = 500
    for name in ("floor", "ours"):
        for durable in (False, True):
            base, many = (_count_calls(name, n, durable) for n in (1, 1 + number))
            word = "durable" if durable else "not durable"
            print(f"system calls a task, {name:5} {word:11} {(many - base) / number:5.1f}")


def _count_calls(name: str, number: int, durable: bool) -> int:
    with scratch() as folder:
        report = f"{folder}/strace"
        command = [sys.executable, __file__, "--child", name, folder, str(number)]
        command += ["--durable"] if durable else []
        subprocess.run(["strace", "-f", "-c", "-o", report, *command], check=True)
        with open(report) as lines:
            (total,) = (line.split() for line in lines if line.rstrip().endswith("total"))
    return int(total[3] if len(total) > 4 else total[2])


# ---- a fresh process


def process_next(waiting: int, rounds: int) -> None:
    """CPU of `queue process-next` with nothing due, beside an empty Python and a stat scan."""
    with scratch() as folder:
        queue = f"{folder}/queue"
        spool = SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq")
        make_spool(spool, exclusive=True)
        store = NftbanStore(spool._replace(durable=False, max_pending=waiting))
        later = time.time() + 86400
        new = (verbs.enqueue("feeds_sync", later - n, f"{n:08x}") for n in range(waiting))
        moves = (Move(None, verbs.nack(task, later, "")) for task in new)
        assert all(outcome.error is None for outcome in store.swap_all(moves))
        store.close()
        # Without settings of another program, and with compiled modules, as installed.
        foreign = ("NFTBAN_", "PYTHONDONTWRITEBYTECODE")
        clean = {k: v for k, v in os.environ.items() if not k.startswith(foreign)}
        mine = [sys.executable, "-m", "tui.cli", "--root", folder, "queue", "process-next"]
        bare = [sys.executable, "-c", "pass"]
        rows = []
        _cpu(mine, clean, folder)
        for _ in range(rounds):
            spent = _cpu(bare, clean, folder), _cpu(mine, clean, folder)
            began = time.process_time()
            fd = os.open(spool.pending, os.O_RDONLY)
            for name in os.listdir(fd):
                os.stat(name, dir_fd=fd, follow_symlinks=False)
            os.close(fd)
            rows.append((*spent, time.process_time() - began))
    nothing, whole, scan = (1000 * median(row[n] for row in rows) for n in range(3))
    net = median((row[1] - row[2]) / row[0] for row in rows)
    print(
        f"process-next, nothing due, {waiting:,} waiting: {whole:.1f} ms of CPU; "
        f"`python -c pass` {nothing:.1f}, stat scan {scan:.1f}: x{net:.2f} of python, plus the scan"
    )


def _cpu(command: list[str], environ: dict[str, str], folder: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environ, cwd=folder, stderr=subprocess.DEVNULL, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print every line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--large", type=int, default=20_000, help="the large queue of growth")
    parser.add_argument("--only", choices=("engine", "plans", "console"), help="a part of it")
    parser.add_argument("--plan", type=int, default=100_000, help="tasks of the large plan")
    parser.add_argument("--seconds", type=float, default=20.0, help="each rest of the console")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--durable", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        name, folder, number = options.child
        {"floor": floor, "ours": ours}[name](folder, int(number), durable=options.durable)
        return
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    if options.only in (None, "engine"):
        engine(options.rounds, options.large)
    if options.only in (None, "plans"):
        from tests.bench import plans

        plans.measure(options.rounds, options.plan)
    if options.only in (None, "console"):
        from tests.bench import console

        console.measure(options.rounds, options.seconds)


def engine(rounds: int, large: int) -> None:
    """The engine's lines."""
    print(f"Python {sys.version.split()[0]}, load {os.getloadavg()[0]:.1f}; add + take and finish")
    compare("not durable", 10_000, rounds)
    compare("durable, one by one", 500, rounds, durable=True)
    compare("durable, groups of 100", 2_000, rounds, durable=True, batch=100)
    growth("growth, not durable", ours, 1_000, large, min(rounds, 3))
    growth("growth of the floor", floor, 1_000, large, min(rounds, 3))
    process_next(10_000, max(rounds, 7))
    system_calls()


if __name__ == "__main__":
    main()
