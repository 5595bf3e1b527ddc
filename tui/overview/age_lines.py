"""Age against destination, kind or error: the table as lines, and the filter that each cell is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.index import filter_language
from engine.index.age_table import BOUNDS, AgeRow, Ages, within
from engine.text.safe import shown
from tui.format import present
from tui.format.glyphs import CURSOR
from tui.format.human import format_count
from tui.format.present import Line
from tui.format.table import spark

FIELDS = {"destination": "dest", "kind": "kind", "error": "cluster"}
"""By what the filter language names them."""

CELLS = len(BOUNDS) + 1
"""Age classes: below each bound, and beyond the last."""

TOTAL, OTHERS = "TOTAL", "OTHERS"
ROOMY = 76
"""Cells from which on numbers have four digits."""


class AgeCell(NamedTuple):
    """A cell of the table: a row by what it stands for, never by its position."""

    part: str = TOTAL
    """TOTAL, OTHERS, or "" for a name."""
    name: str = ""
    column: int = 0
    """0 for all ages, then the age classes from the youngest."""


def spots(ages: Ages, names: int) -> list[AgeCell]:
    """The first cell of each row that is shown, where there is room for so many below the total."""
    kept = named(ages, names)
    left = len(kept) < len(ages.rows) or ages.others
    others = [AgeCell(OTHERS)] if left and names > 1 else []
    return [AgeCell(TOTAL), *(AgeCell("", row.name) for row in kept), *others]


def named(ages: Ages, names: int) -> Sequence[AgeRow]:
    """The rows that are shown by name in so many lines, the last of which may be the others'.

    A single line is the greatest one's: the total above it says how much is not in it.
    """
    fits = len(ages.rows) + bool(ages.others) <= names
    return ages.rows if fits else ages.rows[: max(min(names, 1), names - 1)]


def row_at(ages: Ages, spot: AgeCell, names: int) -> AgeRow | None:
    """The row that a spot is in; None when it is not there any more."""
    if spot.part == TOTAL:
        return ages.total
    kept = named(ages, names)
    if spot.part == OTHERS:
        return ages._replace(rows=tuple(kept)).rest
    return next((row for row in kept if row.name == spot.name), None)


def figure(row: AgeRow, column: int) -> int:
    """What a cell of a row says."""
    return row.counts[column - 1] if column else row.total


def lines(ages: Ages, spot: AgeCell | None, width: int, names: int) -> list[Line]:
    """Titles, the total, a line for each name; the cell at `spot` stands out."""
    cell = 5 if width >= ROOMY else 4
    shape = 13 if width >= 100 else 0
    room = width - 2 - (cell + 2) - (CELLS * cell + 2) - shape
    bounds = [*map(str, BOUNDS), f"{BOUNDS[-1]}+"]
    if cell < 5:
        bounds[-2:] = ["21h", ">21h"]
    heads = [
        present.fit(text, _wide(at, cell), right=True) for at, text in enumerate(["T", *bounds])
    ]
    form = f"  {'SHAPE':<11}" if shape else ""
    text = " " * (room + 1) + "".join(heads) + " " + form
    rows = [present.cut(((text, "title"),), width)]
    for at in spots(ages, names):
        row = row_at(ages, at, names)
        if row is not None:
            here = spot is not None and spot._replace(column=0) == at
            column = spot.column if here and spot is not None else -1
            line = _line(row, title(ages, at, names), column, cell, room)
            if shape:
                line = (*line, (f"  {spark(row.counts)}", "dim"))
            rows.append(present.cut(line, width))
    return rows


def _wide(column: int, cell: int) -> int:
    return cell + 2 if column in (0, CELLS) else cell


def title(ages: Ages, spot: AgeCell, names: int) -> str:
    """What a row is called."""
    if spot.part == TOTAL:
        return "TOTAL"
    if spot.part == OTHERS:
        return f"(other {ages.others + len(ages.rows) - len(named(ages, names)):,})"
    return shown(spot.name) or "(none)"


def _line(row: AgeRow, called: str, column: int, cell: int, room: int) -> Line:
    sign = CURSOR if column >= 0 else " "
    runs: list[tuple[str, str]] = [(sign + present.fit_end(called, room), "")]
    for at in range(CELLS + 1):
        number = figure(row, at)
        text = format_count(number, cell - 1)
        gap = " " * (_wide(at, cell) - len(text))
        if at == column:  # in brackets, which take the gaps on both sides
            runs += [(gap[:-1], ""), (f"[{text}]", "cursor")]
        else:
            after = column >= 0 and at == column + 1
            runs.append((gap[after:] + text, "" if number else "dim"))
    return present.merged(runs) if column == CELLS else (*present.merged(runs), (" ", ""))


def heading(ages: Ages, place: str, word: str, width: int) -> Line:
    """Of what the table is."""
    return present.heading(f"{place}  age x {ages.by}, minutes ({shown(word)})", width)


def span(column: int) -> str:
    """An age class in words."""
    if not column:
        return "of any age"
    if column == 1:
        return f"younger than {BOUNDS[0]} minutes"
    if column == CELLS:
        return f"{BOUNDS[-1]:,} minutes old and older"
    return f"{BOUNDS[column - 2]} to {BOUNDS[column - 1]} minutes old"


def filter_of(ages: Ages, spot: AgeCell, names: int) -> str:
    """The filter that leaves what is counted in a cell."""
    field = FIELDS[ages.by]
    clauses = []
    if spot.part == OTHERS:
        clauses += [filter_language.written(field, "!=", row.name) for row in named(ages, names)]
    elif spot.part != TOTAL:
        clauses.append(filter_language.written(field, "=", spot.name))
    if spot.column:
        clauses.append(within(spot.column - 1))
    return " ".join(clauses)
