"""Parts of tables: short place names, numbers that fit a column, rows to choose."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from engine.text.safe import safe_line
from tui.text.lines import Line, Run, cells_of, cut_line, fit_text, fit_text_end, merge_runs

TABLE_MARGIN_CELLS = 3
"""Cells before the first column: the cursor, the sign of an alert, a space."""


def short_names(queues: Sequence[str]) -> list[str]:
    """Short names of places: the last part of each path, and the server of a URL, with its database
    if that is not 0; the whole name if two are equal."""
    last = [_short_name(name) for name in queues]
    times = Counter(last)
    return [
        safe_line(short if times[short] == 1 else whole)
        for short, whole in zip(last, queues, strict=True)
    ]


def _short_name(name: str) -> str:
    scheme, separator, address = name.partition("://")
    if separator and not scheme.endswith("unix"):
        server, question, query = address.rpartition("@")[2].partition("?")
        return f"{server.removesuffix('/0').rstrip('/')}{question}{query}" or name
    return name.rstrip("/").rpartition("/")[2] or name


class Column(NamedTuple):
    """A column of a table."""

    title: str
    width: int
    right: bool = False
    """Align the cells to the right."""
    least: int = 0
    """Minimum width of the table in cells; a narrower one lacks the column."""
    keeps_end: bool = False
    """Cut a long text at its front, not at its end."""


COLUMN_GAP_CELLS = 2


def free_cells(columns: Sequence[Column], width: int, gap: int = COLUMN_GAP_CELLS) -> int:
    """The cells that a table of that width has for one more column."""
    return width - TABLE_MARGIN_CELLS - sum(column.width + gap for column in columns)


def fitted_cells(
    columns: Sequence[Column], cells: Sequence[Run], gap: int = COLUMN_GAP_CELLS
) -> list[Run]:
    """The cells of a row, each in its column, with gaps between them."""
    runs: list[Run] = []
    for column, (text, style) in zip(columns, cells, strict=True):
        if style.startswith("chip"):  # its ground ends with the word
            runs += [(text, style), (" " * max(0, column.width - cells_of(text)), "")]
        elif column.keeps_end:
            runs.append((fit_text_end(text, column.width), style))
        else:
            runs.append((fit_text(text, column.width, column.right), style))
        runs.append((" " * gap, ""))
    return runs[:-1]


def table_line(
    sign: Run,
    columns: Sequence[Column],
    cells: Sequence[Run],
    width: int,
    gap: int = COLUMN_GAP_CELLS,
) -> Line:
    """A row: the sign of an alert in the margin, then its cells; the first cell is the cursor's."""
    text, style = sign
    lead = (f" {text:<{TABLE_MARGIN_CELLS - 1}}", style)
    return cut_line(merge_runs([lead, *fitted_cells(columns, cells, gap)]), width)


def title_line(columns: Sequence[Column], width: int, gap: int = COLUMN_GAP_CELLS) -> Line:
    """The titles of a table, in its full width."""
    titles = fitted_cells(columns, [(column.title, "") for column in columns], gap)
    text = " " * TABLE_MARGIN_CELLS + "".join(title for title, _ in titles)
    return ((fit_text(text, width), "muted"),)


class Choice(NamedTuple):
    """A row of a list that has a cursor."""

    key: str
    """Unique key of the row; the cursor follows it."""
    line: Line
    """The painted row; its first cell is free for the cursor."""
