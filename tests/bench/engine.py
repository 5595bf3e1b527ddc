"""The engine's rows: library, fresh process and worker, beside floors and peers."""

from __future__ import annotations

import gc
import os
import shutil
import sys
import time
from functools import partial
from statistics import median
from typing import TypeAlias

from engine import verbs
from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.model import Task
from engine.policy import contract_retries
from engine.work.handlers import Context
from engine.work.worker import Worker
from tests.bench import queue_cycles
from tests.bench.measure import (
    PYTHON,
    ROOT,
    SPOOLDECK,
    Bench,
    Figure,
    Figures,
    Unmeasurable,
    Ways,
    command,
    compare,
    cpu_and_wall,
    cpu_of,
    interleave,
    per_task,
    scratch,
)
from tests.bench.queue_cycles import PEERS, Cost, Opener, Peer

NOTHING_TO_DO = 1
ADD = ("queue", "add", "report", "Feed enabled: spamhaus")
Cycles: TypeAlias = dict[str, tuple[Opener, int, int]]
"""Name -> opener, number of tasks, batch."""


def _costs(variants: Cycles, files: int, rounds: int) -> dict[str, list[Cost]]:
    """Interleaved rounds of cycles, each in a new folder."""

    def run(opener: Opener, number: int, batch: int) -> Cost:
        gc.collect()
        with scratch(files) as folder:
            return queue_cycles.run_cycle(opener, folder, number, batch)

    return interleave({name: partial(run, *variant) for name, variant in variants.items()}, rounds)


def _installed(*, durable: bool) -> list[Peer]:
    peers = [peer for peer in PEERS if peer.is_durable is durable and peer.version]
    if not peers:
        raise Unmeasurable("no peer is installed: make bench installs them")
    return peers


def cycle(bench: Bench) -> Figures:
    """CPU of the whole cycle in memory, and its system calls."""
    number = 2_000 if bench.quick else 10_000
    peers = _installed(durable=False)
    variants: Cycles = {
        "floor": (queue_cycles.floor, number, 0),
        "ours": (queue_cycles.ours, number, 0),
    }
    variants |= {peer.name: (peer.opener, min(number, peer.most), 0) for peer in peers}
    variants["groups"] = (queue_cycles.in_groups, number, 100)
    costs = _costs(variants, number, bench.rounds)
    cpu = {name: [cost.whole_cpu for cost in of] for name, of in costs.items()}
    what = f"cycle of {number:,}, a task"
    yield compare(what, "us CPU", (cpu["ours"], cpu["floor"]), "9 system calls", 2.0)
    for peer in peers:
        limit = 1.1 if peer.package == "dirq" else None
        yield compare("the same", "us CPU", (cpu["ours"], cpu[peer.name]), peer.name, limit)
        if peer.package == "dirq":
            both = cpu["groups"], cpu[peer.name]
            yield compare("the same in groups of 100", "us CPU", both, peer.name, 1.0)
    for batch, word in ((0, "not durable"), (1, "durable")):
        calls, least = (_system_calls(name, batch) for name in ("ours", "floor"))
        yield Figure(f"system calls a task, {word}", calls, "calls")
        yield Figure(f"system calls a task, {word}, floor", least, "calls")


def _system_calls(name: str, batch: int) -> float:
    """Calls of one task: strace of a child with 1 and with 501."""
    if shutil.which("strace") is None:
        raise Unmeasurable("system calls: strace is not installed")
    return (_count_calls(name, 501, batch) - _count_calls(name, 1, batch)) / 500


def _count_calls(name: str, number: int, batch: int) -> int:
    with scratch() as folder:
        python = f"run_cycle({name}, {folder!r}, {number}, {batch})"
        child = [sys.executable, "-c", f"from tests.bench.queue_cycles import *; {python}"]
        command("strace", "-f", "-c", "-o", f"{folder}/calls", *child, PYTHONPATH=str(ROOT))
        with open(f"{folder}/calls") as lines:
            (total,) = (line.split() for line in lines if line.rstrip().endswith("total"))
    return int(total[3] if len(total) > 4 else total[2])


def durable(bench: Bench) -> Figures:
    """Wall time on the disk: what is waited for is the disk."""
    number = 100 if bench.quick else 200
    peers = _installed(durable=True)
    variants: Cycles = {
        "floor": (queue_cycles.floor, number, 1),
        "one": (queue_cycles.ours, number, 1),
    }
    variants |= {"batches": (queue_cycles.ours, 2 * number, 100)}
    variants |= {peer.name: (peer.opener, number, 1) for peer in peers}
    costs = _costs(variants, 0, 2 * bench.rounds)
    adds = {name: [cost.enqueue for cost in of] for name, of in costs.items()}
    whole = {name: [cost.whole for cost in of] for name, of in costs.items()}
    cpu = {name: [cost.whole_cpu for cost in of] for name, of in costs.items()}
    best = min((peer.name for peer in peers), key=lambda name: median(whole[name]))
    baseline = "2 fsyncs a task"
    for way, what, limit, least in (
        ("one", "one by one", 1.25, None),
        ("batches", "batches of 100", 0.5, 1 / 1.8),
    ):
        yield compare(f"enqueue, {what}", "us wall", (adds[way], adds["floor"]), baseline, limit)
        what = f"enqueue + drain, {what}"
        yield compare(what, "us CPU", (cpu[way], cpu["floor"]), baseline, None)
        yield compare(what, "us wall", (whole[way], whole[best]), best, least)


def commands(bench: Bench) -> Figures:
    """CPU of fresh processes that operators and scripts start again and again."""
    root = bench.spool(300)
    with scratch(300) as folder:
        command(SPOOLDECK, "init", folder)
        ways: Ways = {
            "python": partial(cpu_of, [sys.executable, "-c", "pass"]),
            "--version": partial(cpu_of, [SPOOLDECK, "--version"]),
            "queue add": partial(cpu_of, [SPOOLDECK, "--root", folder, *ADD]),
            "status of 300": partial(cpu_of, [SPOOLDECK, "status", root], ok=(0, 1)),
        }
        costs = interleave(ways, 3 * bench.rounds)
    baseline = f"python -c pass, {PYTHON}"
    for what, limit in (("--version", 3.0), ("queue add", 3.4), ("status of 300", 6.0)):
        yield compare(what, "ms CPU", (costs[what], costs["python"]), baseline, limit)


def process_next(bench: Bench) -> Figures:
    """CPU of a fresh process with nothing due, once it has left its hint."""
    variants: Ways = {"python": partial(cpu_of, [sys.executable, "-c", "pass"])}
    sizes = (300, 10_000) if bench.quick else (10_000, 100_000, 1_000_000)
    for number in sizes:
        argv = [SPOOLDECK, "--root", bench.spool(number), "queue", "process-next"]
        variants[f"{number:,}"] = partial(cpu_of, argv, ok=(NOTHING_TO_DO,))
        yield Figure(f"{number:,} waiting, without the hint", variants[f"{number:,}"](), "ms CPU")
    costs = interleave(variants, 2 * bench.rounds)
    few, *_, many = (costs[f"{number:,}"] for number in sizes)
    for number in sizes:
        ours, baseline = costs[f"{number:,}"], f"python -c pass, {PYTHON}"
        yield compare(f"{number:,} waiting", "ms CPU", (ours, costs["python"]), baseline, 3.8)
    yield compare(f"{sizes[-1]:,} against {sizes[0]:,}", "ms CPU", (many, few), "itself", 1.2)


def worker(bench: Bench) -> Figures:
    """CPU of `queue work`, without its start, for tasks whose handler is `true`."""
    number = 100 if bench.quick else 400
    for jobs, limit in ((1, 1.3), (8, 1.0)):

        def xargs(jobs: int = jobs) -> float:
            line = f"seq {number} | xargs -n 1 -P {jobs} /bin/true"
            return cpu_of(["/bin/sh", "-c", line]) * 1000 / number

        def ours(jobs: int = jobs) -> float:
            with scratch(number) as root:
                idle, busy = (_work(f"{root}/{n}", n, jobs) for n in (0, number))
                return (busy - idle) * 1000 / number

        what = f"concurrency {jobs}, a task"
        yield bench.versus(what, "us CPU", (ours, xargs), f"xargs -P {jobs} true", limit)


def _work(root: str, number: int, jobs: int) -> float:
    """Milliseconds of CPU of a worker that runs so many tasks."""
    work = _place(root, jobs)
    for n in range(number):
        name = verbs.enqueue("report", time.time() - 60, f"{n:08x}").id
        with open(f"{root}/queue/pending/{name}.task", "x") as file:
            file.write(queue_cycles.TEXT.format(id=name, kind="report"))
    spent = cpu_of(work, ok=(0, NOTHING_TO_DO))
    left = len(os.listdir(f"{root}/queue/pending")) + len(os.listdir(f"{root}/queue/dlq"))
    assert not left, f"the worker left {left} of {number} tasks"
    return spent


def _place(root: str, jobs: int) -> list[str]:
    """Make a place whose tasks run /bin/true; return the command that runs them."""
    command(SPOOLDECK, "init", root)
    with open(f"{root}/config.yaml", "w") as file:
        file.write("handlers: {report: {command: [/bin/true], concurrency: 8}}\n")
    words = ["--root", root, "--config", f"{root}/config.yaml", "queue", "work", "--until-idle"]
    return [SPOOLDECK, *words, "--concurrency", str(jobs)]


def in_process(bench: Bench) -> Figures:
    """CPU of the worker in this process, its handler a function that does nothing."""
    number = 1_000 if bench.quick else 5_000

    def noop(task: Task, context: Context) -> None:
        pass

    def cost(*, with_worker: bool) -> float:
        gc.collect()
        with scratch(number) as folder:
            store = queue_cycles.open_queue(folder, durable=False)
            for n in range(number):
                store.swap(None, verbs.enqueue("report", time.time(), f"{n:08x}"))
            began = time.process_time()
            if with_worker:
                worker = Worker(store, {"report": noop}, contract_retries())
                done = worker.process_all(until_idle=True).done
                assert done == number, f"{done} of {number} tasks done"
            else:
                for task in store.take(time.time(), "bench", number):
                    store.swap(task, None)
            spent = time.process_time() - began
            store.close()
        return spent / number * 1e6

    ways = partial(cost, with_worker=True), partial(cost, with_worker=False)
    yield bench.versus(f"{number:,} no-ops, a task", "us CPU", ways, "take + ack", 1.5)


def end_to_end(bench: Bench) -> Figures:
    """Time by the clock to add tasks one by one, each durable, and to run them one by one."""
    peer = next(peer for peer in PEERS if peer.package == "huey" and peer.is_durable)
    if not peer.version:
        raise Unmeasurable("huey is not installed: make bench installs it")
    few, many = (100, 200) if bench.quick else (2_000, 10_000)
    for number, program, limit in ((many, "", 1.0), (few, "/bin/true", 1.1)):
        ways = {
            "ours": partial(_end_to_end, number, program),
            "huey": partial(_peer_end, number, program),
        }
        costs = per_task(interleave(ways, bench.rounds), number)
        what = f"{number:,} {'programs' if program else 'no-ops'}, a task"
        yield compare(what, "us wall", (costs["ours"], costs["huey"]), peer.name, limit)


def _end_to_end(number: int, program: str) -> float:
    """Seconds of ours: a program runs below `queue work`, whose start is not counted."""
    with scratch() as root:
        work = _place(root, 1)
        idle = cpu_and_wall(work, ok=(0, NOTHING_TO_DO)).wall / 1000 if program else 0.0
        queue = f"{root}/queue"
        store = NftbanStore(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))
        began = time.perf_counter()
        for n in range(number):
            store.swap(None, verbs.enqueue("report", time.time() - 60, f"{n:08x}"))
        if program:
            command(*work)
        else:
            worker = Worker(store, {"report": lambda task, context: None}, contract_retries())
            worker.process_all(until_idle=True)
        spent = time.perf_counter() - began - idle
        left = sum(store.count_tasks().values())
        store.close()
    assert not left, f"{left} of {number} tasks are left"
    return spent


def _peer_end(number: int, program: str) -> float:
    """Seconds of huey, one thread."""
    with scratch() as folder:
        queue = queue_cycles.huey_queue(folder, lambda _: command(program) if program else None)
        began = time.perf_counter()
        queue.add(number)
        queue.drain()
        return time.perf_counter() - began
