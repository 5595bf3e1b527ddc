"""The console's rows: the real program on a pseudo terminal of 120x40."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from itertools import cycle
from statistics import median

from tests.bench import index
from tests.bench.measure import (
    ROOT,
    Bench,
    Figure,
    Figures,
    Ways,
    command,
    compare,
    interleave,
    scratch,
    task_text,
)
from tests.bench.terminal import Screen, Spent, console, empty_app, event_waits, running
from tests.bench.traffic import make_places, paths_in
from tests.redis_server import running_server

FIRST_FRAME, FIRST_ROWS = r"OBSERVE", r"row 1 of"
IDLE_LIMIT_SECONDS = 300.0
DOWN, UP, PAGE, ESCAPE, CURSOR = "j", "k", "\x1b[6~", "\x1b", "▶"
FREQUENT, ABSENT = "7193", "q"
"""A word of which each letter leaves fewer tasks, so that the count changes; a letter in none."""
KEY_SECONDS, EVENT_SECONDS, LETTER_SECONDS = 3.0, 5.0, 10.0
PLACES_IDLE_MS, PLACES_SECONDS = 75.0, 150.0
"""20 places count as scanned below this CPU in half a second, or after this time."""
RUN_SECONDS, RUN_TASKS, RUN_DEAD, RUN_MIB = 600.0, 36_000, 3_000, 100.0
RUN_KEY_SECONDS = 0.3
RUN_KEYS = [
    {"P": PAGE, "^": ESCAPE}.get(key, key)
    for key in "1jz2j\rll^3j\r^4jPG\rll]^c\r^^4/550\r^X^5\r^6j7PG8j9?P^:lo^wiwi1]"
]
"""Keys through all screens, and to the next place; a plan is built and left, nothing is written."""
LARGEST_MIB = {300: 48.0, 10_000: 60.0, 100_000: 60.0, 1_000_000: 100.0}


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

    variants: Ways = {"empty": empty}
    variants |= {str(number): partial(rows, number) for number in bench.sizes}
    costs = interleave(variants, bench.rounds)
    baseline = f"empty Textual {version('textual')} app"
    for number in bench.sizes:
        name, bare = f"{number:,} tasks", costs["empty"]
        yield compare(f"first frame, {name}", "ms CPU", (frames[number], bare), baseline, 1.6)
        yield compare(f"first rows, {name}", "ms CPU", (costs[str(number)], bare), baseline, 1.7)
    few, many = bench.sizes[0], bench.sizes[-1]
    what = f"first rows, {many:,} against {few:,}"
    yield compare(what, "ms CPU", (costs[str(many)], costs[str(few)]), "itself", 1.2)


@contextmanager
def at_rest(bench: Bench, number: int) -> Iterator[Screen]:
    """The console on so many tasks, its index complete; it stays open for the next row."""
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
    """CPU of each letter of a filter, until its first rows are shown, and until it is counted."""
    for number in dict.fromkeys((10_000, bench.large)):
        with at_rest(bench, number) as screen:
            screen.work("/")
            letters = [_filter_letter(screen, letter, number) for letter in FREQUENT]
            screen.work("\x7f" * len(FREQUENT))
            absent = _filter_letter(screen, ABSENT, number)
            screen.work(ESCAPE)
            screen.work(ESCAPE)
        what, baseline = f"a letter of a filter, {number:,}", f"SELECT by sqlite3 {index.SQLITE}"
        whole = median(spent.all for _, _, spent in letters)
        if number == 10_000:
            yield Figure(what, whole, "ms CPU", 20.0)
            continue
        words = [*(FREQUENT[: n + 1] for n in range(len(FREQUENT))), ABSENT]
        *counts, nothing = index.bare_searches(number, words)
        wall, _, spent = absent
        for more, values, unit, limit in (
            (", first rows", (wall for wall, *_ in letters), "ms wall", 100.0),
            (", first rows, others", (first.others for _, first, _ in letters), "ms CPU", 100.0),
            (", whole result, UI", (spent.main for _, _, spent in letters), "ms CPU", None),
        ):
            yield Figure(f"{what}{more}", median(values), unit, limit)
        others = median(spent.others for _, _, spent in letters)
        for name, ours, floor in (
            (f"{what}, whole result", others, median(counts)),
            ("a letter that matches none", spent.others, nothing),
        ):
            yield Figure(name, ours, "ms CPU", 1.5, floor=floor, beside=baseline)
        yield Figure("the same", wall, "ms wall")


def _filter_letter(screen: Screen, letter: str, number: int) -> tuple[float, Spent, Spent]:
    """Type a letter; return the milliseconds and the cost to its first rows, and the whole cost."""
    count = rf"(\?|[\d,]+) of {number:,}"
    shown, before, began = screen.find(count), screen.spent(), time.perf_counter()
    screen.send(letter)
    first = screen.until_other(count, shown, LETTER_SECONDS).since(before)
    wall = 1000 * (time.perf_counter() - began)
    rest = screen.work("")
    return wall, first, Spent(first.all + rest.all, first.main + rest.main)


def plan(bench: Bench) -> Figures:
    """CPU of a purge plan of all tasks: until it shows its count, and until it is worked out."""
    number = bench.large
    select, baseline = index.bare_select(number), f"SELECT by sqlite3 {index.SQLITE}"
    with at_rest(bench, number) as screen:
        screen.work("*")
        held, before, mark = screen.memory(), screen.spent(), screen.mark
        screen.send("X")
        frozen = screen.until(rf"{number:,} TASKS", mark).since(before).all
        yield Figure(f"freeze {number:,} rows", frozen, "ms CPU", 1.5, select, beside=baseline)
        what, dry = "dry run: sizes, refusals, changes", screen.work("").all
        yield Figure(what, dry, "ms CPU", 3.0, select, beside=baseline)
        yield Figure("memory more", screen.memory() - held, "MiB", 30.0)
    bench.close_consoles()  # this one has marks now


def memory(bench: Bench) -> Figures:
    """Resident memory once the index is complete and the console is idle."""
    with running(empty_app()) as empty:
        empty.until("all is well")
        yield Figure("an empty app", empty.memory(), "MiB")
    for number in bench.sizes:
        if number < bench.large:
            with running(console("--open", "queue", bench.spool(number))) as screen:
                screen.until(FIRST_ROWS)
                screen.idle()
        else:
            with at_rest(bench, number) as screen:
                pass
        yield Figure(f"{number:,} tasks", screen.rest_mib, "MiB", LARGEST_MIB[number])


def idle(bench: Bench) -> Figures:
    """Processor time of one console that shows a list and is left alone."""
    seconds = 6.0 if bench.quick else 30.0
    with running(console("--open", "queue", bench.spool(10_000))) as screen:
        screen.until(FIRST_ROWS)
        screen.idle()
        yield Figure(f"10,000 tasks, for {seconds:.0f} s", screen.watch(seconds), "% CPU", 0.5)


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
            assert program.stdout is not None
            pressed, waits = 0, []
            before, began = screen.spent(), time.perf_counter()
            while program.poll() is None:
                mark, sent = screen.mark, time.perf_counter()
                screen.send(DOWN if pressed % 2 == 0 else UP)
                pressed += 1
                with suppress(AssertionError):
                    screen.until(CURSOR, mark, KEY_SECONDS)
                    waits.append(1000 * (time.perf_counter() - sent))
                while (left := sent + 0.3 - time.perf_counter()) > 0:
                    screen.read(left)
            share = screen.spent().since(before).all / (time.perf_counter() - began) / 10
            done = int(program.stdout.read())
        screen.idle()
    yield Figure(f"{done / seconds:,.0f} changes/s at {bench.large:,}", share, "% CPU", 30.0)
    missed = f"keys of {pressed} unanswered after {KEY_SECONDS:g} s"
    yield Figure(missed, pressed - len(waits), "keys", 0.0)
    yield Figure("key to cursor, median", median(waits or [1e3 * KEY_SECONDS]), "ms wall")


def events(bench: Bench) -> Figures:
    """Wall time from the rename of a changed task to its new text on the screen."""
    bench.close_consoles()  # the cursor of a new one is on the oldest task, also sorted by age
    folder, turns = f"{bench.spool(10_000)}/queue/pending", 10 if bench.quick else 25
    with at_rest(bench, 10_000) as screen:
        for order, keys in (("by id", ""), ("sorted by age", "oa")):
            for key in keys:
                screen.send(key)
                screen.idle()
            delay, missed = event_waits(screen, partial(_change, folder), turns, EVENT_SECONDS)
            yield Figure(f"event to screen, 10,000 {order}", delay, "ms wall", 30.0)
            what = f"events of {turns} not shown after {EVENT_SECONDS:g} s"
            yield Figure(what, missed, "events", 0.0)


def _change(folder: str, word: str) -> float:
    """Replace the oldest task by one with another description; return when."""
    (name,) = (name for name in os.listdir(folder) if name.endswith("-00000000.task"))
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
    bench.clear()
    first, limit = bench.spool(number), bench.outside_budget(IDLE_LIMIT_SECONDS)
    with limit, scratch(20 * number) as folder:
        roots = [f"{folder}/place{n:02}" for n in range(20)]
        for root in roots:
            command("cp", "-a", first, root)
        with running(console("--open", "overview", *roots)) as screen:
            screen.until(FIRST_FRAME)
            screen.idle(PLACES_IDLE_MS, PLACES_SECONDS)
            yield Figure(f"20 places of {number:,}", screen.memory(), "MiB", 120.0)
            seconds = 6.0 if bench.quick else 30.0
            yield Figure(f"idle for {seconds:.0f} s", screen.watch(seconds), "% CPU", 1.0)


def long_run(bench: Bench) -> Figures:
    """Memory of a console of four formats while tasks come and go and keys are pressed."""
    parts = 10 if bench.quick else 1
    seconds, number = RUN_SECONDS / parts, RUN_TASKS // parts
    bench.close_consoles()
    with (
        bench.outside_budget(IDLE_LIMIT_SECONDS + seconds),
        running_server() as server,
        scratch(RUN_DEAD) as folder,
    ):
        url = server.place()
        make_places(folder, url, RUN_DEAD)
        argv = [sys.executable, "-m", "tests.bench.traffic", folder, url, str(RUN_DEAD + 1)]
        argv += [str(number), str(seconds)]
        with running(console("--open", "overview", *paths_in(folder), url)) as screen:
            screen.until(FIRST_FRAME)
            screen.idle(PLACES_IDLE_MS, PLACES_SECONDS)
            yield Figure(f"4 formats, {RUN_DEAD:,} dead, at rest", screen.memory(), "MiB")
            began, pressed, keys = time.perf_counter(), 0, cycle(RUN_KEYS)
            with subprocess.Popen(argv, stdout=subprocess.DEVNULL, cwd=ROOT) as program:
                for tenth in range(1, 11):
                    while (at := began + tenth * seconds / 10) > time.perf_counter():
                        screen.send(next(keys))
                        pressed += 1
                        screen.watch(min(RUN_KEY_SECONDS, at - time.perf_counter()))
                    tasks = f"{tenth * number // 10:,} tasks, {pressed:,} keys"
                    yield Figure(tasks, screen.memory(), "MiB", RUN_MIB if tenth == 10 else None)
                assert program.wait() == 0, "the tasks did not come and go"
