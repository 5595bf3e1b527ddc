"""Tables: columns that a width has room for, their titles and rows; short names of places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic, TypeVar

from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.glyphs import MARK
from tui.text.lines import (
    MARGIN_CELLS,
    Line,
    Run,
    cells_of,
    cut_line,
    fit_text,
    fit_text_end,
    fit_text_middle,
    merge_runs,
    width_of,
)


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


R = TypeVar("R")

COLUMN_GAP_CELLS = 2

REST = 10_000
"""Growth of a column that gets all cells that the others leave."""


class Column(NamedTuple, Generic[R]):
    """A column of a table whose rows are values of one type."""

    title: str
    width: int
    """In cells; the least where the column grows or is as wide as its longest cell."""
    cell: Callable[[R], Run | list[Run]]
    """Text and style of a row; several of them have their own styles."""
    right: bool = False
    """Align the cells to the right."""
    most: int = 0
    """As wide as its longest cell, at most this; 0: not by its cells."""
    shrinks: int = 0
    """Cells that it gives up where the table lacks them; the one that gives most is first."""
    grows: int = 0
    """Cells that it takes at most of what the others leave."""
    rank: int = 0
    """A narrow table drops the highest first, before a column shrinks; 0 stays, below 0 is dropped
    where shrinking is not enough."""
    least: int = 0
    """Minimum width of the table in cells; a narrower one lacks the column."""
    keeps_end: bool = False
    """Cut a long text at its front, not at its end."""
    keeps_both: bool = False
    """Cut a long text in its middle."""
    order: str = ""
    """Order of the index (`engine.index`) that sorts by this column."""
    is_age: bool = False
    """The column shows an age, so ascending values are descending ages."""

    def measured(self, rows: Iterable[R]) -> Column[R]:
        """The column as wide as its longest cell, if it is so; it may shrink to its `width`."""
        if not self.most:
            return self
        longest = max((_cells_in(self.cell(row)) for row in rows), default=0)
        width = max(self.width, min(self.most, longest))
        return self._replace(width=width, shrinks=width - self.width, most=0)

    def fit(self, content: Run | list[Run]) -> Line:
        """What a row has in this column, in exactly its width."""
        if isinstance(content, list):
            return cut_line(tuple(content), self.width)
        text, style = content
        if style.startswith("chip"):  # its ground ends with the word
            return cut_line((content,), self.width)
        if self.keeps_both:
            return ((fit_text_middle(text, self.width), style),)
        if self.keeps_end:
            return ((fit_text_end(text, self.width), style),)
        return ((fit_text(text, self.width, self.right), style),)


def _cells_in(content: Run | list[Run]) -> int:
    return width_of(tuple(content)) if isinstance(content, list) else cells_of(content[0])


def _cells_with(columns: Sequence[Column[R]], gap: int) -> int:
    return MARGIN_CELLS + sum(column.width for column in columns) + gap * (len(columns) - 1)


def alarm_sign(is_wrong: bool, style: str = "error") -> Run:
    """The margin of a row: whether it needs an operator; the first cell is the cursor's."""
    return (" !" if is_wrong else "", style)


class Table(NamedTuple, Generic[R]):
    """Columns of the rows of a list, for the console and the command line. A table is first
    `fitted` to its rows and a width; then its rows can be drawn one by one."""

    columns: Sequence[Column[R]]
    gaps: tuple[int, ...] = (COLUMN_GAP_CELLS,)
    """Cells between two columns: the first number with which all columns have their width."""
    margin: Callable[[R], Run] = lambda row: ("", "")
    """The cells before the first column: cursor, signs."""

    @property
    def cells(self) -> int:
        """The cells of a line of a fitted table, without blanks at its end."""
        return _cells_with(self.columns, self.gaps[0])

    def fitted(self, rows: Collection[R], width: int) -> Table[R]:
        """The table with the columns that a width has room for, each with its width."""
        columns = [column.measured(rows) for column in self.columns if width >= column.least]

        def lacking(gap: int) -> int:
            return _cells_with(columns, gap) - width

        while lacking(self.gaps[-1]) > 0 and any(column.rank > 0 for column in columns):
            columns.remove(max(columns, key=lambda column: column.rank))
        gap = next((gap for gap in self.gaps if lacking(gap) <= 0), self.gaps[-1])
        for column in sorted(columns, key=lambda column: -column.shrinks):
            less = max(0, min(column.shrinks, lacking(gap)))
            columns[columns.index(column)] = column._replace(width=column.width - less)
        if lacking(gap) > 0:
            columns = [column for column in columns if column.rank >= 0]
        for at, column in enumerate(columns):
            more = max(0, min(column.grows, -lacking(gap)))
            columns[at] = column._replace(width=column.width + more, grows=0)
        return self._replace(columns=columns, gaps=(gap,))

    def titles(self, width: int) -> Line:
        """The titles of a fitted table, in its full width."""
        gap = " " * self.gaps[0]
        named = (fit_text(column.title, column.width, column.right) for column in self.columns)
        return ((fit_text(" " * MARGIN_CELLS + gap.join(named), width), "muted"),)

    def line(self, row: R, width: int) -> Line:
        """A row of a fitted table, in its full width."""
        gap: Run = (" " * self.gaps[0], "")
        text, style = self.margin(row)
        runs: list[Run] = [(f"{text:<{MARGIN_CELLS}}", style)]
        for column in self.columns:
            runs += column.fit(column.cell(row))
            runs.append(gap)
        return cut_line(merge_runs(runs[:-1]), width)

    def lines(self, rows: Collection[R], width: int) -> tuple[Line, list[Line]]:
        """The titles, and a line for each row."""
        fitted = self.fitted(rows, width)
        return fitted.titles(width), [fitted.line(row, width) for row in rows]


def mark_row(line: Line) -> Line:
    """A row with the sign of a marked one, behind the cells of the cursor and of `alarm_sign`."""
    (margin, style), *rest = line
    return ((margin[:2], style), (MARK, "mark"), (margin[3:], style), *rest)


class Choice(NamedTuple):
    """A row of a list that has a cursor."""

    key: str
    """Unique key of the row; the cursor follows it."""
    line: Line
    """The painted row; its first cell is free for the cursor."""
    continues: bool = False
    """A further line of the row above, which the cursor passes."""


class ShownRows(NamedTuple):
    """The rows of a list, between lines that do not scroll."""

    head: Line
    rows: Sequence[Choice]
    foot: Sequence[Line] = ()
