"""Widget of the age table (destination, group, kind or error by age); its cells can be opened."""

from __future__ import annotations

from collections.abc import Sequence

from textual.message import Message
from textual.strip import Strip

from engine.index.age_table import Ages
from tui.overview import age_lines as view
from tui.overview.age_lines import AgeCell
from tui.text.lines import BLANK_LINE, Line
from tui.text.table import Choice
from tui.widgets.line_widgets import Painted, changed_lines


class AgeTable(Painted, can_focus=True):
    """The cursor is a row name and an age class, not a position."""

    key, is_gone = "", False
    """No row has the cursor; see `Pane`."""
    rows: Sequence[Choice] = ()

    class CellChanged(Message):
        """The cursor is on another cell."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ages: Ages | None = None
        self._below: Line = BLANK_LINE
        self._active = False
        self._cell = AgeCell()
        self._painted: tuple[Line, ...] = ()

    @property
    def current_cell(self) -> AgeCell:
        """The cell under the cursor."""
        return self._cell

    @property
    def name_lines(self) -> int:
        """Lines for names and others: the height without titles, total and the sentence below."""
        return max(0, self.size.height - 3)

    @property
    def count(self) -> int | None:
        """The number under the cursor; None if there is no table or the row no longer exists."""
        if self._ages is None:
            return None
        row = view.row_at(self._ages, self._cell, self.name_lines)
        return None if row is None else view.cell_count(row, self._cell.column)

    @property
    def filter(self) -> str:
        return (
            "" if self._ages is None else view.cell_filter(self._ages, self._cell, self.name_lines)
        )

    @property
    def cell_text(self) -> str:
        if self._ages is None:
            return ""
        label = view.row_label(self._ages, self._cell, self.name_lines)
        return f"{label}, {view.describe_age(self._cell.column)}"

    def show_ages(self, ages: Ages | None, below: Line) -> None:
        """Show a table with a sentence below; without a table only the sentence."""
        if (ages, below) == (self._ages, self._below):
            return
        self._ages, self._below = ages, below
        if self.count is None:
            self._cell = AgeCell(column=self._cell.column)
        self._paint()

    def activate(self, active: bool) -> None:
        self._active = active
        self._paint()

    def move(self, how: str) -> None:
        if self._ages is None:
            return
        rows = view.row_cells(self._ages, self.name_lines)
        first_cell = self._cell._replace(column=0)
        at = rows.index(first_cell) if first_cell in rows else 0
        far = len(rows)
        half = max(1, far // 2)
        steps = {"down": 1, "up": -1, "half_down": half, "half_up": -half}
        to = at + steps.get(how, far if how in ("last", "page_down") else -far)
        row = rows[max(0, min(to, far - 1))]
        self._move_to(row._replace(column=self._cell.column))

    def shift(self, by: int) -> None:
        self._move_to(
            self._cell._replace(column=max(0, min(self._cell.column + by, view.AGE_CLASSES)))
        )

    def _move_to(self, cell: AgeCell) -> None:
        if cell != self._cell:
            self._cell = cell
            self._paint()
            self.post_message(self.CellChanged())

    def on_resize(self) -> None:
        """Repaint; another height shows other rows."""
        if self.count is None:
            self._cell = AgeCell(column=self._cell.column)
        self._paint()

    def _paint(self) -> None:
        before, self._painted = self._painted, tuple(self._lines())
        self.repaint_lines(changed_lines(before, self._painted))

    def _lines(self) -> list[Line]:
        if self._ages is None:
            return [self._below]
        cursor = self._cell if self._active else None
        table = view.table_lines(self._ages, cursor, self.size.width, self.name_lines)
        return [*table, self._below]

    def render_line(self, y: int) -> Strip:
        return self.strip_of(self._painted[y] if y < len(self._painted) else BLANK_LINE)
