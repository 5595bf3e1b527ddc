"""Graphs of numbers as text: bars, braille lines, the grounds of a heat table; and the graph of a
queue's course: tasks in, out and died per second, and the backlog.

A braille character holds two columns and four rows of dots (Unicode, U+2800 to U+28FF): dot 1 to 3
and 7 are the left column from the top, 4 to 6 and 8 the right one."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import lru_cache

from engine.monitor.throughput import FlowSeries, Rates
from engine.text.figure import UNKNOWN, Figure
from engine.text.figures import format_rate
from engine.values import NamedTuple
from tui.text.lines import Line, Run, cut_line, join_ends, width_of

BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot, by its row from the top and its column."""

BLOCKS = " ▏▎▍▌▋▊▉█"
"""A cell filled from the left, in eighths."""
FULL_CELL = BLOCKS[-1]

Values = Sequence[float | None]
"""Numbers in order of time; None for a gap."""


def braille_line(values: Values, low: float, high: float, rows: int) -> list[str]:
    """A line through values as `rows` lines of braille; two values for each cell. `low` is at the
    bottom, `high` at the top. Neighbours are joined by dots; a missing value is blank."""
    dots = rows * 4
    cells = [[0] * ((len(values) + 1) // 2) for _ in range(rows)]
    before: int | None = None
    for at, value in enumerate(values):
        if value is None:
            before = None
            continue
        share = (value - low) / (high - low) if high > low else 0.0
        level = round((dots - 1) * min(1.0, max(0.0, share)))
        start = level if before is None or abs(before - level) <= 1 else before
        step = 1 if level >= start else -1
        for each in range(start + (step if start != level else 0), level + step, step):
            row, dot = divmod(dots - 1 - each, 4)
            cells[row][at // 2] |= _DOTS[dot][at % 2]
        before = level
    return ["".join(chr(BRAILLE + bits) if bits else " " for bits in row) for row in cells]


def overlay(layers: Sequence[tuple[Sequence[str], str]]) -> list[Line]:
    """Line graphs, each with a style, in one: the last layer with dots in a cell wins."""
    lines = []
    for row in zip(*(rows for rows, _ in layers), strict=True):
        runs: list[Run] = []
        for cell in zip(*row, strict=True):
            sign, cell_style = " ", ""
            for character, (_, style) in zip(cell, layers, strict=True):
                if character != " ":
                    sign, cell_style = character, style
            if runs and runs[-1][1] == cell_style:
                runs[-1] = (runs[-1][0] + sign, cell_style)
            else:
                runs.append((sign, cell_style))
        lines.append(tuple(runs))
    return lines


def bar(share: float, width: int) -> str:
    """A bar of a share from 0 to 1 in eighths of a cell (above 0 at least one), padded."""
    eighths = round(min(1.0, max(0.0, share)) * width * 8)
    eighths = max(eighths, 1) if share > 0 else 0
    full, part = divmod(eighths, 8)
    text = BLOCKS[8] * full + (BLOCKS[part] if part else "")
    return text + " " * (width - len(text))


def heat_style(number: int, largest: int) -> str:
    """The style of a number in a heat table, by its logarithm; "" for zero."""
    if number <= 0:
        return ""
    level = math.ceil(5 * math.log(number + 1) / math.log(max(largest, number) + 1) - 0.35)
    return f"heat{min(5, max(1, level))}"


def rounded_top(value: float) -> float:
    """The smallest number with two digits that is not below a value: the top of a graph."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(round(value / unit, 6)) * unit


def resample(values: Values, number: int) -> list[float | None]:
    """The means of `number` equal parts of a series; None for a part without a value."""
    if not values:
        return [None] * number
    size = len(values) / number
    parts = []
    for at in range(number):
        some = values[int(at * size) : max(int(at * size) + 1, int((at + 1) * size))]
        known = [value for value in some if value is not None]
        parts.append(sum(known) / len(known) if known else None)
    return parts


AXIS_CELLS = 6

RANGES = {"10m": 600.0, "1h": 3600.0, "24h": 86400.0}
"""Ranges of the graph, by their names on screen, in seconds."""

KEY = "⠤⠤"
"""A piece of a line, before its name."""


def graph_steps(width: int) -> int:
    """How many steps of time a graph of that width shows: two for each cell."""
    return 2 * max(1, width - AXIS_CELLS)


class LatestFlow(NamedTuple):
    """The figures printed beside the lines; None for the last value of the line."""

    rates: Rates | None = None
    """The rates of the table of queues, over a longer time than one step of the graph."""
    died: float | None = None
    """Tasks that died per second, over the time of the rates."""
    backlog: int | None = None
    is_unknown: bool = False
    """The place cannot be read now: the last value of a line is not the present one."""


LAST_OF_LINES, UNKNOWN_FLOW = LatestFlow(), LatestFlow(is_unknown=True)


@lru_cache(maxsize=4)
def flow_graph(
    series: FlowSeries, width: int, height: int, latest: LatestFlow = LAST_OF_LINES
) -> tuple[Line, ...]:
    """Rates above, backlog below, each with its own scale; below six lines only the backlog."""
    rates = max(0, (height - 2) * 2 // 5)
    top: list[Line] = _rates(series, width, rates, latest) if rates >= 2 else []
    return (*top, *_backlog(series, width, height - len(top), latest))


MIN_RATE_TOP = 0.1
"""Smallest top of the rates, tasks per second: below it the printed rates are 0.0, too."""


def time_axis(now: float, seconds: float, width: int) -> str:
    """The times at the ends and in the middle of a plot of `width` cells, in UTC, in a rule."""
    moments = (now - seconds, now - seconds / 2, now)
    first, middle, last = (time.strftime("%H:%M", time.gmtime(when)) for when in moments)
    room = max(8, width - len(first + last))
    return f"{first} {f' {middle} ':─^{room - 2}} {last}"


def _rates(series: FlowSeries, width: int, rows: int, now: LatestFlow) -> list[Line]:
    layers = ((series.dead, "error"), (series.inward, "accent"), (series.outward, "ok"))
    died, inward, outward = (_last(values, now) for values, _ in layers)
    is_net = now.died is None and died is not None  # a recording has only the growth
    if now.rates is not None:
        inward, outward = now.rates
    died = died if now.died is None else now.died
    rates = (inward, outward, died, *(value for values, _ in layers for value in values))
    known = (value for value in rates if value is not None)
    most = max(MIN_RATE_TOP, rounded_top(max(known, default=0.0)))
    name = "died (net)" if is_net else "died"
    named = (("in", inward, "accent"), ("out", outward, "ok"), (name, died, "error"))
    legend = _rates_legend(named, KEY, "  ")
    for key in (KEY, KEY[:1]):
        if width_of(legend) + len(" /s") > width:
            legend = _rates_legend(named, key, " ")
    drawn = overlay([(braille_line(values, 0, most, rows), style) for values, style in layers])
    unit: Line = (("/s", "muted"),)
    fits = width_of(legend) + width_of(unit) < width
    head = join_ends(legend, unit, width) if fits else cut_line(legend, width)
    return [head, *with_axis(drawn, f"{most:.1f}" if most < 10 else f"{most:,.0f}", width)]


def _rates_legend(layers: Sequence[tuple[str, float | None, str]], key: str, gap: str) -> Line:
    """The name and the last value of each line, with `gap` between them, in the plot's unit."""
    legend: list[Run] = []
    for name, last, style in layers:
        number = UNKNOWN if last is None else format_rate(last, is_titled=True)
        legend += [(gap if legend else "", ""), (key, style), (f" {name} ", "muted")]
        legend.append((number, "" if last else "muted"))
    return tuple(legend)


def _backlog(series: FlowSeries, width: int, height: int, now: LatestFlow) -> list[Line]:
    last = _last(series.backlog, now) if now.backlog is None else now.backlog
    known = [value for value in (*series.backlog, series.most, last) if value is not None]
    most = max(known, default=0.0)
    number = Figure(last).text()
    head = join_ends(
        ((KEY, "warn"), (" backlog ", "muted"), (number, "strong")),
        (("max ", "muted"), (Figure(most if known else None).text(), "muted")),
        width,
    )
    rows = braille_line(series.backlog, 0, rounded_top(most), max(1, height - 1))
    drawn = overlay([(rows, "warn")])
    return [head, *with_axis(drawn, f"{rounded_top(most):,.0f}", width)][:height]


RECENT_SHARE = 20
"""One in so many of the steps are the latest ones: 30 seconds of ten minutes."""


def _last(values: Sequence[float | None], now: LatestFlow) -> float | None:
    """The last known value of the latest steps: the last one has just begun, and a recording has no
    sample in each."""
    latest = () if now.is_unknown else reversed(values[-max(2, len(values) // RECENT_SHARE) :])
    return next((value for value in latest if value is not None), None)


def with_axis(rows: Sequence[Line], top: str, width: int) -> list[Line]:
    """The rows with the largest value at the first and 0 at the last."""
    last = len(rows) - 1
    labels = [top if at == 0 else "0" if at == last else "" for at in range(len(rows))]
    return [
        cut_line(((f"{label:>{AXIS_CELLS - 1}} ", "muted"), *row), width)
        for label, row in zip(labels, rows, strict=True)
    ]
