"""How each way of sending mail does, and below all there is to say of the one under the cursor."""

from __future__ import annotations

from engine.transports import Transport
from tui import keys, present
from tui.present import Line
from tui.screens.face import Copy
from tui.screens.pages import Board
from tui.views import transports as view
from tui.widgets.lines import LongText
from tui.widgets.picker import Choice, Picker


class TransportsScreen(Board):
    """The transports of one place; it only looks."""

    KIND = keys.TRANSPORTS
    BINDINGS = keys.bindings(keys.TRANSPORTS)

    @property
    def _limit(self) -> float:
        return self.live.place.alerts.transport_failures

    @property
    def _here(self) -> Transport | None:
        """The one under the cursor."""
        key = self.query_one(Picker).key
        return next((t for t in self.live.signs.sending.transports if t.name == key), None)

    def lay_out(self, width: int) -> None:
        """A row for each, and what there is to say of one."""
        sending, now = self.live.signs.sending, self.around.clock()
        titles, listed = view.rows(sending, self._limit, now, width)
        picker = self.query_one(Picker)
        # The rows take what they need and half of the screen at most; the rest is for the detail.
        picker.styles.height = 1 + max(1, min(len(listed), self.size.height // 2 - 2))
        picker.offer([Choice(name, line) for name, line in listed], [titles])
        self.query_one(LongText).show(self._below(width))

    def _below(self, width: int) -> list[Line]:
        sending, now, way = self.live.signs.sending, self.around.clock(), self._here
        sources = view.sources(sending, now, width)
        if way is None:
            looked = [view.nothing(sending)] if self.live.looked else []
            return [*looked, *sources]
        return [*view.detail(way, self._limit, now, width), *sources]

    def action_move(self, how: str) -> None:
        """Up and down among the rows; by pages through what is said of one."""
        if "page" in how or "half" in how:
            self.query_one(LongText).move(how)
            self.paint()
        else:
            super().action_move(how)

    def word(self) -> Line:
        """All of them in one line, and whether there is more to be read."""
        below = self.query_one(LongText).below
        more: Line = ((f"   PgDn {present.count(below, 'more line')}", "key"),) if below else ()
        return (*view.said(self.live.signs.sending, self._limit), *more)

    def copies(self) -> tuple[Copy, ...]:
        """The name of the one under the cursor, and its last error."""
        way = self._here
        if way is None:
            return ()
        latest = max(way.faults, key=lambda fault: fault.last, default=None)
        errors = (Copy("e", "last error", latest.example),) if latest is not None else ()
        return (Copy("n", "name", way.name), *errors)
