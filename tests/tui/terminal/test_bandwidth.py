"""The wire: what is counted, what is shown, and when the console paints less often."""

from __future__ import annotations

import math
import os
import pty
import threading
import time
from pathlib import Path

import pytest

from tests.console_places import Clock, make_spool, some_tasks
from tests.pseudo_terminals import Screen, Terminal, console
from tests.tables import each
from tui.terminal.bandwidth import (
    IDLE_SAMPLES,
    PERIODS_SECONDS,
    SLOW_LINK_BUDGET,
    SLOW_LINK_SECONDS,
    SLOW_WAIT_SECONDS,
    BandwidthBudget,
    LinkLimit,
    OutputWait,
    choose_period,
    limit_for,
)
from tui.terminal.driver import Output
from tui.text.glyphs import UTF8 as UTF8_GLYPHS

BUDGET = 1000.0
"""Bytes a second."""


class Line:
    """A wire whose other end is the test: time and bytes go by as it calls."""

    def __init__(self, only_if_slow: bool = False) -> None:
        self.clock, self.written, self.operating = Clock(0.0), 0, False
        self.wait = OutputWait()
        limit = LinkLimit(BUDGET, only_if_slow)
        self.wire = BandwidthBudget(
            lambda: self.written, self.clock, limit, lambda: self.operating, lambda: self.wait
        )

    def seconds(self, count: int, size: int, seconds: float = 1.0) -> None:
        """So many samples, each after so many seconds and bytes."""
        for _ in range(count):
            self.clock.now += seconds
            self.written += size
            self.wire.measure()

    def paintings(self, count: int, size: int) -> bool:
        """Let seconds go by in which the console paints so much whenever the pace lets it; whether
        it does not paint in the next one."""
        for _ in range(count):
            self.seconds(1, 0 if self.wire.skips_repaint else size)
        return self.wire.skips_repaint


@each(("period", "share", "then"), [
    (1.0, 1.0, 1.0),
    (1.0, 1.001, 2.0),
    (2.0, 1.001, 5.0),
    (5.0, 1.001, 10.0),
    (10.0, 100, 10.0),
    (10.0, 0.39, 5.0),
    (5.0, 0.31, 2.0),
    (5.0, 0.33, 5.0),
    (2.0, 0.39, 1.0),
    (2.0, 0.41, 2.0),
    (1.0, 0.0, 1.0),
])  # fmt: skip
def test_the_pace(period: float, share: float, then: float) -> None:
    """Over budget it slows down by a step; it speeds up only where the faster pace has room."""
    assert choose_period(period, share * BUDGET, BUDGET) == then


@each("size", [0, 900, 1100, 1900, 2100, 9000])
def test_a_pace_is_kept(size: int) -> None:
    """A console that paints the same each time settles at one pace and does not swing."""
    line, periods = Line(), set()
    line.paintings(60, size)
    for _ in range(60):
        line.paintings(1, size)
        periods.add(line.wire.period)
    (period,) = periods
    assert size / period <= BUDGET or period == PERIODS_SECONDS[-1]


@each(("environ", "asked", "limit"), [
    ({}, 0, LinkLimit(math.inf)),
    ({"SSH_CONNECTION": "203.0.113.4 50022 10.0.0.2 22"}, 0, LinkLimit(SLOW_LINK_BUDGET, True)),
    ({"SSH_TTY": "/dev/pts/3"}, 0, LinkLimit(SLOW_LINK_BUDGET, True)),
    ({"SSH_CONNECTION": "", "SSH_TTY": ""}, 0, LinkLimit(math.inf)),
    ({}, 500, LinkLimit(500)),
    ({"SSH_TTY": "/dev/pts/3"}, 500, LinkLimit(500)),
])  # fmt: skip
def test_only_ssh_and_an_option_limit_the_bytes(
    environ: dict[str, str], asked: float, limit: LinkLimit
) -> None:
    """A local terminal has no limit; a slow link over SSH has one; an option sets it on both."""
    assert limit_for(environ, asked) == limit


def test_a_fast_link_has_no_budget() -> None:
    """Over SSH the budget applies once output had to wait, until a minute after the last wait."""
    line = Line(only_if_slow=True)
    for longest, seconds, pace in (
        (0.0, 3 * IDLE_SAMPLES, 0),
        (0.25, 1, 1),
        (0.15, 3 * IDLE_SAMPLES, -1),
        (0.15, round(SLOW_LINK_SECONDS), 0),
    ):
        line.wait = OutputWait(0.0, longest)
        line.seconds(seconds, 9000)
        assert line.wire.period == PERIODS_SECONDS[pace], (longest, seconds)


@pytest.mark.parametrize(("taken", "period"), [(2000, 1.0), (1000, 2.0), (500, 5.0), (9, 5.0)])
def test_the_budget_follows_what_a_slow_link_takes(taken: int, period: float) -> None:
    """Repaints without a key use at most half of what the terminal took while output waited."""
    line = Line(only_if_slow=True)
    line.wait = OutputWait(0.0, 0.25)
    for _ in range(4):
        line.wire.note_key()  # the answers to keys are more than the link takes
        line.seconds(1, taken)
    line.wait = OutputWait()
    line.paintings(5 * IDLE_SAMPLES, 900)
    assert line.wire.period == period


@each(
    ("taken", "seconds", "period"),
    [
        ((4000, 0, 0, 0), 1.0, 2.0),  # 1,000 bytes a second
        ((0, 1600, 1600, 1600, 1600), 1.0, 1.0),  # 1,600: not the idle second before the wait
        ((900, *[0] * 35, 900, 900, 900), 1.0, 1.0),
        ((900, 2000, 2000, 2000, 2000), 3600.0, 1.0),
    ],
)
def test_the_speed_of_a_slow_link_is_of_what_it_took(
    taken: tuple[int, ...], seconds: float, period: float
) -> None:
    """A frame that kernel and sshd took at once counts with the seconds that the link needs for it;
    seconds for which the terminal, or the console itself, was stopped say nothing of the link."""
    line = Line(only_if_slow=True)
    for number, size in enumerate(taken):
        waited = float(number)
        line.wait = OutputWait(waited, waited)
        line.wire.note_key()
        line.seconds(1, size, seconds if number == 1 else 1.0)
    line.wait = OutputWait()
    line.paintings(5 * IDLE_SAMPLES, 700)
    assert line.wire.period == period


def test_side_panes_wait_on_a_slow_link() -> None:
    """They are repainted with the rest on a fast link; on a slow one seldom, and not while output
    waits, a key is answered, or more is sent than the budget."""
    line = Line(only_if_slow=True)
    line.seconds(3, 100)
    assert line.wire.pane_seconds == 0.0
    for now, longest, pressed, seconds in (
        (0.0, 0.25, False, 5.0),
        (0.3, 0.3, False, math.inf),
        (0.0, 0.0, True, math.inf),
        (0.0, 0.0, False, 5.0),
    ):
        line.wait = OutputWait(now, longest)
        if pressed:
            line.wire.note_key()
        line.seconds(1, 100)
        assert line.wire.pane_seconds == seconds, (now, pressed)
    line.seconds(1, 6000)
    assert line.wire.pane_seconds == math.inf
    assert Line().wire.pane_seconds == 0.0


def test_while_output_waits_no_frame_is_painted() -> None:
    """Another frame would wait behind it, also one of a running operation."""
    line = Line()
    line.operating = True
    for now, size in ((3.0, 0), (0.0, 900)):
        line.wait = OutputWait(now, 3.0)
        line.seconds(1, size)
        assert line.wire.skips_repaint is (now > 0)


def test_over_budget_it_slows_down_and_says_so() -> None:
    """The rate is shown, and the pace unless it is the usual one; under budget that comes back."""
    line = Line()
    assert line.wire.describe_rate() == "0.0kB/s"
    line.seconds(IDLE_SAMPLES + 2, 1400)
    assert line.wire.describe_rate() == "1.4kB/s, refresh 2s"
    first, *still = [line.paintings(1, 1400) for _ in range(4)]
    assert still == [not first, first, not first]

    line.seconds(3 * IDLE_SAMPLES, 9000)
    assert line.wire.period == PERIODS_SECONDS[-1]
    line.operating, repainted = True, []
    for _ in range(3 * IDLE_SAMPLES):
        repainted.append(not line.wire.skips_repaint)
        line.seconds(1, 90)
    assert all(repainted)
    line.operating = False
    for seconds in (0, 3 * IDLE_SAMPLES):
        line.seconds(seconds, 9000)
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


def answer(terminal: Terminal, key: str) -> int:
    """Bytes from a key to the line that says what is under the cursor now."""
    scope, before = scope_line(terminal), len(terminal.said)
    terminal.send(key)
    terminal.until(lambda: scope_line(terminal) not in (scope, ""))
    return len(terminal.said) - before


def scope_line(terminal: Terminal) -> str:
    """What the console says that an action would be for."""
    return next((line for line in terminal.screen.lines if "acts on" in line), "")


@each(
    ("size", "costs"),
    [((80, 24), {"j": 500, "\x1b[6~": 3000}), ((120, 40), {"j": 600, "\x1b[6~": 6000})],
)
def test_keys_seconds_and_lines_cost_few_bytes(
    tmp_path: Path, size: tuple[int, int], costs: dict[str, int]
) -> None:
    """A screen that covers the overview sends the changed digits of its clock each second. A move
    of the cursor and a page cost no more of a slow line than what changes on screen. After another
    program has written over it, Ctrl-l brings it back. While the log is followed the terminal
    scrolls, and only what is new is sent."""
    make_spool(tmp_path, some_tasks(200))
    log = tmp_path / "log" / "queue.log"

    def add(number: int) -> None:
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        with log.open("a") as file:
            file.write(f"[{stamp}] [INFO] a line like any other, number {number}.\n")

    log.write_text("")
    for number in range(60):
        add(number)
    with console(str(tmp_path), size=size) as terminal:
        terminal.shows("QUEUE", "PEND")
        terminal.send("2")
        terminal.shows("acts on ", "row 1 of 200")
        # What the first looks at the place find comes in some of the seconds.
        assert any(tick(terminal) <= 30 for _ in range(20))
        for key, most in costs.items():
            # Once a second more is painted.
            assert any(answer(terminal, key) <= most for _ in range(6)), key

        def undisturbed() -> str:
            screen = Screen(*size)
            screen.feed_bytes(bytes(terminal.said))
            return screen.text

        terminal.screen.feed("\x1b[2J\x1b[5;1HBroadcast message")
        assert terminal.screen.text != undisturbed()
        terminal.send("\x0c")
        terminal.until(lambda: terminal.screen.text == undisturbed())

        terminal.send("7")
        terminal.shows("7 Log", "number 59.", "next")
        line_costs = []
        for number in range(60, 66):
            before = len(terminal.said)
            add(number)
            terminal.shows(f"number {number}.")
            line_costs.append(len(terminal.said) - before)
        shown = [line.rpartition("number ")[2] for line in terminal.screen.lines]
    numbers = [int(text.partition(".")[0]) for text in shown if text[:1].isdigit()]
    assert numbers == [*range(66 - len(numbers), 66)]
    assert len(numbers) > size[1] // 2
    assert min(line_costs) <= 7 * size[0], line_costs


def test_output_that_waits_is_noticed() -> None:
    """While nothing reads a terminal, output waits; once it is read, the longest wait is known."""
    our_end, theirs = pty.openpty()
    try:
        output = Output(theirs, UTF8_GLYPHS, lambda: None)
        writer = threading.Thread(target=output.write, args=("x" * 200_000,))
        writer.start()
        while output.take_wait().now < SLOW_WAIT_SECONDS:
            time.sleep(0.05)
        read = 0
        while read < 200_000:
            read += len(os.read(our_end, 1 << 16))
        writer.join()
        wait = output.take_wait()
        assert wait.now == 0.0 and wait.longest >= SLOW_WAIT_SECONDS
        assert output.take_wait() == OutputWait()
    finally:
        os.close(our_end)
        os.close(theirs)


def test_a_terminal_that_stops_reading_delays_nothing_later(tmp_path: Path) -> None:
    """Over SSH, screens that were not read in time are followed by the present one; the refresh
    stays at 1 s under the budget of a slow link."""
    make_spool(tmp_path, some_tasks(200))
    over_ssh = {"SSH_CONNECTION": "203.0.113.4 50022 10.0.0.2 22"}
    with console("--open", "queue", str(tmp_path), **over_ssh) as terminal:
        terminal.shows("acts on ", "row 1 of 200")
        for _ in range(3):
            terminal.send("\x0c" * 8)  # a whole screen each, unread
            time.sleep(0.5)
        terminal.send("j")
        terminal.shows("row 2 of 200")
        before = len(terminal.said)
        for _ in range(3):
            tick(terminal)
        assert len(terminal.said) - before < 500
        assert "refresh" not in terminal.screen.text


@pytest.mark.deep
def test_over_budget_the_header_shows_the_refresh(tmp_path: Path) -> None:
    """With a budget that even the clock exceeds, the screen repaints every 2 s, then every 5 s."""
    make_spool(tmp_path, some_tasks(200))
    with console("--wire", "1", str(tmp_path)) as terminal:
        terminal.shows("refresh 2s (slow link)")
        terminal.shows("refresh 5s (slow link)")


def tick(terminal: Terminal) -> int:
    """Bytes until the clock in the first line shows another second."""
    first, before = terminal.screen.lines[0], len(terminal.said)
    terminal.until(lambda: terminal.screen.lines[0] != first)
    return len(terminal.said) - before
