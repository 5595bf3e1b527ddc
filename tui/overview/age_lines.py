"""Age table by destination, sender, group, kind or error: its text, and the filter of each cell."""

from __future__ import annotations

from collections.abc import Sequence

from engine.index import filter_language, group_counts
from engine.index.age_table import BOUNDS_MINUTES, AgeRow, Ages, bucket_filter
from engine.index.counted_rows import TASKS
from engine.places.place import Place
from engine.text.figures import fit_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.text.glyphs import CURSOR
from tui.text.graphs import heat_style
from tui.text.lines import Line, cut_line, fit_text, fit_text_end, merge_runs
from tui.text.styles import ON_CURSOR

FILTER_FIELDS = {**group_counts.FILTER_FIELDS, "error": "cluster"}
"""Names of the row fields in the filter language."""

AGE_CLASSES = len(BOUNDS_MINUTES) + 1
"""Number of age classes: one below each bound, and one above the last."""

TOTAL, OTHERS = "TOTAL", "OTHERS"
FOUR_DIGIT_CELLS = 76
"""Minimum width in cells for columns with four-digit numbers."""


class AgeCell(NamedTuple):
    """A cell of the table, addressed by the name of its row, not by its position."""

    part: str = TOTAL
    """TOTAL, OTHERS, or "" for a named row."""
    name: str = ""
    column: int = 0
    """0 for all ages, then the age classes from the youngest."""


def row_cells(ages: Ages, names: int) -> list[AgeCell]:
    """The first cell of each visible row, for `names` lines below the total."""
    named = named_rows(ages, names)
    has_others = len(named) < len(ages.rows) or ages.others
    others = [AgeCell(OTHERS)] if has_others and names > 1 else []
    return [AgeCell(TOTAL), *(AgeCell("", row.name) for row in named), *others]


def named_rows(ages: Ages, names: int) -> Sequence[AgeRow]:
    """The rows shown by name in `names` lines, the last of which may be for the others. A single
    line shows the largest row; the total above includes the rest."""
    fits = len(ages.rows) + bool(ages.others) <= names
    return ages.rows if fits else ages.rows[: max(min(names, 1), names - 1)]


def row_at(ages: Ages, cell: AgeCell, names: int) -> AgeRow | None:
    """The row of a cell; None if it no longer exists."""
    if cell.part == TOTAL:
        return ages.total
    named = named_rows(ages, names)
    if cell.part == OTHERS:
        return ages._replace(rows=tuple(named)).rest
    return next((row for row in named if row.name == cell.name), None)


def cell_count(row: AgeRow, column: int) -> int:
    """The number in a cell of a row."""
    return row.counts[column - 1] if column else row.total


def table_lines(ages: Ages, cursor: AgeCell | None, width: int, names: int) -> list[Line]:
    """Titles, total and one line per name; the cell at `cursor` is highlighted."""
    cell = 5 if width >= FOUR_DIGIT_CELLS else 4
    room = width - 4 - sum(_cell_width(at, cell) for at in range(AGE_CLASSES + 1))
    bounds = [*map(str, BOUNDS_MINUTES), f"{BOUNDS_MINUTES[-1]}+"]
    heads = [
        fit_text(text, _cell_width(at, cell), right=True)
        for at, text in enumerate(["ALL", *bounds])
    ]
    text = " " * (room + 3) + "".join(heads) + " "
    rows = [cut_line(((text, "muted"),), width)]
    largest = max(ages.total.counts, default=0)
    for at in row_cells(ages, names):
        row = row_at(ages, at, names)
        if row is not None:
            is_cursor_row = cursor is not None and cursor._replace(column=0) == at
            column = cursor.column if is_cursor_row and cursor is not None else -1
            fit = fit_text if ages.by in ("sender", "account") else fit_text_end
            label = fit(row_label(ages, at, names), room)
            line = _line(row, label, column, cell=cell, largest=largest)
            rows.append(cut_line(line, width))
    return rows


def _cell_width(column: int, cell: int) -> int:
    if column in (0, AGE_CLASSES):
        return cell + 2
    return max(cell, 5) if column == AGE_CLASSES - 1 else cell  # its title has four digits


def row_label(ages: Ages, cell: AgeCell, names: int) -> str:
    """The label of a row."""
    if cell.part == TOTAL:
        return "TOTAL"
    if cell.part == OTHERS:
        return f"(other {ages.others + len(ages.rows) - len(named_rows(ages, names)):,})"
    return safe_line(cell.name) or "(none)"


def _line(row: AgeRow, label: str, column: int, cell: int, largest: int) -> Line:
    sign = CURSOR if column >= 0 else " "
    total = "strong" if label.rstrip() == TOTAL else ""
    runs: list[tuple[str, str]] = [(f"{sign}  ", "accent"), (label, total)]
    for at in range(AGE_CLASSES + 1):
        number, width = cell_count(row, at), _cell_width(at, cell)
        text = fit_count(number, cell - 1) if number else "."
        if at == column:
            runs.append((f"{f'[{text}]':>{width}}", ON_CURSOR))
            continue
        # The ground of a cell ends with its number, so that the columns stay apart.
        style = (total if at == 0 else heat_style(number, largest)) if number else "muted"
        blank = width - cell if at else 0
        runs += [(" " * blank, ""), (f"{text:>{width - blank}}", style)]
    return (*merge_runs(runs), (" ", ""))


def table_heading(ages: Ages, name: str, word: str, place: Place) -> str:
    """Heading of the table: name of the place, state, what is counted if not tasks, row field by
    the place's own titles, and what of it is not read."""
    unread = place.unread_accounts() if ages.by == filter_language.ACCOUNT_FIELD else ""
    unit = "" if ages.unit == TASKS else f" {ages.unit}"
    by = place.group_titles.get(ages.by, ages.by)
    return f"Ages: {name}, {safe_line(word)}{unit} by {by}" + (f"; {unread}" if unread else "")


def describe_age(column: int) -> str:
    """Description of an age class."""
    if not column:
        return "all ages"
    if column == 1:
        return f"under {BOUNDS_MINUTES[0]} min"
    if column == AGE_CLASSES:
        return f"{BOUNDS_MINUTES[-1]:,} min and older"
    return f"{BOUNDS_MINUTES[column - 2]} to {BOUNDS_MINUTES[column - 1]} min"


def cell_filter(ages: Ages, cell: AgeCell, names: int) -> str:
    """The filter that selects the tasks counted in a cell."""
    field = FILTER_FIELDS[ages.by]
    clauses = []
    if cell.part == OTHERS:
        clauses += [
            filter_language.format_term(field, "!=", row.name) for row in named_rows(ages, names)
        ]
    elif cell.part != TOTAL:
        clauses.append(filter_language.format_term(field, "=", cell.name))
    if cell.column:
        clauses.append(bucket_filter(cell.column - 1))
    return " ".join(clauses)
