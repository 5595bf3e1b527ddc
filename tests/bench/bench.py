"""`make bench`: each target of speed and size, beside a floor or peer measured in the same run.

Read the ratios: the speed of the machine cancels out of them. Floor, peers and ours take turns
round by round, and medians are printed. `CPU` is processor time of all threads and children: it
counts what a program does, also on a busy machine. `wall` is time by the clock: it counts the disk
and the network."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.bench.measure import PYTHON, Bench, Figure, Figures, time_limit

TABLE = """
engine.cycle        | enqueue + take + ack, not durable: <= 2 x floor, <= 1.1 x dirq, by 100 <= 1 x
engine.durable      | enqueue <= 1.25 x floor, batches <= 0.5 x; with drain >= 1.8 x the best peer
engine.commands     | --version / queue add / status of 300: <= 3.0 / 3.4 / 6 x `python -c pass`
engine.process_next | nothing due: <= 3.8 x `python -c pass`; flat with the hint, 1M <= 1.2 x 10k
engine.worker       | `true` as handler, concurrency 1 / 8: <= 1.3 x / <= 1.0 x `xargs -P`
engine.in_process   | worker, handler a no-op in its process: <= 1.5 x bare take + ack
engine.end_to_end   | enqueue and run, no-op / program: <= 1.0 / <= 1.1 x huey on SQLite with fsync
index.status        | `status` of 100k minus 300: <= 1.4 x a directory listing minus an empty Python
index.scan          | scan / with index <= 2.5 x / <= 3.5 x a bare scan; growth to 1M <= 1.2
console.start       | first frame / rows <= 1.6 x / <= 1.7 x an empty app; 1M <= 1.2 x 300
console.keys        | a key / a page at 120x40: <= 3 / <= 8 ms
console.filter_keys | a letter: <= 20 ms at 10k; 1M: first rows <= 100 ms, all <= 1.5 x SELECT
console.memory      | 300 / 100k / 1M tasks: <= 48 / 60 / 100 MiB
console.idle        | one console of 10k: <= 0.5 % CPU
console.changes     | 1,000 changes/s at 1M, keys pressed: <= 30 % CPU, no key unanswered
console.plan        | 1M rows: freeze <= 1.5 x the SELECT, dry run <= 3 x, <= 30 MiB more
console.events      | event to screen, 10k, also sorted: median <= 30 ms, none missed
console.places      | 20 places of 50k, all followed: <= 120 MiB, idle <= 1 % CPU
console.long_run    | 36,000 tasks and 2,000 keys in ten minutes, four formats: <= 100 MiB
logs.first_screen   | 1 GiB <= 1.2 x 1 MiB
logs.search         | literal search in 1 GiB: <= 1.5 x `grep -F`
logs.level          | level filter on 1 GiB: <= 3 x `grep -F`
mail_logs.trail     | trail in 1 GiB of mail log: <= 3 x `grep -F` of its word
mail_logs.reasons   | reasons in 64 MiB of mail log: <= 2 x `grep -F` + 1 s
mail_servers.postfix_scan | CPU <= 2.5 x, later <= 0.6 x json.loads; wall <= 1.2 x `postqueue -j`
mail_servers.postfix_accounts | accounts of 20,000: <= 2 x postcat -eq of the same ids
mail_servers.postfix_hold | 3,000 by a plan: <= 1.5 x postcat and postsuper in the same calls
mail_servers.exim_acts | hold, purge of 1,000 by a plan: <= 1.3 x the same calls of Exim by 100
mail_servers.mail_keys | at 50,000: first rows <= 250 ms after the first line, a key <= 3 ms
mail_servers.mail_load | listings <= 5 % of the time; no line in a mail log, +arguments: 1 a minute
mail.kannader       | worker, concurrency 1 / 4: <= 1.5 x a bare smtplib loop, same fsyncs
queues.bullmq_worker | no-op, concurrency 1 / 10: <= 1.0 x Node 6, <= 0.75 x the Python worker
jobs.bullmq_scan    | wall <= 0.6 x getJobs; server <= 1.2 x the script; a call <= 10 ms
jobs.bullmq_retry   | plan of 5,000 <= 3.5 x the bare script in pipelines of 100
jobs.bullmq_console | event to screen <= 30 ms, idle <= 4 trips/s; 300k: counts <= 0.5 s, <= 100 MiB
zmailer.codec    | ZMailer control file, layout and re-emit: <= 3 x a bare read and split
zmailer.recipients | scan of 100k: <= 5 x reading and a tuple for each, itself >= 3 x reading
zmailer.tag_change | a changed tag in a file of 100k recipients: <= 30 ms
deliver.httpx_loop  | deliver on nftban, 16 at once: <= 1.25 x a bare httpx loop (>= 0.8 x its rate)
deliver.dead_peers  | 100 of 1,000 destinations dead, breaker on: <= 1.05 x without dead ones
deliver.bullmq      | deliver on BullMQ: <= 1.43 x on nftban (>= 0.7 x its rate)
deliver.registry    | compare-and-swap of SQLite, Postgres: <= 2.5 x a bare UPDATE
agents.conversation | a job and its answer: <= 2.0 x a bare loop, with overfeed <= 1.0 x
scheduling.agenda   | 100,000 threads, a step: <= 3 x `heapq` alone; growth <= 1.5 x its growth
scheduling.waiting  | 100,000 recipients that wait: <= 60 MiB
federation.envelope | envelope and signature of 4 KiB: <= 1.3 x the bare calls of `cryptography`
mailq.threads       | SHOW QUEUE THREADS, 10,000 threads: <= 2 x writing the same bytes
mail.send           | `mail send`: <= 1.7 x `python -c` with smtplib
"""
"""MODULE.FUNCTION | TARGET: the function measures the row; the module is the group."""


class Row(NamedTuple):
    """One target of the table."""

    group: str
    name: str
    target: str

    def measure(self, bench: Bench) -> Figures:
        """Yield its figures."""
        module = import_module(f"tests.bench.{self.group}")
        measure: Callable[[Bench], Figures] = getattr(module, self.name.replace("-", "_"))
        return measure(bench)


def _parse(line: str) -> Row:
    place, target = line.split(" | ")
    group, name = place.strip().split(".")
    return Row(group, name.replace("_", "-"), target)


ROWS = tuple(map(_parse, TABLE.strip().splitlines()))
HEADS = ("row", "what", "ours", "floor or peer", "ratio", "limit", "")


def cells_of(row: Row, figure: Figure) -> tuple[str, ...]:
    """A figure as the cells of a line."""
    floor, ratio = figure.floor, figure.ratio
    return (
        row.name,
        figure.what,
        f"{figure.ours:,.{0 if figure.ours >= 100 else 2}f} {figure.unit}",
        "" if floor is None else f"{floor:,.{0 if floor >= 100 else 2}f} {figure.beside}",
        "" if ratio is None else f"{ratio:.2f}",
        "" if figure.limit is None else f"{figure.limit:.3g}",
        {True: "ok", False: "MISSED", None: ""}[figure.is_met],
    )


def show(cells: tuple[str, ...]) -> None:
    """Print one line."""
    _, what, ours, floor, *rest = cells
    columns = "{:>6} {:>6} {}".format(*rest)
    print(f"  {what:46} {ours:>15}  {floor:40} {columns}".rstrip(), flush=True)


DOCUMENT = Path(__file__).resolve().parents[2] / "BENCHMARKS.md"


def replace_rows(document: str, name: str, figures: list[tuple[str, ...]], run: str) -> str:
    """The document with new figures of a row and its run; runs without figures are removed."""
    date = run.partition("; ")[0]
    lines = [
        " ".join(("|", *(f"{cell} |".lstrip() for cell in (*cells, date)))) for cells in figures
    ]
    (group,) = (row.group for row in ROWS if row.name == name)
    names = [row.name for row in ROWS if row.group == group]

    def insert(old: list[str]) -> list[str]:
        kept = [line for line in old if _cell(line, 1) != name]
        return sorted([*kept, *lines], key=lambda line: names.index(_cell(line, 1)))

    document = _change_table(document, group, insert)
    new = f"| {date} | {run.partition('; ')[2]} |"
    dates = {_cell(line, -2) for line in document.splitlines() if line.count("|") == len(HEADS) + 2}
    return _change_table(
        document,
        "runs",
        lambda old: sorted(line for line in {*old, new} if _cell(line, 1) in dates),
    )


def _cell(line: str, number: int) -> str:
    return line.split("|")[number].strip()


def _change_table(document: str, name: str, change: Callable[[list[str]], list[str]]) -> str:
    """Change the lines below the head of the table that follows the comment of this name."""
    before, marker, rest = document.partition(f"<!-- {name} -->\n\n")
    table, end, after = rest.partition("\n\n<!-- end -->")
    head, ruler, *lines = table.splitlines()
    return "".join((before, marker, "\n".join((head, ruler, *change(lines))), end, after))


def describe_run() -> str:
    """Date, machine, versions, load and commit."""
    with open("/proc/cpuinfo") as lines:
        models = [x.split(":")[1].strip() for x in lines if x.startswith("model name")]
    cpu = f"{len(models)} x {models[0] if models else platform.machine()}"
    git = ("git", "-C", str(DOCUMENT.parent), "describe", "--always", "--dirty")
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"{time.strftime('%Y-%m-%d %H:%MZ', time.gmtime())}; {cpu}, Linux {platform.release()}, "
        f"{PYTHON}; {describe_load()}; commit {commit or 'not known'}"
    )


def describe_load() -> str:
    """The load averages of 1 and 5 minutes."""
    return "load {:.1f} {:.1f}".format(*os.getloadavg())


def run(rows: list[Row], bench: Bench, *, write: bool) -> None:
    """Measure rows; one that cannot be measured, or takes too long, has a line with the reason."""
    described = describe_run()
    print(f"{described} at the start", end="\n\n")
    for row in rows:
        print(f"{row.name}: {row.target}", flush=True)
        figures = []
        try:
            with time_limit(bench.budget):
                for figure in row.measure(bench):
                    figures.append(cells_of(row, figure))
                    show(figures[-1])
        except Exception as error:  # any failure of one row leaves the others
            why = f"not measured: {' '.join(str(error).split())[:120] or type(error).__name__}"
            show((row.name, why, "", "", "", "", ""))
            continue
        if write:
            DOCUMENT.write_text(replace_rows(DOCUMENT.read_text(), row.name, figures, described))
    print(f"\n{describe_load()} at the end")


def main() -> None:
    """Measure the chosen rows."""
    words = sorted({word for row in ROWS for word in (row.group, row.name)})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=words, default=words, metavar="ROW|GROUP")
    parser.add_argument("--quick", action="store_true", help="small sizes: at most 10,000 tasks")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each comparison")
    parser.add_argument("--budget", type=float, default=0, help="seconds for each row")
    parser.add_argument("--write", action="store_true", help="put the figures into BENCHMARKS.md")
    parser.add_argument("--list", action="store_true", help="print the rows and their targets")
    options = parser.parse_args()
    if options.write and options.quick:
        parser.error("--write needs the full sizes, without --quick")
    rows = [row for row in ROWS if {row.name, row.group} & set(options.only)]
    if options.list:
        print("\n".join(f"{row.group:8} {row.name:13} {row.target}" for row in rows))
        return
    rounds = options.rounds or (3 if options.quick else 5)
    budget = options.budget or (30.0 if options.quick else 120.0)
    bench = Bench(quick=options.quick, rounds=rounds, budget=budget)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: remove the places
    try:
        run(rows, bench, write=options.write)
    finally:
        bench.clear()


if __name__ == "__main__":
    main()
