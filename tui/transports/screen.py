"""The transports screen: health of each mail transport and destination, and the keys on them."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from engine.destinations.watch import ACTIONS
from engine.index.filter_language import equality_filter, format_term
from engine.index.schema import Query
from engine.model import State
from engine.monitor.transport_health import TransportUse
from engine.text.safe import safe_line
from tui.plan.acting_screen import PlanningScreen
from tui.plan.planning import VerbRequest
from tui.screens.base import PASTED, Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.keyed_screen import row_bindings
from tui.screens.list_panes import ListPanes
from tui.screens.rows_screen import RowsScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.hints import hint_lines, next_line
from tui.text.lines import Line
from tui.transports import destination_lines
from tui.transports import transport_lines as view
from tui.transports.board import HOUR_MINUTES
from tui.transports.failures import ROWS, FailureParts
from tui.transports.table_screen import TransportTable
from tui.widgets.line_widgets import Lines

RETRY = "plan('retry')"
"""The action of the key that sends the failed tasks of a destination again."""


class TransportsScreen(PlanningScreen, TransportTable):
    """S, M, O and R open plans for what is under the cursor."""

    KIND = keys.TRANSPORTS
    BINDINGS = key_bindings(keys.TRANSPORTS)

    def default_message(self) -> Line:
        """The next step for what is under the cursor, and what it acts on."""
        if (one := self.destination) is not None:
            name = one.destination.origin.partition("://")[2]
            refusal = self._destination_refusal()
            key, does = destination_lines.next_step(one)
        elif (transport := self.transport) is not None:
            name, refusal = transport.name, self._refusal("suspend")
            key, does = view.next_step(transport, self.session.place.alerts.transport_failures)
        else:
            return ()
        if refusal:
            key, does = "", refusal
        return next_line(key, safe_line(does), safe_line(name), self.size.width)

    # Actions

    def action_graph_range(self) -> None:
        """Show the last hour in the graph, or ten minutes: the log is read one hour back."""
        self._minutes = 10 if self._minutes == HOUR_MINUTES else HOUR_MINUTES
        self.paint()

    def without(self) -> set[str]:
        """Keys that act if nothing can be changed, and those for other rows than this one."""
        is_destination = self.destination is not None
        hidden = {"graph_range"} if self.board is None or is_destination else {"pane(1)"}
        hidden |= {"trial", "log"} if is_destination else {RETRY, "probe"}
        place, read_only = self.session.place, self.context.arming.read_only
        is_fixed = place.why_no_mail(read_only) and place.why_no_destinations(read_only)
        return hidden | ({"suspend", "trial", "probe", RETRY, "arm"} if is_fixed else set())

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """S suspends or resumes, blocks or unblocks; keys that are refused are grey."""
        transport, one, routes = self.transport, self.destination, self.session.readings.routes
        is_suspended = (
            transport is not None and routes is not None and transport.name in routes.stopped
        )
        words = {
            "suspend": "resume" if is_suspended else "suspend",
            "arm": keys.arm_hint(self.context.arming.is_armed),
        }
        refused = {a for a in ("suspend", "trial") if self._refusal(a)}
        if one is not None:
            words |= {"suspend": "unblock" if one.destination.blocked else "block", "open": "tasks"}
            refused = {a for a in ("suspend", "probe") if self._destination_refusal(a)}
            refused |= {RETRY} if isinstance(self.requested_verb("retry"), str) else set()
        hints = keys.hints_of(self.KIND, {*grey, *refused}, self.without(), words)
        self.query_one("#hints", Lines).show(hint_lines(hints, self.size.width))

    def _refusal(self, action: str) -> str:
        """Why an action is refused for the transport under the cursor; "" if it is not."""
        transport, routes, place = self.transport, self.session.readings.routes, self.session.place
        if refusal := place.why_no_mail(self.context.arming.read_only):
            return refusal
        if transport is None or routes is None:
            return self.no_row_reason("no transport here")
        if routes.unknown:
            return f"transport unknown: {routes.unknown}"
        if routes.use(transport.name) is TransportUse.FOREIGN:
            return f"{transport.name}: {view.describe_foreign(transport.name)}"
        if action == "trial" and (place.mail is None or not place.mail.test_command):
            return "this place has no test mail command"
        return ""

    def _destination_refusal(self, action: str = "suspend") -> str:
        """Why an action is refused for the destination under the cursor; "" if it is not."""
        one, place = self.destination, self.session.place
        if refusal := place.why_no_destinations(self.context.arming.read_only):
            return refusal
        if one is None:
            return self.no_row_reason("no destination here")
        if unknown := self.session.readings.destinations.unknown:
            return f"destinations unknown: {unknown}"
        return ACTIONS["probe"].refusal(one.destination) if action == "probe" else ""

    def requested_verb(self, verb: str) -> VerbRequest | str:
        """All dead tasks of the destination under the cursor."""
        one = self.destination
        if one is None:
            return self.no_row_reason("no destination here")
        if refusal := self.verb_refusal(verb, State.DEAD):
            return refusal
        if one.tasks is None or not one.tasks.all_failed:
            place_destinations = self.session.place.destinations
            unknown = place_destinations.tasks_unknown if place_destinations is not None else ""
            return unknown or "no failed task for this destination"
        origin = one.destination.origin
        query = Query(State.DEAD, equality_filter("dest", origin))
        return VerbRequest(verb, None, query, lambda _: f"all failed for {safe_line(origin)}")

    def action_suspend(self) -> None:
        """Open a plan to suspend or resume the transport, or to block or unblock the
        destination."""
        self._open_plan("suspend", Target(keys.SUSPEND, id=self.selected_key))

    def action_probe(self) -> None:
        """Open a plan to probe the destination now."""
        self._open_plan("probe", Target(keys.SUSPEND, id=self.selected_key, action="probe"))

    def action_trial(self) -> None:
        """Open a plan for a test mail, or the progress of a running one."""
        self._open_plan("trial", Target(keys.TEST_MAIL, id=self.selected_key))

    def _open_plan(self, action: str, target: Target) -> None:
        is_mail = self.destination is None and action != "probe"
        refusal = self._refusal(action) if is_mail else self._destination_refusal(action)
        if self.is_pasted or refusal:
            self.say(PASTED if self.is_pasted else refusal)
        else:
            self.go(target)

    def action_log(self) -> None:
        """Open the log lines of the transport under the cursor."""
        if (transport := self.transport) is None:
            self.say(self.no_row_reason("no transport here"))
        else:
            self.go(Target(keys.LOG, id=transport.name))

    def action_open(self) -> None:
        """Open the latest errors of the transport, or the tasks of the destination."""
        transport, one = self.transport, self.destination
        if one is not None:
            words = format_term("dest", "=", one.destination.origin)
            failed = one.tasks is not None and one.tasks.all_failed
            state = State.DEAD if failed else State.PENDING
            self.go(Target(keys.LIST, state=state, filter=words))
        elif transport is None or not transport.failures:
            nothing = self.no_row_reason("nothing to open")
            self.say("no recorded errors" if transport else nothing)
        else:
            self.go(Target(keys.FAILURES, id=transport.name))

    def copies(self) -> tuple[Copy, ...]:
        """Name, last error, server reply and command of the transport; name and keys of the
        destination."""
        transport, one = self.transport, self.destination
        if one is not None:
            prints = destination_lines.fingerprints(one.destination)
            keys_ = (Copy(label[0], label, text) for label, text in prints)
            return (Copy("n", "name", one.destination.origin), *keys_)
        if transport is None:
            return ()
        latest = max(transport.faults, key=lambda fault: fault.last, default=None)
        errors = (Copy("e", "last error", latest.example),) if latest is not None else ()
        reply = next((failure.text for failure in transport.failures if failure.text), "")
        words = (Copy("w", "server reply", reply),) if reply else ()
        if self._refusal("suspend"):
            return (Copy("n", "name", transport.name), *errors, *words)
        routes = self.session.readings.routes
        verb = "resume" if routes and transport.name in routes.stopped else "suspend"
        command = safe_line(shlex.join((*self.session.place.command, "mail", verb, transport.name)))
        return (Copy("n", "name", transport.name), *errors, *words, Copy("c", "command", command))


class FailuresScreen(RowsScreen):
    """The latest errors of one transport, kept up to date."""

    KIND = keys.FAILURES
    ROWS = ROWS
    BINDINGS = row_bindings(ROWS)
    parts: FailureParts

    def __init__(self, session: PlaceSession, context: ConsoleContext, name: str) -> None:
        """`name` is the transport's name."""
        super().__init__()
        self.panes = ListPanes()
        self.parts = FailureParts(session, context, self, name)
