"""`make bench`: each target of speed and size, beside a floor or peer measured in the same run.

Read the ratios: the speed of the machine cancels out of them. Floor, peers and ours take turns
round by round, and medians are printed. `CPU` is processor time of all threads and children: it
counts what a program does, also on a busy machine. `wall` is time by the clock: it counts the disk
and the network.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench import console, engine, index, logs, mail
from tests.bench.measure import PYTHON, Bench, Figure, Figures, OverBudget, Unmeasurable, time_limit


class Row(NamedTuple):
    """One target: `--only` picks it by its name or group."""

    name: str
    group: str
    target: str
    measure: Callable[[Bench], Figures]


ROWS = (
    Row("cycle", "engine", "enqueue + take + ack, not durable: <= 2.0 x the floor, faster than "
        "dirq; <= 14 system calls", engine.cycle),
    Row("durable", "engine", "a durable enqueue: <= 1.25 x its floor, in batches of 100 <= 0.5 x; "
        "with drain >= 1.8 x the best durable peer", engine.durable),
    Row("process-next", "engine", "nothing due: <= 5 x `python -c pass`; flat with the hint: "
        "1M <= 1.2 x 10k", engine.process_next),
    Row("worker", "engine", "`true` as handler, concurrency 1 / 8: <= 1.3 x / <= 1.0 x `xargs -P`",
        engine.worker),
    Row("in-process", "engine", "worker with a no-op in its process: <= 1.5 x bare take + ack",
        engine.in_process),
    Row("start", "console", "first frame: <= 1.4 x an empty Textual app; first rows <= 1.6 x, "
        "1M <= 1.2 x 300", console.start),
    Row("key", "console", "a key / a page at 120x40: <= 3 / 8 ms CPU", console.keys),
    Row("filter", "console", "a key of a filter: <= 20 ms CPU at 10k; at 1M <= 100 ms off the UI "
        "thread", console.filter_keys),
    Row("scan", "index", "full scan / with index, CPU a task: <= 2.5 x / <= 3.5 x the bare scan; "
        "growth <= 1.2", index.scan),
    Row("memory", "console", "console at 300 / 100k / 1M: <= 50 / 60 / 100 MiB", console.memory),
    Row("changes", "console", "1,000 changes/s at 1M, keys pressed: <= 30 % CPU, no key unanswered",
        console.changes),
    Row("plan", "index", "plan of 1M rows: freeze <= 1.5 x the SELECT, dry run <= 3 x, "
        "<= 30 MiB more", console.plan),
    Row("event", "console", "event to screen, also at 10k sorted: median <= 30 ms, none missed",
        console.events),
    Row("log-open", "log", "first screen of 1 GiB: <= 1.2 x that of 1 MiB", logs.first_screen),
    Row("log-search", "log", "literal search in 1 GiB: <= 1.5 x `grep -F`", logs.search),
    Row("log-level", "log", "level filter on 1 GiB: <= 3 x `grep -F`", logs.level),
    Row("kannader", "mail", "Kannader worker, concurrency 1 / 4: <= 1.5 x a bare smtplib loop with "
        "the same fsyncs", mail.kannader),
    Row("mail-send", "mail", "`mail send` by curl: <= 5 x curl alone", mail.send),
    Row("status", "index", "`status`, 100k: <= 1.5 x a directory listing", index.status),
    Row("places", "console", "20 places of 50k, all followed: <= 120 MiB, idle <= 1 % CPU",
        console.places),
)  # fmt: skip


def text_line(figure: Figure) -> str:
    """A figure as a line of the report."""
    ours = f"{figure.ours:,.{0 if figure.ours >= 1000 else 1 if figure.ours >= 10 else 2}f}"
    floor = ratio = ""
    if figure.floor is not None:
        floor = f"{figure.floor:10,.2f} {figure.beside}"
        ratio = f"x{figure.ratio:.2f}"
    limit = "" if figure.limit is None else f"<= {figure.limit:g}"
    word = {True: "ok", False: "MISSED", None: ""}[figure.is_met]
    what = f"{figure.what[:44]:44} {ours:>9} {figure.unit:9}"
    return f"  {what} {floor:46} {ratio:>7} {limit:>8} {word}".rstrip()


def markdown_line(row: Row, figure: Figure) -> str:
    """A figure as a line of the table in MANUAL.md."""
    beside = "" if figure.floor is None else f"{figure.beside}: {figure.floor:,.4g}"
    ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
    limit = "" if figure.limit is None else f"{figure.limit:g}"
    word = {True: "ok", False: "**missed**", None: ""}[figure.is_met]
    cells = (row.name, figure.what, f"{figure.ours:,.4g} {figure.unit}", beside, ratio, limit, word)
    return f"| {' | '.join(cells)} |"


def describe_machine() -> str:
    """Date, machine and versions in one line."""
    with open("/proc/cpuinfo") as lines:
        models = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
    date = time.strftime("%Y-%m-%d %H:%MZ", time.gmtime())
    cpu = f"{len(models)} x {models[0] if models else platform.machine()}"
    return f"{date}, {cpu}, Linux {platform.release()}, {PYTHON}"


def describe_load() -> str:
    """The load averages of 1 and 5 minutes."""
    return "load {:.1f} {:.1f}".format(*os.getloadavg())


def measure_row(row: Row, bench: Bench, report: Callable[[Figure | str], None]) -> None:
    """Measure one row; one that cannot be measured, or takes too long, is one line."""
    try:
        with time_limit(bench.budget):
            for figure in row.measure(bench):
                report(figure)
    except (Unmeasurable, OverBudget, OSError, AssertionError) as error:
        why = str(error).strip().splitlines()[:1] or [type(error).__name__]
        report(f"not measured: {why[0][:150]}")


def main() -> None:
    """Measure the chosen rows and print them."""
    words = [row.name for row in ROWS] + sorted({row.group for row in ROWS})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=words, default=words, metavar="ROW|GROUP")
    parser.add_argument("--quick", action="store_true", help="small sizes: at most 10,000 tasks")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each comparison")
    parser.add_argument("--budget", type=float, default=0, help="seconds for each row")
    parser.add_argument("--markdown", action="store_true", help="print the table of MANUAL.md")
    parser.add_argument("--list", action="store_true", help="print the rows and their targets")
    options = parser.parse_args()
    rows = [row for row in ROWS if {row.name, row.group} & set(options.only)]
    if options.list:
        print("\n".join(f"{row.group:8} {row.name:13} {row.target}" for row in rows))
        return
    rounds = options.rounds or (3 if options.quick else 5)
    budget = options.budget or (30.0 if options.quick else 90.0)
    print(f"{describe_machine()}; at the start {describe_load()}", end="\n\n")
    if options.markdown:
        print(
            "| row | what | ours | floor or peer | ratio | limit | |\n|---|---|---|---|---|---|---|"
        )
    with ExitStack() as keep:
        bench = Bench(quick=options.quick, rounds=rounds, budget=budget, keep=keep)
        for row in rows:
            if not options.markdown:
                print(f"{row.name}: {row.target}", flush=True)

            def report(figure: Figure | str, row: Row = row) -> None:
                if isinstance(figure, str):
                    dull = f"| {row.name} | {figure} | | | | | |"
                    print(dull if options.markdown else f"  {figure}", flush=True)
                else:
                    line = markdown_line(row, figure) if options.markdown else text_line(figure)
                    print(line, flush=True)

            measure_row(row, bench, report)
    print(f"\nat the end {describe_load()}")


if __name__ == "__main__":
    main()
