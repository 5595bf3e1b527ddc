"""Graphs of numbers as text: bars, braille lines, and the grounds of a heat table.

A braille character holds two columns and four rows of dots (Unicode, U+2800 to U+28FF): dot 1 to 3
and 7 are the left column from the top, 4 to 6 and 8 the right one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tui.text.lines import Line, Run

BRAILLE = 0x2800
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot, by its row from the top and its column."""

BLOCKS = " ▏▎▍▌▋▊▉█"
"""A cell filled from the left, in eighths."""
FULL_CELL = BLOCKS[-1]

Values = Sequence[float | None]
"""Numbers in order of time; None for a gap."""


def braille_line(values: Values, low: float, high: float, rows: int) -> list[str]:
    """A line through values as `rows` lines of braille; two values for each cell.

    `low` is at the bottom, `high` at the top. Neighbours are joined by dots; a missing value leaves
    its column blank.
    """
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
    """Several line graphs of the same size in one: the last layer with dots in a cell wins.

    `layers` are the lines of each graph and its style.
    """
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
    """A bar of a share from 0 to 1, in eighths of a cell, padded to `width` cells.

    A share above zero shows at least the smallest part.
    """
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
