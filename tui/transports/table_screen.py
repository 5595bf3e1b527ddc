"""What the transports screen shows: a row for each mail transport and destination, and details of
one."""

from __future__ import annotations

from collections.abc import Sequence

from engine.destinations.watch import SeenDestination
from engine.monitor.transport_health import TransportHealth
from engine.text.safe import safe_line
from tui.screens.list_panes import FIXED_LINES
from tui.screens.page import ListScreen
from tui.session.place_session import seen_destinations
from tui.text.figures import format_count
from tui.text.frames import Frame
from tui.text.lines import BLANK_LINE, Line, fold_text
from tui.text.table import Choice
from tui.transports import destination_lines, detail_lines, mixed_table
from tui.transports import transport_lines as view
from tui.transports.board import HOUR_MINUTES, Shown, TransportBoard, log_lines, panels
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker

MAX_LOG_LINES = 12
"""Log lines that mention a destination, the last ones."""


class TransportTable(ListScreen):
    """The transports and destinations of one place, and the one under the cursor."""

    PAGE_KEYS_SCROLL = True
    BOARD = TransportBoard

    aim = ""
    """Transport or destination on which the cursor is put when it appears."""

    _minutes = HOUR_MINUTES
    """Length of the graph."""

    _destinations: tuple[SeenDestination, ...] = ()
    """The destinations as they were painted."""

    @property
    def transport(self) -> TransportHealth | None:
        """The transport under the cursor; None if it is a destination."""
        key = self.selected_key
        return next((t for t in self.session.readings.sending.transports if t.name == key), None)

    @property
    def destination(self) -> SeenDestination | None:
        """The destination under the cursor."""
        key = self.selected_key
        return next((one for one in self._destinations if one.destination.origin == key), None)

    def lay_out(self, width: int) -> None:
        """One row per transport and destination, and details of one."""
        self._show_rows()
        transport, one, room = self.transport, self.destination, self.text_width
        board, pane = self.board if transport is not None else None, self.query_one(LongText)
        self.query_one(TransportBoard).display, pane.display = board is not None, board is None
        sending, now = self.session.readings.sending, self.context.clock()
        routes = self.session.readings.routes
        limit = self.session.place.alerts.transport_failures
        if board is not None and transport is not None:
            height = self.size.height - FIXED_LINES - self.rows_height
            log = self.session.readings.log
            inputs = Shown(
                transport, sending, routes, limit=limit, now=now, log=log, minutes=self._minutes
            )
            board.show(panels(inputs, width, height))
            return
        if one is not None:
            text = self._destination_lines(one, now, room)
        elif transport is not None:
            text = detail_lines.detail_lines(
                transport, sending, limit, now=now, width=room, routes=routes
            )
        else:
            text = self._nothing_lines(now, room)
        pane.show(text)
        self.call_after_refresh(self.show_frames)  # the lines below are known then

    def _show_rows(self) -> None:
        sending, now = self.session.readings.sending, self.context.clock()
        routes, limit = self.session.readings.routes, self.session.place.alerts.transport_failures
        self._destinations = seen_destinations(self.session)
        foot: Sequence[Line] = ()
        if self._destinations:
            rows = mixed_table.sending_rows(sending, self._destinations, limit, now, routes)
            titles, listed = mixed_table.table(rows, self.rows_width)
            if (more := len(self._destinations) - mixed_table.MAX_ROWS) > 0:
                foot = [((f"   +{more:,} more: `destinations` lists all", "muted"),)]
        else:
            titles, listed = view.transport_rows(sending, limit, now, self.rows_width, routes)
        picker = self.query_one(Picker)
        picker.show_rows([Choice(name, line) for name, line in listed], [titles], foot)
        if self.aim in [name for name, _ in listed]:
            picker.select_key(self.aim)
            self.aim = ""

    def _destination_lines(self, one: SeenDestination, now: float, width: int) -> list[Line]:
        place_destinations, registry = (
            self.session.place.destinations,
            self.session.readings.destinations,
        )
        unknown = "" if place_destinations is None else place_destinations.tasks_unknown
        text = destination_lines.detail_lines(one, unknown, now, width, registry.unknown)
        host = one.destination.origin.partition("://")[2]
        words = [line for line in self.session.readings.log if host in line.text]
        if not words:
            return text
        log = log_lines(words, width, min(len(words), MAX_LOG_LINES))
        return [*text, BLANK_LINE, *detail_lines.titled_lines("Log", log)]

    def _nothing_lines(self, now: float, width: int) -> list[Line]:
        sending, registry = self.session.readings.sending, self.session.readings.destinations
        text: list[Line] = []
        if registry.unknown:
            problem = f"   destinations: ? {safe_line(registry.unknown)}"
            text += [((piece, "unknown"),) for piece in fold_text(problem, width)]
        elif registry.is_configured:
            text.append((("   no destinations yet: nothing was delivered", "muted"),))
        if self.session.has_readings and not sending.transports:
            has_mail = self.session.place.mail is not None
            text.append(view.no_transports_line(sending, has_mail=has_mail))
        return text + detail_lines.source_lines(sending, now, width)

    def rows_frame(self) -> Frame:
        """All transports and destinations, and which transport is used."""
        sending, routes = self.session.readings.sending, self.session.readings.routes
        limit = self.session.place.alerts.transport_failures
        summary = view.summary_line(sending, limit, routes)
        if not self._destinations:
            return Frame("Transports", "6", f"{len(sending.transports)}", summary)
        now = self.context.clock()
        rows = mixed_table.sending_rows(sending, self._destinations, limit, now, routes)
        is_wide = self.size.width >= view.USE_MIN_WIDTH
        lead = summary if sending.transports and is_wide else ()
        amount = len(self._destinations) + len(sending.transports)
        right = mixed_table.summary_line(rows, lead)
        return Frame("Transports and destinations", "6", f"{amount:,}", right)

    def text_frame(self) -> Frame:
        """What is under the cursor with its state, and how many lines are below."""
        transport, one, below = self.transport, self.destination, self.query_one(LongText).below
        more: Line = ((f" PgDn {format_count(below, 'more line')}", "muted"),)
        if one is not None:
            state = destination_lines.state_run(one)
            name = safe_line(one.destination.origin)
        elif transport is not None:
            state = view.state_run(transport, self.session.place.alerts.transport_failures)
            name = safe_line(transport.name)
        else:
            return Frame("details")
        return Frame(name, right=(state, *(more if below else ())))
