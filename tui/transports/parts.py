"""The parts of the transports screen, without Textual: a row for each mail transport and
destination, details of the one under the cursor, and why it cannot be changed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from engine.destinations.watch import ACTIONS, SeenDestination
from engine.model import State
from engine.monitor.transport_health import MailHealth, MailRoutes, TransportHealth, TransportUse
from engine.text.safe import safe_line
from tui.plan import refusals
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.rows_parts import RowsActions, RowsParts
from tui.session.place_session import PlaceSession, seen_destinations
from tui.text import keys
from tui.text.frames import Frame, more_below
from tui.text.hints import next_line
from tui.text.lines import BLANK_LINE, Line, fold_text
from tui.text.table import Choice, ShownRows
from tui.transports import destination_lines, detail_lines, mixed_table
from tui.transports import transport_lines as view
from tui.transports.board import HOUR_MINUTES, Shown, log_lines

MAX_LOG_LINES = 12
"""Log lines that mention a destination, the last ones."""


def _without_kind(text: str) -> str:
    """A log line without a kind that the id before it begins with: `mails/7 (mails)`."""
    kind = text.partition(" (")[2].partition(")")[0]
    return text.replace(f" ({kind})", "", 1) if kind and f" {kind}/" in text else text


class TransportParts(RowsParts):
    """The transports and destinations of one place, and the one under the cursor."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: RowsActions, aim: str
    ) -> None:
        """`aim`: transport or destination on which the cursor is put when it appears."""
        super().__init__(session, context, screen, aim)
        self.minutes = HOUR_MINUTES
        """Length of the graph."""
        self._sending_rows: Sequence[mixed_table.SendingRow] = ()
        """The rows as they were painted, if there are destinations."""
        self._width = 0

    @property
    def _sending(self) -> MailHealth:
        return self.session.readings.sending

    @property
    def _routes(self) -> MailRoutes | None:
        return self.session.readings.routes

    @property
    def _limit(self) -> float:
        """Share of failures from which a transport fails."""
        return self.session.place.alerts.transport_failures

    @property
    def _destinations(self) -> Sequence[SeenDestination]:
        return seen_destinations(self.session)

    # What is under the cursor

    @property
    def transport(self) -> TransportHealth | None:
        """The transport under the cursor; None if it is a destination."""
        key = self.screen.cursor.key
        return next((each for each in self._sending.transports if each.name == key), None)

    @property
    def destination(self) -> SeenDestination | None:
        """The destination under the cursor."""
        key = self.screen.cursor.key
        return next((one for one in self._destinations if one.destination.origin == key), None)

    @property
    def is_suspended(self) -> bool:
        """True if the transport under the cursor is suspended."""
        transport, routes = self.transport, self._routes
        return transport is not None and routes is not None and transport.name in routes.stopped

    @property
    def is_fixed(self) -> bool:
        """True if nothing here can be changed."""
        place, read_only = self.session.place, self.context.arming.read_only
        return bool(place.why_no_mail(read_only) and place.why_no_destinations(read_only))

    # Why a key is refused

    def open_refusal(self) -> str:
        """Why there is nothing to open."""
        if self.destination is not None:
            return ""
        if (transport := self.transport) is None:
            return self.no_row_reason("nothing to open")
        return "" if transport.failures else "no recorded errors"

    def no_transport_reason(self) -> str:
        """Why there is no transport to act on; "" if there is one."""
        return "" if self.transport is not None else self.no_row_reason("no transport here")

    def suspend_refusal(self) -> str:
        """Why what is under the cursor can be neither suspended nor blocked, nor the reverse."""
        return self._mail_refusal() if self.destination is None else self._destination_refusal()

    def test_mail_refusal(self) -> str:
        """Why no test mail can be sent by the transport under the cursor."""
        if refusal := self._mail_refusal():
            return refusal
        has_command = (mail := self.session.place.mail) is not None and mail.test_command
        return "" if has_command else "this place has no test mail command"

    def probe_refusal(self) -> str:
        """Why the destination under the cursor cannot be probed."""
        one, refusal = self.destination, self._destination_refusal()
        return refusal if refusal or one is None else ACTIONS["probe"].refusal(one.destination)

    def retry_refusal(self) -> str:
        """Why the failed tasks of the destination under the cursor cannot be sent again."""
        if (one := self.destination) is None:
            return self.no_row_reason("no destination here")
        refusal = refusals.verb_refusal(self.session, self.context, "retry", State.DEAD)
        if refusal or (one.tasks is not None and one.tasks.all_failed):
            return refusal
        return self._tasks_unknown or "no failed task for this destination"

    @property
    def _tasks_unknown(self) -> str:
        """Why the tasks of the destinations are not counted."""
        place_destinations = self.session.place.destinations
        return "" if place_destinations is None else place_destinations.tasks_unknown

    def _mail_refusal(self) -> str:
        transport, routes = self.transport, self._routes
        if refusal := self.session.place.why_no_mail(self.context.arming.read_only):
            return refusal
        if transport is None or routes is None:
            return self.no_row_reason("no transport here")
        if routes.unknown:
            return f"transport unknown: {routes.unknown}"
        if routes.use(transport.name) is TransportUse.FOREIGN:
            return f"{transport.name}: {view.describe_foreign(transport.name)}"
        return ""

    def _destination_refusal(self) -> str:
        if refusal := self.session.place.why_no_destinations(self.context.arming.read_only):
            return refusal
        if self.destination is None:
            return self.no_row_reason("no destination here")
        unknown = self.session.readings.destinations.unknown
        return f"destinations unknown: {unknown}" if unknown else ""

    # What is shown

    def trail(self) -> tuple[str, ...]:
        return (self.session.name, keys.TRANSPORTS)

    def rows(self, width: int) -> ShownRows:
        sending, now, limit, routes = self._sending, self.context.clock(), self._limit, self._routes
        self._width = width
        foot: Sequence[Line] = ()
        if self._destinations:
            self._sending_rows = mixed_table.sending_rows(
                sending, self._destinations, limit, now, routes
            )
            head, listed = mixed_table.table(self._sending_rows, width)
            if (more := len(self._destinations) - mixed_table.MAX_ROWS) > 0:
                foot = [((f"   +{more:,} more: `destinations` lists all", "muted"),)]
        else:
            head, listed = view.transport_rows(sending, limit, now, width, routes)
        return ShownRows(head, [Choice(name, line) for name, line in listed], foot)

    @property
    def board(self) -> Shown | None:
        """What the board shows; None if the details are one text."""
        if (transport := self.transport) is None or not self.screen.is_large:
            return None
        return Shown(
            transport,
            self._sending,
            self._routes,
            limit=self._limit,
            now=self.context.clock(),
            log=self.session.readings.log,
            minutes=self.minutes,
            place=self.session.name,
        )

    def details(self, width: int) -> list[Line]:
        """The transport or destination under the cursor; nothing while the board shows it."""
        now = self.context.clock()
        if self.board is not None:
            return []
        if (one := self.destination) is not None:
            return self._destination_lines(one, now, width)
        if (transport := self.transport) is None:
            return self._nothing_lines(now, width)
        return detail_lines.detail_lines(
            transport, self._sending, self._limit, now=now, width=width, routes=self._routes
        )

    def _destination_lines(self, one: SeenDestination, now: float, width: int) -> list[Line]:
        unknown = self.session.readings.destinations.unknown
        text = destination_lines.detail_lines(
            one, self._tasks_unknown, now, width, unknown, has_full_keys=False
        )
        host = one.destination.origin.partition("://")[2]
        words = [line for line in self.session.readings.log if host in line.text]
        if not words:
            return text
        last = [n._replace(text=_without_kind(n.text)) for n in words[: -MAX_LOG_LINES - 1 : -1]]
        log = log_lines(last, width, len(last))
        return [*text, BLANK_LINE, *detail_lines.titled_lines("Log, newest first", log)]

    def _nothing_lines(self, now: float, width: int) -> list[Line]:
        sending, registry = self._sending, self.session.readings.destinations
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
        sending = self._sending
        summary = view.summary_line(sending, self._limit, self._routes)
        if not self._destinations:
            return Frame("Transports", "6", f"{len(sending.transports)}", summary)
        is_wide = self._width >= view.USE_MIN_WIDTH
        lead = summary if sending.transports and is_wide else ()
        amount = len(self._destinations) + len(sending.transports)
        right = mixed_table.summary_line(self._sending_rows, lead)
        return Frame("Transports and destinations", "6", f"{amount:,}", right)

    def details_frame(self, below: int) -> Frame:
        if (one := self.destination) is not None:
            name, state = one.destination.origin, destination_lines.state_run(one)
        elif (transport := self.transport) is not None:
            name, state = transport.name, view.state_run(transport, self._limit)
        else:
            return Frame("details")
        return Frame(safe_line(name), right=(state, ("  " * bool(below), ""), *more_below(below)))

    def next_step(self, width: int) -> Line:
        if (one := self.destination) is not None:
            name = one.destination.origin.partition("://")[2]
            key, does = destination_lines.next_step(one)
        elif (transport := self.transport) is not None:
            name, (key, does) = transport.name, view.next_step(transport, self._limit)
        else:
            return next_line("2", "opens the tasks", "", width)
        if refusal := self.suspend_refusal():
            key, does = "", refusal
        return next_line(key, safe_line(does), safe_line(name), width)

    def copies(self) -> tuple[Copy, ...]:
        if (one := self.destination) is not None:
            prints = destination_lines.fingerprints(one.destination)
            labelled = (Copy(label[0], label, text) for label, text in prints)
            return (Copy("n", "name", one.destination.origin), *labelled)
        if (transport := self.transport) is None:
            return ()
        name = Copy("n", "name", transport.name)
        latest = max(transport.faults, key=lambda fault: fault.last, default=None)
        errors = (Copy("e", "last error", latest.example),) if latest is not None else ()
        reply = next((failure.text for failure in transport.failures if failure.text), "")
        words = (Copy("w", "server reply", reply),) if reply else ()
        if self.suspend_refusal():
            return (name, *errors, *words)
        verb = "resume" if self.is_suspended else "suspend"
        command = safe_line(shlex.join((*self.session.place.command, "mail", verb, transport.name)))
        return (name, *errors, *words, Copy("c", "command", command))
