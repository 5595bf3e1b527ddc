"""The rows of scan and index: ours beside the same system calls, or the same SELECT, alone."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median

from engine.formats.nftban.store import NftbanStore, SpoolFolders
from engine.index.filter_language import SEARCHED_COLUMNS
from engine.live.inspector import Inspector
from engine.model import attempts_allowed
from tests.bench.measure import (
    ERRORS,
    KINDS,
    PYTHON,
    SPOOLDECK,
    Bench,
    Figure,
    Figures,
    Ways,
    compare,
    cpu_of,
    cpu_seconds,
    interleave,
    per_task,
    scratch,
)

SQLITE = sqlite3.sqlite_version
_LINES = re.compile(rb'([A-Z_]+)="([^"\n]*)"\n')


def _bare_scan(folder: str) -> None:
    """scandir, open, fstat, read, close and one regular expression for each file."""
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            fd = os.open(entry.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            os.fstat(fd)
            data = os.read(fd, 65537)
            os.close(fd)
            count += len(_LINES.findall(data))


def _open_store(root: str) -> NftbanStore:
    queue = f"{root}/queue"
    return NftbanStore(SpoolFolders(f"{queue}/pending", f"{queue}/work", f"{queue}/dlq"))


def _scan(root: str) -> None:
    store = _open_store(root)
    for _ in store.scan():
        pass
    store.close()


def _fill_index(root: str) -> None:
    """Follow the store until its first full scan has ended."""

    async def follow() -> None:
        inspector = Inspector(lambda: _open_store(root), limit=attempts_allowed)
        await inspector.start()
        try:
            generation = -1
            while not inspector.latest.is_complete:
                generation = (await inspector.wait_for_change(generation)).generation
        finally:
            await inspector.close()

    asyncio.run(follow())


def scan(bench: Bench) -> Figures:
    """CPU of a full scan, and of one into an index, a task."""
    grown: dict[str, list[float]] = {"full scan": [], "scan with index": []}
    for number in (1_000, 10_000) if bench.quick else (10_000, 100_000, 1_000_000):
        root = bench.spool(number)
        bare = partial(cpu_seconds, partial(_bare_scan, f"{root}/queue/pending"))
        if number > 10_000:  # once is enough, and takes seconds
            bare = partial(float, bare())
        for name, work in (("full scan", _scan), ("scan with index", _fill_index)):
            variants: Ways = {"bare": bare, "ours": partial(cpu_seconds, partial(work, root))}
            costs = interleave(variants, bench.rounds if number <= 10_000 else 1)
            a_task = per_task(costs, number)
            what, limit = f"{name}, {number:,}, a task", 2.5 if work is _scan else 3.5
            yield compare(what, "us CPU", (a_task["ours"], a_task["bare"]), "bare scan", limit)
            grown[name].append(median(a_task["ours"]))
    for name, (first, *_, last) in grown.items():
        what = f"growth of the {name}"
        yield Figure(what, last, "us CPU", 1.2, floor=first, beside="itself, smallest")


@contextmanager
def _bare_table(number: int) -> Iterator[sqlite3.Connection]:
    """A table with so many rows of the size of an index row, sorted by id."""

    def rows() -> Iterator[tuple[str | int | float, ...]]:
        for n in range(number):
            kind, error = KINDS[n % 3], ERRORS[n % 3] if n % 5 < 2 else ""
            name, mail = f"20261121T053343Z-{kind}-{n:08x}", f"mail to user{n % 5000}@host{n % 200}"
            yield name, kind, 0, f"{n:x}.18ea177b.15c", 1.0 + n, mail, error, "x" * 100

    with scratch(number // 10) as folder:
        database = sqlite3.connect(f"{folder}/rows", isolation_level=None)
        database.execute("PRAGMA synchronous=OFF")
        database.execute("PRAGMA page_size=8192")
        database.execute(
            "CREATE TABLE task(id TEXT, kind TEXT, state INT, rev TEXT, created REAL, "
            "description TEXT, error TEXT, rest TEXT, queue TEXT, destination TEXT)"
        )
        database.execute("BEGIN")
        database.executemany("INSERT INTO task VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', '')", rows())
        database.execute("CREATE UNIQUE INDEX by_id ON task(state, id)")
        database.execute("COMMIT")
        yield database
        database.close()


def bare_select(number: int) -> float:
    """Milliseconds of CPU to read so many rows in the order of ids."""
    with _bare_table(number) as database:

        def select() -> None:
            text = "SELECT id, state, rev, created FROM task WHERE state = 0 ORDER BY id"
            row = database.execute(text)
            while row.fetchmany(500):
                pass

        return 1000 * min(cpu_seconds(select) for _ in range(3))


def bare_searches(number: int, words: Sequence[str]) -> list[float]:
    """Milliseconds of CPU to count the rows with each word in one of the searched columns."""
    like = " OR ".join(f"{column} LIKE ?" for column in SEARCHED_COLUMNS)
    with _bare_table(number) as database:

        def count(word: str) -> None:
            values = [f"%{word}%"] * len(SEARCHED_COLUMNS)
            database.execute(
                f"SELECT count(*) FROM task NOT INDEXED WHERE state = 0 AND ({like})", values
            ).fetchall()

        return [1000 * cpu_seconds(partial(count, word)) for word in words]


LISTING = "import os, sys; [os.listdir(sys.argv[1] + name) for name in ('pending', 'work', 'dlq')]"


def status(bench: Bench) -> Figures:
    """CPU of `status`, beside a Python that lists the three folders; and what the tasks add to
    both."""
    few, many = (300, 10_000) if bench.quick else (300, 100_000)
    ways: Ways = {"bare": partial(cpu_of, [sys.executable, "-c", "pass"])}
    for number in (few, many):
        root = bench.spool(number)
        ways[f"ours {number}"] = partial(cpu_of, [SPOOLDECK, "status", root], ok=(0, 1))
        listing = [sys.executable, "-c", LISTING, f"{root}/queue/"]
        ways[f"listing {number}"] = partial(cpu_of, listing)
    costs = interleave(ways, 2 * bench.rounds)
    beside = f"listing by {PYTHON}"
    for number in (few, many):
        both = costs[f"ours {number}"], costs[f"listing {number}"]
        yield compare(f"status, {number:,}", "ms CPU", both, beside, None)
    pairs = ((f"ours {many}", f"ours {few}"), (f"listing {many}", "bare"))
    ours, floor = (
        [more - less for more, less in zip(costs[a], costs[b], strict=True)] for a, b in pairs
    )
    what = f"{many:,} minus {few:,}"
    yield compare(what, "ms CPU", (ours, floor), f"{beside} minus an empty one", 1.4)
