"""The rows of the log screen, on a log of 1 GiB, beside grep."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.bench.measure import Bench, Figure, Figures, command, cpu_of, fill_spool, scratch
from tests.bench.terminal import console, running

LAST_LINE = "the last line of this log"
LEVELS = ("INFO", "INFO", "SUCCESS", "DEBUG", "WARN", "ERROR")
MINUTE = b"2026-01-01 00:00"
MIB = 1 << 20


def _write_log(path: str, size: int) -> None:
    """Lines of the contract, of 1,000 tasks a second: 16 MiB a minute, 1 GiB in about an hour."""
    lines, length, number = [], 0, 0
    while length < MIB:
        name = f"20260101T000000Z-report-{number:08x}"
        line = f"[{MINUTE.decode()}:00] [{LEVELS[number % 6]}] Task {name} failed, retry in 60s\n"
        lines.append(line)
        length, number = length + len(line), number + 1
    block = "".join(lines).encode()
    with open(path, "wb") as file:
        for part in range(size // MIB):
            when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(1_767_225_600 + 60 * (part // 16)))
            file.write(block.replace(MINUTE, when.encode()))
        file.write(f"[{when}:59] [ERROR] {LAST_LINE}\n".encode())


@contextmanager
def _place(size: int) -> Iterator[str]:
    """A place whose log has this size; yields the path of the log."""
    with scratch(size // 5000) as folder:
        fill_spool(f"{folder}/place", 10)
        path = f"{folder}/place/log/queue.log"
        _write_log(path, size)
        yield path


def _open(path: str) -> list[str]:
    return console("--open", "log", path.removesuffix("/log/queue.log"))


def first_screen(bench: Bench) -> Figures:
    """CPU until the last line is on the screen, beside that of a small log."""
    size, name = bench.log_size

    def until_shown(path: str) -> float:
        with running(_open(path)) as screen:
            return screen.until(LAST_LINE).all

    with _place(MIB) as small, _place(size) as large:
        ways = partial(until_shown, large), partial(until_shown, small)
        yield bench.versus(f"first screen of {name}", "ms CPU", ways, "the same of 1 MiB", 1.2)


def _beside_grep(
    bench: Bench, word: str, steps: Sequence[tuple[str, tuple[str, ...], float | None]]
) -> Figures:
    """For each step, its name, keys and limit: the CPU of the keys, beside grep for a word."""
    size, name = bench.log_size
    baseline = f"grep -F {command('grep', '-V').splitlines()[0].split()[-1]}"
    with _place(size) as path:
        argv = ["grep", "-c", "-F", word, path]
        grep = min(cpu_of(argv, ok=(0, 1)) for _ in range(4))
        with running(_open(path)) as screen:
            screen.until(LAST_LINE)
            screen.idle()
            for what, keys, limit in steps:
                spent = sum(screen.work(key).all for key in keys)
                what = f"{what} in {name}"
                yield Figure(what, spent, "ms CPU", limit, floor=grep, beside=baseline)


def search(bench: Bench) -> Figures:
    """Search upwards from the end for a word that does not occur, then show only its lines."""
    steps = (
        ("search for an absent word", ("/", "zebra", "\r", "N"), 1.5),
        ("only lines with an absent word", ("&", "zebra", "\r"), None),
    )
    yield from _beside_grep(bench, "zebra", steps)


def level(bench: Bench) -> Figures:
    """Raise the minimum level from all lines to warnings."""
    yield from _beside_grep(bench, "[ERROR]", (("warnings and errors", ("+", "+"), 3.0),))
