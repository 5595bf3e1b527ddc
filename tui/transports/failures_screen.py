"""Screen of the latest errors of one transport, with the server's replies."""

from __future__ import annotations

from engine.monitor.transport_health import Failure
from engine.text.safe import safe_line
from tui.screens.base import Copy, key_bindings
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice
from tui.text.times import format_time_with_age
from tui.transports import detail_lines as view
from tui.widgets.line_widgets import LongText
from tui.widgets.picker import Picker


class FailuresScreen(ListScreen):
    """Kept up to date; Enter opens the log at the time of the error."""

    KIND = keys.FAILURES
    BINDINGS = key_bindings(keys.FAILURES)

    def __init__(self, session: PlaceSession, context: ConsoleContext, name: str) -> None:
        """`name` is the transport's name."""
        super().__init__(session, context)
        self._transport = name

    def trail(self) -> tuple[str, ...]:
        """The place and the transport."""
        return (self.session.name, keys.TRANSPORTS, f"{safe_line(self._transport)}: errors")

    @property
    def _failures(self) -> dict[str, Failure]:
        """Errors by keys that stay the same when new errors arrive."""
        transports = self.session.readings.sending.transports
        failures = next(
            (transport.failures for transport in transports if transport.name == self._transport),
            (),
        )
        keyed: dict[str, Failure] = {}
        for failure in reversed(failures):  # equal errors are numbered from the oldest
            same = f"{failure.when} {failure.word}"
            alike = sum(key.rpartition(" ")[0] == same for key in keyed)
            keyed[f"{same} {alike}"] = failure
        return dict(reversed(keyed.items()))

    @property
    def _selected(self) -> Failure | None:
        """The error under the cursor."""
        return self._failures.get(self.selected_key)

    def lay_out(self, width: int) -> None:
        """One row per error, and the one under the cursor in full."""
        now, failures = self.context.clock(), self._failures
        picker = self.query_one(Picker)
        rows = [
            Choice(key, view.failure_row(f, now, self.rows_width)) for key, f in failures.items()
        ]
        picker.show_rows(rows, [view.failure_head(self.rows_width)])
        selected = self._selected
        text: list[Line] = [((f" {self.no_row_reason('no errors known')}", "muted"),)]
        if selected is not None:
            text = view.failure_lines(selected, self.text_width)
        self.query_one(LongText).show(text)

    def rows_frame(self) -> Frame:
        """The errors that are kept, the latest first."""
        amount = f"{len(self._failures)}"
        return Frame(f"{safe_line(self._transport)}: latest errors", "", amount)

    def text_frame(self) -> Frame:
        """The error under the cursor."""
        selected, now = self._selected, self.context.clock()
        when = None if selected is None else selected.when
        return Frame("time unknown" if when is None else format_time_with_age(when, now))

    def default_message(self) -> Line:
        """The next step for the error under the cursor."""
        selected = self._selected
        known = selected is not None and selected.when is not None
        key, does = ("Enter", "shows its line in the log") if known else ("", "no log line to open")
        return next_line(key, does, safe_line(self._transport), self.size.width)

    def action_log(self) -> None:
        """Open the log lines of the transport."""
        self.go(Target(keys.LOG, id=self._transport))

    def action_open(self) -> None:
        """Open the log at the line of the error under the cursor."""
        selected = self._selected
        if selected is None:
            self.say(self.no_row_reason("no error selected"))
        elif selected.when is None:
            self.say("time of this error unknown")
        else:
            self.go(Target(keys.LOG, at=selected.when, line=selected.line))

    def copies(self) -> tuple[Copy, ...]:
        """Server reply and error under the cursor."""
        selected = self._selected
        if selected is None:
            return ()
        text = (Copy("t", "server reply", selected.text),) if selected.text else ()
        return (Copy("e", "error", selected.word), *text)
