"""Age by destination, kind or error, as the index counts it: a table whose cells can be opened."""

from __future__ import annotations

from textual.message import Message
from textual.strip import Strip

from engine.index.age_table import Ages
from tui.format.present import BLANK, Line
from tui.overview import age_lines as view
from tui.overview.age_lines import AgeCell
from tui.widgets.lines import Painted


class AgeTable(Painted, can_focus=True):
    """The cursor is a row's name and a class of age, never a position."""

    class Moved(Message):
        """Another cell is under the cursor."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._ages: Ages | None = None
        self._notes: tuple[Line, Line] = (BLANK, BLANK)
        self._active = False
        self._spot = AgeCell()
        self._painted: tuple[Line, ...] = ()

    @property
    def spot(self) -> AgeCell:
        """The cell that the cursor is on."""
        return self._spot

    @property
    def names(self) -> int:
        """How many lines there are for names and for the others: not for heading, titles, total and
        how to read it."""
        return max(0, self.size.height - 4)

    @property
    def count(self) -> int | None:
        """What that cell says; None when there is no table, or the row has gone."""
        if self._ages is None:
            return None
        row = view.row_at(self._ages, self._spot, self.names)
        return None if row is None else view.figure(row, self._spot.column)

    @property
    def filter(self) -> str:
        """What leaves the tasks of that cell."""
        return "" if self._ages is None else view.filter_of(self._ages, self._spot, self.names)

    @property
    def words(self) -> str:
        """That cell in words."""
        if self._ages is None:
            return ""
        called = view.title(self._ages, self._spot, self.names)
        return f"{called}, {view.span(self._spot.column)}"

    def tell(self, ages: Ages | None, heading: Line, below: Line) -> None:
        """Show this table under a heading, and how to read it below."""
        if (ages, (heading, below)) == (self._ages, self._notes):
            return
        self._ages, self._notes = ages, (heading, below)
        if self.count is None:
            self._spot = AgeCell(column=self._spot.column)
        self._paint()

    def activate(self, active: bool) -> None:
        """Show which cell keys would open, or none."""
        self._active = active
        self._paint()

    def move(self, how: str) -> None:
        """To another row."""
        if self._ages is None:
            return
        rows = view.spots(self._ages, self.names)
        here = self._spot._replace(column=0)
        at = rows.index(here) if here in rows else 0
        far = len(rows)
        half = max(1, far // 2)
        steps = {"down": 1, "up": -1, "half_down": half, "half_up": -half}
        to = at + steps.get(how, far if how in ("last", "page_down") else -far)
        row = rows[max(0, min(to, far - 1))]
        self._go(row._replace(column=self._spot.column))

    def shift(self, by: int) -> None:
        """To a younger or an older cell."""
        self._go(self._spot._replace(column=max(0, min(self._spot.column + by, view.CELLS))))

    def _go(self, spot: AgeCell) -> None:
        if spot != self._spot:
            self._spot = spot
            self._paint()
            self.post_message(self.Moved())

    def on_resize(self) -> None:
        """Another size shows other rows."""
        if self.count is None:
            self._spot = AgeCell(column=self._spot.column)
        self._paint()

    def _paint(self) -> None:
        before, self._painted = self._painted, tuple(self._lines())
        for y in range(max(len(before), len(self._painted))):
            old = before[y] if y < len(before) else BLANK
            new = self._painted[y] if y < len(self._painted) else BLANK
            if old != new:
                self.repaint_line(y, old, new)

    def _lines(self) -> list[Line]:
        heading, below = self._notes
        if self._ages is None:
            return [heading, below]
        spot = self._spot if self._active else None
        table = view.lines(self._ages, spot, self.size.width, self.names)
        return [heading, *table, below]

    def render_line(self, y: int) -> Strip:
        """A line as it was last laid out."""
        return self.strip_of(self._painted[y] if y < len(self._painted) else BLANK)
