"""The wire: what is counted, what is told of it, and when the console paints less often."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.tui.ptys import Terminal, console
from tests.tui.spools import Clock, make_spool, some_tasks
from tui.terminal.bandwidth import (
    IDLE_SAMPLES,
    PERIODS_SECONDS,
    SSH_BUDGET,
    BandwidthBudget,
    budget_for,
    choose_period,
)

BUDGET = 1000.0
"""Bytes a second."""


class Line:
    """A wire whose other end is the test: time and bytes go by as it calls."""

    def __init__(self) -> None:
        self.clock, self.written, self.operating = Clock(0.0), 0, False
        self.wire = BandwidthBudget(
            lambda: self.written, self.clock, BUDGET, lambda: self.operating
        )

    def seconds(self, count: int, size: int, seconds: float = 1.0) -> None:
        """So many samples, each after so many seconds and bytes."""
        for _ in range(count):
            self.clock.now += seconds
            self.written += size
            self.wire.measure()

    def paintings(self, count: int, size: int) -> None:
        """Let seconds go by in which the console paints so much whenever the pace lets it."""
        for _ in range(count):
            self.seconds(1, 0 if self.wire.skips_repaint else size)


@pytest.mark.parametrize(
    ("period", "share", "then"),
    [
        *((1.0, 1.0, 1.0), (1.0, 1.001, 2.0), (2.0, 1.001, 5.0), (5.0, 100, 5.0)),
        *((5.0, 0.31, 2.0), (5.0, 0.33, 5.0), (2.0, 0.39, 1.0), (2.0, 0.41, 2.0), (1.0, 0.0, 1.0)),
    ],
)
def test_the_pace(period: float, share: float, then: float) -> None:
    """Over budget it slows down by a step; it speeds up only where the faster pace has room."""
    assert choose_period(period, share * BUDGET, BUDGET) == then


@pytest.mark.parametrize("size", [0, 900, 1100, 1900, 2100, 9000])
def test_a_pace_is_kept(size: int) -> None:
    """A console that paints the same each time settles at one pace and does not swing."""
    line, periods = Line(), set()
    line.paintings(60, size)
    for _ in range(60):
        line.paintings(1, size)
        periods.add(line.wire.period)
    (period,) = periods
    assert size / period <= BUDGET or period == PERIODS_SECONDS[-1]


@pytest.mark.parametrize(
    ("environ", "asked", "budget"),
    [
        ({}, 0, math.inf),
        ({"SSH_CONNECTION": "203.0.113.4 50022 10.0.0.2 22"}, 0, SSH_BUDGET),
        ({"SSH_TTY": "/dev/pts/3"}, 0, SSH_BUDGET),
        ({"SSH_CONNECTION": "", "SSH_TTY": ""}, 0, math.inf),
        ({}, 500, 500),
        ({"SSH_TTY": "/dev/pts/3"}, 500, 500),
    ],
)
def test_only_ssh_and_an_option_limit_the_bytes(
    environ: dict[str, str], asked: float, budget: float
) -> None:
    """A local terminal has no limit; SSH has one; an option sets it on both."""
    assert budget_for(environ, asked) == budget


def test_over_budget_it_slows_down_and_says_so() -> None:
    """The rate is shown, and the pace unless it is the usual one; under budget that comes back."""
    line = Line()
    assert line.wire.describe_rate() == "0.0kB/s"
    line.seconds(IDLE_SAMPLES + 2, 1400)
    assert line.wire.describe_rate() == "1.4kB/s each 2s"
    still = []
    for _ in range(4):
        line.paintings(1, 1400)
        still.append(line.wire.skips_repaint)
    assert still in ([True, False] * 2, [False, True] * 2)

    line.seconds(3 * IDLE_SAMPLES, 9000)
    assert line.wire.period == PERIODS_SECONDS[-1]
    line.operating, repainted = True, []
    for _ in range(3 * IDLE_SAMPLES):
        repainted.append(not line.wire.skips_repaint)
        line.seconds(1, 90)
    assert all(repainted)
    line.operating = False
    assert line.wire.period == PERIODS_SECONDS[-1]

    line.seconds(3 * IDLE_SAMPLES, 9000)
    assert line.wire.period == PERIODS_SECONDS[-1]
    line.seconds(3 * IDLE_SAMPLES, 90)
    assert line.wire.describe_rate() == "0.1kB/s"


def test_answers_to_keys_and_time_away_slow_nothing_down() -> None:
    """Neither the answers to keys nor a whole screen after a minute's stop change the pace."""
    line = Line()
    for _ in range(60):
        line.wire.note_key()
        line.seconds(1, 11_000)
    assert (line.wire.period, line.wire.describe_rate()) == (PERIODS_SECONDS[0], "11kB/s")
    line = Line()
    line.seconds(IDLE_SAMPLES, 0)
    line.seconds(IDLE_SAMPLES, 33_000, seconds=60.0)
    assert line.wire.period == PERIODS_SECONDS[0]


@pytest.mark.parametrize(
    ("key", "size", "most"),
    [("j", (80, 24), 700), ("j", (120, 40), 700), ("\x1b[6~", (120, 40), 11_000)],
    ids=["cursor 80x24", "cursor 120x40", "page 120x40"],
)
def test_a_key_is_answered_in_few_bytes(
    tmp_path: Path, key: str, size: tuple[int, int], most: int
) -> None:
    """A move of the cursor and a page cost no more of a slow line than what changes on screen."""
    make_spool(tmp_path, some_tasks(200))
    with console("--open", "queue", str(tmp_path), size=size) as terminal:
        terminal.shows("acts on ", "row 1 of 200")
        least = min(answer(terminal, key) for _ in range(6))  # once a second more is painted
    assert least <= most


def answer(terminal: Terminal, key: str) -> int:
    """Bytes from a key to the line that says what is under the cursor now."""
    scope, before = scope_line(terminal), len(terminal.said)
    terminal.send(key)
    terminal.until(lambda: scope_line(terminal) not in (scope, ""))
    return len(terminal.said) - before


def scope_line(terminal: Terminal) -> str:
    """What the console says that an action would be for."""
    return next((line for line in terminal.screen.lines if "acts on" in line), "")


def test_what_lies_below_costs_nothing(tmp_path: Path) -> None:
    """A screen that covers the overview sends its own clock each second, and no more for it."""
    make_spool(tmp_path, some_tasks(200))
    with console(str(tmp_path)) as terminal:
        terminal.shows("QUEUE", "PEND")
        terminal.send("2")
        terminal.shows("acts on ")
        least = min(tick(terminal) for _ in range(4))
    assert least <= 200


def tick(terminal: Terminal) -> int:
    """Bytes until the clock in the first line shows another second."""
    first, before = terminal.screen.lines[0], len(terminal.said)
    terminal.until(lambda: terminal.screen.lines[0] != first)
    return len(terminal.said) - before
