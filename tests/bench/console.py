"""The console's rows: the real program on a pseudo terminal of 120x40."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from statistics import median

from tests.bench import index
from tests.bench.measure import (
    Bench,
    Figure,
    Figures,
    Unmeasurable,
    compare,
    interleave,
    memory_folder,
    scratch,
    task_text,
)
from tests.bench.terminal import Screen, console, empty_app, running

FIRST_FRAME, FIRST_ROWS = r"OBSERVE", r"row 1 of"
IDLE_LIMIT_SECONDS = 300.0
DOWN, PAGE, ESCAPE, ENTER = "j", "\x1b[6~", "\x1b", "\r"
LARGEST_MIB = {300: 50.0, 10_000: 60.0, 100_000: 60.0, 1_000_000: 100.0}


def start(bench: Bench) -> Figures:
    """CPU until the first frame and until the first rows, beside an empty app."""
    frames: dict[int, list[float]] = {number: [] for number in bench.sizes}

    def empty() -> float:
        with running(empty_app()) as screen:
            return screen.until("all is well").all

    def rows(number: int) -> float:
        with running(console("--open", "queue", bench.spool(number))) as screen:
            frames[number].append(screen.until(FIRST_FRAME).all)
            return screen.until(FIRST_ROWS).all

    ways: dict[str, Callable[[], float]] = {"empty": empty}
    ways |= {str(number): partial(rows, number) for number in bench.sizes}
    costs = interleave(ways, bench.rounds)
    beside = f"empty Textual {version('textual')} app"
    for number in bench.sizes:
        name, bare = f"{number:,} tasks", costs["empty"]
        yield compare(f"first frame, {name}", "ms CPU", frames[number], bare, beside, 1.4)
        yield compare(f"first rows, {name}", "ms CPU", costs[str(number)], bare, beside, 1.6)
    few, many = bench.sizes[0], bench.sizes[-1]
    what = f"first rows, {many:,} against {few:,}"
    yield compare(what, "ms CPU", costs[str(many)], costs[str(few)], "itself", 1.2)


@contextmanager
def at_rest(bench: Bench, number: int) -> Iterator[Screen]:
    """The console on a place of so many tasks, its index complete.

    The last one stays open for the next row, unless this block fails: to fill the index of a million
    tasks takes longer than most rows.
    """
    screen = bench.open_consoles.get(number)
    if screen is None:
        bench.close_consoles()
        root = bench.spool(number)
        with bench.outside_budget(IDLE_LIMIT_SECONDS):
            screen = Screen(console("--open", "queue", root))
            bench.open_consoles[number] = screen
            try:
                screen.until(FIRST_ROWS)
                screen.idle()
            except BaseException:
                bench.open_consoles.pop(number).close()
                raise
    try:
        yield screen
    except BaseException:
        bench.open_consoles.pop(number).close()
        raise


def keys(bench: Bench) -> Figures:
    """CPU of a key and of a page, beside a key that an empty app ignores."""
    with running(empty_app()) as empty:
        empty.until("all is well")
        empty.idle()
        ignored = median(empty.key("z").all for _ in range(15))
    yield Figure("a key that an empty app ignores", ignored, "ms CPU")
    with at_rest(bench, 10_000) as screen:
        for name, key, limit in (("a key", DOWN, 3.0), ("a page", PAGE, 8.0)):
            cost = median(screen.key(key).all for _ in range(15))
            yield Figure(f"{name} in a list of 10,000", cost, "ms CPU", limit)


def filter_keys(bench: Bench) -> Figures:
    """CPU of each letter of a filter, until the console is idle again."""
    for number in dict.fromkeys((10_000, bench.large)):
        with at_rest(bench, number) as screen:
            screen.key("/")
            costs = []
            for letter in "host7":
                before = screen.spent()
                screen.send(letter)
                costs.append(screen.idle().since(before))
            screen.send(ESCAPE)
            screen.idle()
            screen.send(ESCAPE)
            screen.idle()
        ui, others = (median(part) for part in zip(*((c.main, c.others) for c in costs), strict=True))
        what = f"a letter of a filter, {number:,}"
        if number == 10_000:
            yield Figure(what, ui + others, "ms CPU", 20.0)
        else:
            yield Figure(f"{what}, UI thread", ui, "ms CPU")
            yield Figure(f"{what}, other threads", others, "ms CPU", 100.0)


def plan(bench: Bench) -> Figures:
    """CPU of a purge plan of all tasks: until it shows its count, and until it is worked out."""
    number = bench.large
    select = index.bare_select(number)
    yield Figure(f"the SELECT of {number:,} rows", select, "ms CPU")
    with at_rest(bench, number) as screen:
        screen.key("/")
        screen.send("age>1h")
        screen.idle()
        mark = screen.mark
        screen.send(ENTER)
        screen.until(rf"acts on.*{number:,}|{number:,} match", mark, 20)
        screen.idle()
        memory, before, mark = screen.memory(), screen.spent(), screen.mark
        screen.send("X")
        frozen = screen.until(rf"PURGE {number:,} TASKS", mark).since(before)
        beside = f"SELECT by sqlite3 {index.SQLITE}"
        what = f"freeze {number:,} rows"
        yield Figure(what, frozen.all, "ms CPU", 1.5, select, beside)
        whole = screen.idle().since(before)
        what = "dry run: sizes, refusals, changes"
        yield Figure(what, whole.all - frozen.all, "ms CPU", 3.0, select, beside)
        yield Figure("memory more", screen.memory() - memory, "MiB", 30.0)
        screen.send(ESCAPE)
        screen.idle()


def memory(bench: Bench) -> Figures:
    """Resident memory once the index is complete and the console is idle."""
    with running(empty_app()) as empty:
        empty.until("all is well")
        yield Figure("an empty app", empty.memory(), "MiB")
    for number in reversed(bench.sizes):
        with at_rest(bench, number) as screen:
            yield Figure(f"{number:,} tasks", screen.rest_mib, "MiB", LARGEST_MIB[number])


CHANGES = """\
import os, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
began, n, names = time.time(), 0, []
while (now := time.time() - began) < seconds:
    while n < now * 1000:
        if n % 2:
            os.unlink(names.pop(0))
        else:
            name = f"20260101T000000Z-report-{n:08x}"
            with open(f"{folder}/../{n}", "w") as file:
                file.write(sys.argv[3].replace("NAME", name))
            names.append(f"{folder}/{name}.task")
            os.rename(f"{folder}/../{n}", names[-1])
        n += 1
    time.sleep(0.01)
for name in names:
    os.unlink(name)
print(n)
"""
"""A program that makes and removes 1,000 files a second."""


def changes(bench: Bench) -> Figures:
    """CPU while another program changes 1,000 files a second and a key is pressed each 300 ms."""
    seconds = 6.0 if bench.quick else 12.0
    text = task_text("NAME", "report", 1_767_225_600, int(time.time()) + 86400, 3).decode()
    with at_rest(bench, bench.large) as screen:
        folder = f"{bench.spool(bench.large)}/queue/pending"
        argv = [sys.executable, "-c", CHANGES, folder, str(seconds), text]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            pressed, waits = 0, []
            before, began = screen.spent(), time.perf_counter()
            while program.poll() is None:
                mark, sent = screen.mark, time.perf_counter()
                screen.send(DOWN)
                pressed += 1
                try:
                    screen.until(r"row [0-9,]+ of|[0-9]", mark, 3.0)
                    waits.append(time.perf_counter() - sent)
                except AssertionError:
                    pass
                while (left := sent + 0.3 - time.perf_counter()) > 0:
                    screen.read(left)
            share = screen.spent().since(before).all / (time.perf_counter() - began) / 10
            done = int(program.stdout.read()) if program.stdout else 0
        screen.idle()
    rate = f"{done / seconds:,.0f} changes/s at {bench.large:,}"
    yield Figure(rate, share, "% CPU", 30.0)
    yield Figure("keys unanswered after 3 s", pressed - len(waits), f"of {pressed}", 0.0)
    yield Figure("key to first output, median", 1000 * median(waits or [3]), "ms wall")


def events(bench: Bench) -> Figures:
    """Wall time from the rename of a changed task to its new text on the screen."""
    root = bench.spool(10_000)
    with at_rest(bench, 10_000) as screen:
        for order, key in (("by id", "g"), ("sorted by the next order", "o")):
            screen.send(key)
            screen.idle()
            waits, missed = [], 0
            for turn in range(10 if bench.quick else 25):
                sight = re.findall(r"acts on.*?([0-9a-f]{8})\b", screen.text())
                if not sight:
                    raise Unmeasurable("the line `acts on` names no task")
                word = f"changed{order[0]}{turn:03d}"
                mark = screen.mark
                began = _change(f"{root}/queue/pending", sight[-1], word)
                try:
                    screen.until(word, mark, 5.0)
                    waits.append(1000 * (time.perf_counter() - began))
                except AssertionError:
                    missed += 1
                screen.watch(0.1)
            what = f"event to screen, 10,000 {order}"
            yield Figure(what, median(waits or [5000.0]), "ms wall", 30.0)
            yield Figure("not shown within 5 s", missed, "events", 0.0)


def _change(folder: str, ending: str, word: str) -> float:
    """Replace a task by one with another description; return when."""
    (name,) = (name for name in os.listdir(folder) if name.endswith(f"-{ending}.task"))
    draft = f"{folder}/../{name}"
    with open(f"{folder}/{name}", "rb") as file:
        data = re.sub(rb'(?<=DESCRIPTION=")[^"]*', word.encode(), file.read())
    data = re.sub(rb'(?<=ERROR=")[^"]*', b"", data)
    with open(draft, "wb") as file:
        file.write(data)
    began = time.perf_counter()
    os.rename(draft, f"{folder}/{name}")
    return began


def places(bench: Bench) -> Figures:
    """Memory and idle CPU of a console that follows 20 places."""
    number = 500 if bench.quick else 50_000
    first = bench.spool(number)
    with bench.outside_budget(IDLE_LIMIT_SECONDS):
        bench.close_consoles()
        with scratch(memory_folder(20 * number)) as folder:
            roots = [f"{folder}/place{n:02}" for n in range(20)]
            for root in roots:
                subprocess.run(["cp", "-a", first, root], check=True)
            with running(console("--open", "overview", *roots)) as screen:
                screen.until("OBSERVE")
                screen.idle()
                yield Figure(f"20 places of {number:,}", screen.memory(), "MiB", 120.0)
                seconds = 6.0 if bench.quick else 30.0
                yield Figure(f"idle for {seconds:.0f} s", screen.watch(seconds), "% CPU", 1.0)
