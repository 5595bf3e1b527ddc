"""The cost of a plan: to freeze it, and to carry it out, beside the same system calls alone."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import resource
import time
import tracemalloc
from statistics import median
from typing import NamedTuple

from engine.index.schema import Query
from engine.live.inspector import Inspector
from engine.model import State, Task
from engine.operations import plans, run_plan
from engine.operations.journal import Intent, Journal, Who
from engine.stores.nftban import NftbanStore, SpoolFolders, make_spool, task_format
from tests.bench.bench import scratch

US = Intent("", Who("bench"))
GROUP, BATCH = 100, 500
"""Tasks made durable together, and written down together, as ours does it."""


def spool_in(folder: str) -> SpoolFolders:
    """The spool in a folder, on the disk it lies on."""
    queue = f"{folder}/queue"
    return SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq", max_pending=10**9)


def filled(folder: str, number: int) -> SpoolFolders:
    """A spool with so many dead tasks."""
    spool = spool_in(folder)
    make_spool(spool)
    now = time.time()
    for at in range(number):
        ident = f"20261121T053343Z-feeds_sync-{at:08x}"
        text = (f"Feed enabled: {at}", int(now) - 86400, 3, 0, "curl: (28) timed out", "")
        record = task_format.Record(
            ident, "feeds_sync", *text, int(now) - 7200, task_format.DEAD_REASON
        )
        with open(f"{spool.dlq}/{ident}.task", "xb") as file:
            file.write(task_format.render_task(record))
    os.sync()
    return spool


class Spent(NamedTuple):
    """Seconds by the clock and of the processor."""

    wall: float
    cpu: float


class Watch:
    """Measures from when it is made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        """Seconds since."""
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._cpu)


# ---- the floor: nothing but the system calls


def floor(folder: str, verb: str, number: int) -> Spent:
    """Per task: open, lock, read, (create, write, fsync, rename over), rename twice; per 100 the
    folders' fsync; per 500 what is written down, and (what they were) with an fsync each.
    """
    spool = filled(folder, number)
    os.mkdir(f"{spool.staging_dir}/journal")
    os.mkdir(f"{spool.staging_dir}/trash")
    end_path = f"{spool.staging_dir}/trash" if verb == "purge" else spool.pending
    start, end, desk = (
        os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        for path in (spool.dlq, end_path, spool.staging_dir)
    )
    names = sorted(os.listdir(start))
    log = os.open(f"{spool.staging_dir}/journal/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    before = os.open(f"{spool.staging_dir}/journal/before", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    watch = Watch()
    for at in range(0, number, BATCH):
        _line(log, names[at : at + BATCH])
    os.fsync(log)
    for at in range(0, number, BATCH):
        batch = names[at : at + BATCH]
        if verb != "purge":
            os.write(before, b"".join(_read(name, start) for name in batch))
            os.fsync(before)
        for group in (batch[n : n + GROUP] for n in range(0, len(batch), GROUP)):
            _move(group, start, end, desk, rewrite=verb != "purge")
        _line(log, batch)
        os.fsync(log)
    spent = watch.spent()
    for fd in (start, end, desk, log, before):
        os.close(fd)
    return spent


def _line(log: int, names: list[str]) -> None:
    os.write(log, json.dumps(dict.fromkeys(names, "1f3c2a.18ea177b2249abef.15c")).encode())


def _read(name: str, folder: int) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    data = os.read(fd, 65537)
    os.close(fd)
    return data


def _move(names: list[str], start: int, end: int, desk: int, *, rewrite: bool) -> None:
    held, drafts = [], []
    for name in names:
        fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=start)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.fstat(fd)
        data = os.read(fd, 65537)
        held.append(fd)
        if rewrite:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            draft = os.open(f"T.{name}", flags, 0o640, dir_fd=desk)
            fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fstat(draft)
            os.write(draft, data)
            drafts.append(draft)
    for draft in drafts:
        os.posix_fadvise(draft, 0, 0, os.POSIX_FADV_DONTNEED)
    for draft in drafts:
        os.fsync(draft)
    for name in names:
        os.rename(name, f"D.{name}", src_dir_fd=start, dst_dir_fd=desk)
        os.stat(f"D.{name}", dir_fd=desk, follow_symlinks=False)
    for name in names if rewrite else ():
        os.rename(f"T.{name}", f"D.{name}", src_dir_fd=desk, dst_dir_fd=desk)
    os.fsync(start)
    for name in names:
        try:  # never over another: there is no rename that refuses to
            os.stat(name, dir_fd=end, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(f"D.{name}", name, src_dir_fd=desk, dst_dir_fd=end)
        os.stat(name, dir_fd=end, follow_symlinks=False)
    os.fsync(end)
    for fd in held + drafts:
        os.close(fd)


# ---- ours


def ours(folder: str, verb: str, number: int) -> Spent:
    """The same plan, written down and carried out."""
    spool = filled(folder, number)
    store, journal = NftbanStore(spool), Journal(f"{spool.staging_dir}/journal")
    tasks = (task for task in store.scan({"dlq"}) if isinstance(task, Task))
    plan = plans.freeze_plan(verb, tasks, time.time())
    plan = plan._replace(included_ids=frozenset(row.id for row in plan.rows))
    watch = Watch()
    report = run_plan.run_journaled_plan(store, journal, plan, US, time.time)
    spent = watch.spent()
    assert len(report.done) == number, report._replace(plan=plan._replace(rows=()))
    store.close()
    return spent


def compare(verb: str, number: int, rounds: int) -> None:
    """One line: ours beside the floor, paired round by round."""
    pairs = []
    for turn in range(rounds):
        both = {}
        for make in (floor, ours) if turn % 2 else (ours, floor):
            with scratch() as folder:
                both[make] = make(folder, verb, number)
        pairs.append((both[floor], both[ours]))
    wall = median(bare.wall / mine.wall for bare, mine in pairs)
    cpu = median(bare.cpu / mine.cpu for bare, mine in pairs)
    bare, mine = (
        Spent(*(median(pair[side][n] for pair in pairs) / number * 1e6 for n in range(2)))
        for side in range(2)
    )
    print(
        f"plan, {verb:7} {number:>7,}  floor {bare.wall:6.0f} us, {bare.cpu:5.0f} of CPU"
        f"  ours {mine.wall:6.0f}, {mine.cpu:5.0f}  rate x{wall:.2f}, by CPU x{cpu:.2f}"
    )


# ---- a large one, on the screen's own way


async def large(number: int) -> None:
    """Freeze and apply a plan through the Inspector, while a coroutine ticks as keys would."""
    with scratch() as folder:
        spool = filled(folder, number)
        journal = Journal(f"{spool.staging_dir}/journal")
        inspector = Inspector(lambda: NftbanStore(spool), journal=journal)
        await inspector.start()
        await inspector.scan_now()
        try:
            await _large(inspector, number)
        finally:
            await inspector.close()


async def _large(inspector: Inspector, number: int) -> None:
    query = Query(State.DEAD)
    await inspector.queries.make_plan("purge", None, query)
    watch = Watch()
    plan = await inspector.queries.make_plan("purge", None, query)
    spent = watch.spent()
    tracemalloc.start()
    again = await inspector.queries.make_plan("purge", None, query)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(again.rows) == len(plan.rows) == number
    print(
        f"plan of {number:,} frozen: {spent.wall:.2f} s, {spent.cpu:.2f} of CPU; "
        f"{held / 2**20:.1f} MiB, at most {peak / 2**20:.1f}"
    )
    del again
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plan = plan._replace(included_ids=frozenset(row.id for row in plan.rows))
    gaps: list[float] = []
    ticking = asyncio.create_task(_tick(gaps))
    watch = Watch()
    report = await inspector.actions.apply_plan(plan, US._replace(verb="purge"))
    spent = watch.spent()
    ticking.cancel()
    gaps.sort()
    more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert len(report.done) == number, len(report.done)
    print(
        f"plan of {number:,} applied: {spent.wall:.1f} s, {spent.cpu:.1f} of CPU with the index "
        f"that follows; {more / 1024:.0f} MiB more; a tick of 5 ms came late by "
        f"{gaps[len(gaps) // 2] * 1e3:.1f} ms (median), {gaps[int(len(gaps) * 0.99)] * 1e3:.0f} "
        f"(99 %), {gaps[-1] * 1e3:.0f} (worst of {len(gaps):,})"
    )


async def _tick(gaps: list[float]) -> None:
    """How late it is woken, each time."""
    while True:
        began = time.perf_counter()
        await asyncio.sleep(0.005)
        gaps.append(time.perf_counter() - began - 0.005)


def measure(rounds: int, number: int) -> None:
    """The lines of plans."""
    compare("purge", 5_000, rounds)
    compare("retry", 2_000, rounds)
    asyncio.run(large(number))
