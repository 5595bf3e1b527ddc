"""The transports screen: health of each transport, and details of the one under the cursor."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from engine.monitor.transport_health import TransportHealth, TransportUse
from engine.text.safe import safe_line
from tui.format import keys, present
from tui.format.present import Line
from tui.format.table import Choice
from tui.screens.base import TOO_EARLY, Copy, key_bindings
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.screens.two_panes import FIXED_LINES
from tui.transports import detail_lines
from tui.transports import lines as view
from tui.transports.board import HOUR_MINUTES, Shown, TransportBoard, panels
from tui.widgets.lines import Frame, Lines, LongText
from tui.widgets.picker import Picker


class TransportsScreen(ListScreen):
    """The transports of one place; S and M open plans for the one under the cursor."""

    KIND = keys.TRANSPORTS
    BINDINGS = key_bindings(keys.TRANSPORTS)
    PAGE_KEYS_SCROLL = True
    BOARD = TransportBoard

    aim = ""
    """Transport on which the cursor is put when it appears."""

    _minutes = HOUR_MINUTES
    """Length of the graph."""

    @property
    def _here(self) -> TransportHealth | None:
        """The transport under the cursor."""
        key = self.selected_key
        return next((t for t in self.live.readings.sending.transports if t.name == key), None)

    def lay_out(self, width: int) -> None:
        """One row per transport, and details of one."""
        sending, now = self.live.readings.sending, self.around.clock()
        routes = self.live.readings.routes
        limit = self.live.place.alerts.transport_failures
        titles, listed = view.transport_rows(sending, limit, now, self.rows_width, routes)
        picker = self.query_one(Picker)
        picker.show_rows([Choice(name, line) for name, line in listed], [titles])
        if self.aim in [name for name, _ in listed]:
            picker.select_key(self.aim)
            self.aim = ""
        way, room = self._here, self.text_width
        board, pane = self.board if way is not None else None, self.query_one(LongText)
        self.query_one(TransportBoard).display, pane.display = board is not None, board is None
        if board is not None and way is not None:
            height = self.size.height - FIXED_LINES - self.rows_height
            log = self.live.readings.log
            shown = Shown(way, sending, routes, limit, now, log, self._minutes)
            board.show(panels(shown, width, height))
            return
        if way is not None:
            text = detail_lines.detail_lines(way, sending, limit, now, room, routes)
        else:
            none = self.live.has_readings and not sending.transports
            text = [view.no_transports_line(sending)] if none else []
            text += detail_lines.source_lines(sending, now, room)
        pane.show(text)
        self.call_after_refresh(self.show_frames)  # the lines below are known then

    def rows_frame(self) -> Frame:
        """All transports, and which one is used."""
        sending, routes = self.live.readings.sending, self.live.readings.routes
        about = view.summary_line(sending, self.live.place.alerts.transport_failures, routes)
        return Frame("Transports", "6", f"{len(sending.transports)}", about)

    def text_frame(self) -> Frame:
        """The transport under the cursor with its state, and how many lines are below."""
        way, below = self._here, self.query_one(LongText).below
        if way is None:
            return Frame("details")
        state = view.state_run(way, self.live.place.alerts.transport_failures)
        more: Line = ((f" PgDn {present.format_count(below, 'more line')}", "muted"),)
        return Frame(safe_line(way.name), right=(state, *(more if below else ())))

    def default_message(self) -> Line:
        """The next step for the transport under the cursor, and what it acts on."""
        way = self._here
        if way is None:
            return ()
        refusal = self._refusal("suspend")
        key, does = view.next_step(way, self.live.place.alerts.transport_failures)
        if refusal:
            key, does = "", refusal
        return present.next_line(key, safe_line(does), safe_line(way.name), self.size.width)

    # Actions

    def action_graph_range(self) -> None:
        """Show the last hour in the graph, or ten minutes: the log is read one hour back."""
        self._minutes = 10 if self._minutes == HOUR_MINUTES else HOUR_MINUTES
        self.paint()

    def without(self) -> set[str]:
        """Keys that act if nothing can be changed, and that of the graph, or of the details that
        scroll.
        """
        hidden = {"graph_range"} if self.board is None else {"pane(1)"}
        is_fixed = self.live.place.why_no_mail(self.around.arming.read_only)
        return hidden | ({"suspend", "trial", "arm"} if is_fixed else set())

    def show_hints(self, grey: Collection[str] = ()) -> None:
        """S suspends or resumes; keys that are refused are grey."""
        way, routes = self._here, self.live.readings.routes
        is_suspended = way is not None and routes is not None and way.name in routes.stopped
        words = {
            "suspend": "resume" if is_suspended else "suspend",
            "arm": keys.arm_hint(self.around.arming.is_armed),
        }
        refused = {a for a in ("suspend", "trial") if self._refusal(a)}
        hints = keys.hints_of(self.KIND, {*grey, *refused}, self.without(), words)
        self.query_one("#hints", Lines).show(present.hint_lines(hints, self.size.width))

    def _refusal(self, action: str) -> str:
        """Why an action is refused for the transport under the cursor; "" if it is not."""
        way, routes, place = self._here, self.live.readings.routes, self.live.place
        if refusal := place.why_no_mail(self.around.arming.read_only):
            return refusal
        if way is None or routes is None:
            return self.no_row_reason("no transport here")
        if routes.unknown:
            return f"transport unknown: {routes.unknown}"
        if routes.use(way.name) is TransportUse.FOREIGN:
            return f"{way.name}: {view.describe_foreign(way.name)}"
        if action == "trial" and (place.mail is None or not place.mail.test_command):
            return "this place has no test mail command"
        return ""

    def action_suspend(self) -> None:
        """Open a plan to suspend or resume the transport."""
        refusal = TOO_EARLY if self.hasty else self._refusal("suspend")
        if refusal or self._here is None:
            self.say(refusal)
        else:
            self.go(Target(keys.SUSPEND, id=self._here.name))

    def action_trial(self) -> None:
        """Open a plan for a test mail, or the progress of a running one."""
        refusal = TOO_EARLY if self.hasty else self._refusal("trial")
        way = self._here
        if refusal or way is None:
            self.say(refusal)
        else:
            self.go(Target(keys.TEST_MAIL, id=way.name))

    def action_log(self) -> None:
        """Open the log lines of the transport under the cursor."""
        if (way := self._here) is None:
            self.say(self.no_row_reason("no transport here"))
        else:
            self.go(Target(keys.LOG, id=way.name))

    def action_arm(self) -> None:
        """Arm or disarm."""
        self.say(TOO_EARLY if self.hasty else self.around.arming.toggle())
        self.paint()

    def action_open(self) -> None:
        """Open the latest errors of the transport."""
        way = self._here
        if way is None or not way.failures:
            nothing = self.no_row_reason("nothing to open")
            self.say("no recorded errors" if way else nothing)
        else:
            self.go(Target(keys.FAILURES, id=way.name))

    def copies(self) -> tuple[Copy, ...]:
        """Name, last error, server reply and command of the transport under the cursor."""
        way = self._here
        if way is None:
            return ()
        latest = max(way.faults, key=lambda fault: fault.last, default=None)
        errors = (Copy("e", "last error", latest.example),) if latest is not None else ()
        told = next((failure.text for failure in way.failures if failure.text), "")
        words = (Copy("w", "server reply", told),) if told else ()
        if self._refusal("suspend"):
            return (Copy("n", "name", way.name), *errors, *words)
        routes = self.live.readings.routes
        verb = "resume" if routes and way.name in routes.stopped else "suspend"
        command = safe_line(shlex.join((*self.live.place.command, "mail", verb, way.name)))
        return (Copy("n", "name", way.name), *errors, *words, Copy("c", "command", command))
