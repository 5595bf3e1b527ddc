"""The engine's rows: library, fresh process and worker, beside floors and peers."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine import verbs
from engine.model import Task
from engine.policy import contract_retries
from engine.work.handlers import Context
from engine.work.worker import Worker
from tests.bench import cycles
from tests.bench.cycles import PEERS, Cost, Cycle, Peer
from tests.bench.measure import (
    CLEAN,
    PYTHON,
    SPOOLDECK,
    Bench,
    Figure,
    Figures,
    Unmeasurable,
    compare,
    cpu_of,
    interleave,
    memory_folder,
    scratch,
)

NOTHING_TO_DO = 1


def _costs(
    ways: dict[str, tuple[Cycle, int, int]], parent: str, rounds: int
) -> dict[str, list[Cost]]:
    """Interleaved rounds of cycles, each in a new folder: name -> (cycle, tasks, batch)."""
    costs: dict[str, list[Cost]] = {name: [] for name in ways}

    def run(name: str) -> float:
        cycle, number, batch = ways[name]
        gc.collect()
        with scratch(parent) as folder:
            costs[name].append(cycle(folder, number, batch))
        return 0.0

    interleave({name: partial(run, name) for name in ways}, rounds)
    return costs


def _installed(*, durable: bool) -> list[Peer]:
    return [peer for peer in PEERS if peer.is_durable is durable and peer.version]


def cycle(bench: Bench) -> Figures:
    """CPU of the whole cycle in memory, and its system calls."""
    number = 2_000 if bench.quick else 10_000
    peers = _installed(durable=False)
    ways = {"floor": (cycles.floor, number, 0), "ours": (cycles.ours, number, 0)}
    ways |= {peer.name: (peer.cycle, min(number, peer.most), 0) for peer in peers}
    costs = _costs(ways, memory_folder(number), bench.rounds)
    cpu = {name: [cost.cpu for cost in of] for name, of in costs.items()}
    what = f"cycle of {number:,}, a task"
    yield compare(what, "us CPU", cpu["ours"], cpu["floor"], "9 system calls", 2.0)
    for peer in peers:
        limit = 1.0 if peer.package == "dirq" else None
        yield compare("the same", "us CPU", cpu["ours"], cpu[peer.name], peer.name, limit)
    if not any(peer.package == "dirq" for peer in peers):
        raise Unmeasurable("dirq is not installed: make bench installs it")
    for batch, limit in ((0, 14.0), (1, None)):
        calls, least = (_system_calls(name, batch) for name in ("ours", "floor"))
        word = "durable" if batch else "not durable"
        yield Figure(f"system calls a task, {word}", calls, "calls", limit)
        yield Figure(f"system calls a task, {word}, floor", least, "calls")


def _system_calls(name: str, batch: int) -> float:
    """Calls of one task: strace of a child with 1 and with 501."""
    if shutil.which("strace") is None:
        raise Unmeasurable("system calls: strace is not installed")
    return (_count_calls(name, 501, batch) - _count_calls(name, 1, batch)) / 500


def _count_calls(name: str, number: int, batch: int) -> int:
    with scratch() as folder:
        child = [sys.executable, __file__, name, folder, str(number), str(batch)]
        subprocess.run(["strace", "-f", "-c", "-o", f"{folder}/calls", *child], check=True)
        with open(f"{folder}/calls") as lines:
            (total,) = (line.split() for line in lines if line.rstrip().endswith("total"))
    return int(total[3] if len(total) > 4 else total[2])


def durable(bench: Bench) -> Figures:
    """Wall time on the disk: what is waited for is the disk."""
    number = 200 if bench.quick else 500
    peers = _installed(durable=True)
    ways = {"floor": (cycles.floor, number, 1), "one": (cycles.ours, number, 1)}
    ways |= {"batches": (cycles.ours, 2 * number, 100)}
    ways |= {peer.name: (peer.cycle, number, 1) for peer in peers}
    costs = _costs(ways, "/var/tmp", bench.rounds)
    adds = {name: [cost.enqueue for cost in of] for name, of in costs.items()}
    least = "2 fsyncs a task"
    yield compare("enqueue, one by one", "us wall", adds["one"], adds["floor"], least, 1.25)
    yield compare("enqueue, batches of 100", "us wall", adds["batches"], adds["floor"], least, 0.5)
    whole = {name: [cost.wall for cost in of] for name, of in costs.items()}
    best = min(peers, key=lambda peer: median(whole[peer.name]), default=None)
    if best is None:
        raise Unmeasurable("no durable peer is installed: make bench installs them")
    for name, limit in (("one", None), ("batches", 1 / 1.8)):
        what = f"enqueue + drain, {'one by one' if name == 'one' else 'batches of 100'}"
        yield compare(what, "us wall", whole[name], whole[best.name], best.name, limit)


def process_next(bench: Bench) -> Figures:
    """CPU of a fresh process with nothing due, once it has left its hint."""
    base = [sys.executable, "-c", "pass"]
    ways: dict[str, Callable[[], float]] = {"python": partial(cpu_of, base)}
    sizes = (300, 10_000) if bench.quick else (10_000, 100_000, 1_000_000)
    for number in sizes:
        argv = [SPOOLDECK, "--root", bench.spool(number), "queue", "process-next"]
        ways[str(number)] = partial(cpu_of, argv, ok=(NOTHING_TO_DO,))
        first = ways[str(number)]()
        yield Figure(f"{number:,} waiting, the first run", first, "ms CPU")
    costs = interleave(ways, 2 * bench.rounds)
    for number in sizes:
        what, beside = f"{number:,} waiting", f"python -c pass, {PYTHON}"
        yield compare(what, "ms CPU", costs[str(number)], costs["python"], beside, 5.0)
    few, many = str(sizes[0]), str(sizes[-1])
    what = f"{sizes[-1]:,} against {sizes[0]:,}"
    yield compare(what, "ms CPU", costs[many], costs[few], "itself", 1.2)


CONFIG = """\
handlers:
  report: {command: [/bin/true], concurrency: 8}
"""


def worker(bench: Bench) -> Figures:
    """CPU of `queue work`, without its start, for tasks whose handler is `true`."""
    number = 100 if bench.quick else 400
    parent = memory_folder(number)
    for concurrency, limit in ((1, 1.3), (8, 1.0)):

        def xargs(jobs: int = concurrency) -> float:
            words = "\n".join(map(str, range(number)))
            command = f"printf '%s' '{words}' | xargs -n 1 -P {jobs} /bin/true"
            return cpu_of(["/bin/sh", "-c", command]) * 1000 / number

        def ours(jobs: int = concurrency) -> float:
            with scratch(parent) as root:
                idle, busy = (_work(f"{root}/{n}", n, jobs) for n in (0, number))
                return (busy - idle) * 1000 / number

        costs = interleave({"xargs": xargs, "ours": ours}, bench.rounds)
        what, beside = f"concurrency {concurrency}, a task", f"xargs -P {concurrency} true"
        yield compare(what, "us CPU", costs["ours"], costs["xargs"], beside, limit)


def _work(root: str, number: int, jobs: int) -> float:
    """Milliseconds of CPU of a worker that runs so many tasks."""
    subprocess.run([SPOOLDECK, "init", root], check=True, env=CLEAN, capture_output=True)
    with open(f"{root}/config.yaml", "w") as file:
        file.write(CONFIG)
    now = time.time()
    for n in range(number):
        task = verbs.enqueue("report", now - 60, f"{n:08x}")
        with open(f"{root}/queue/pending/{task.id}.task", "x") as file:
            file.write(cycles.TEXT.format(id=task.id).replace("feeds_sync\"", 'report"'))
    words = ["--root", root, "--config", f"{root}/config.yaml", "queue", "work", "--until-idle"]
    spent = cpu_of([SPOOLDECK, *words, "--concurrency", str(jobs)], ok=(0, NOTHING_TO_DO))
    left = len(os.listdir(f"{root}/queue/pending")) + len(os.listdir(f"{root}/queue/dlq"))
    assert not left, f"the worker left {left} of {number} tasks"
    return spent


def in_process(bench: Bench) -> Figures:
    """CPU of the worker in this process, its handler a function that does nothing."""
    number = 1_000 if bench.quick else 5_000

    def noop(task: Task, context: Context) -> None:
        pass

    def cost(*, with_worker: bool) -> float:
        gc.collect()
        with scratch(memory_folder(number)) as folder:
            store = cycles.open_queue(folder, durable=False)
            now = time.time()
            for n in range(number):
                store.swap(None, verbs.enqueue("report", now, f"{n:08x}"))
            began = time.process_time()
            if with_worker:
                done = Worker(store, {"report": noop}, contract_retries()).process_all(
                    until_idle=True
                )
                assert done.done == number, done
            else:
                for task in store.take(time.time(), "bench", number):
                    store.swap(task, None)
            spent = time.process_time() - began
            store.close()
        return spent / number * 1e6

    ways = {"worker": partial(cost, with_worker=True), "bare": partial(cost, with_worker=False)}
    costs = interleave(ways, bench.rounds)
    what = f"{number:,} no-ops, a task"
    yield compare(what, "us CPU", costs["worker"], costs["bare"], "take + ack", 1.5)


if __name__ == "__main__":
    _name, _folder, _number, _batch = sys.argv[1:]
    {"floor": cycles.floor, "ours": cycles.ours}[_name](_folder, int(_number), int(_batch))
