"""The latest errors of one transport with the server's replies, without Textual; and the keys."""

from __future__ import annotations

from engine.monitor.transport_health import Failure
from engine.text.safe import safe_line
from tui.screens.base import Copy
from tui.screens.console_context import ConsoleContext
from tui.screens.key_rows import KeyRow, RowMaker
from tui.screens.rows_parts import Change, RowsActions, RowsParts
from tui.screens.target import Target
from tui.session.place_session import PlaceSession
from tui.text import keys
from tui.text.frames import Frame
from tui.text.hints import next_line
from tui.text.lines import Line
from tui.text.table import Choice, ShownRows
from tui.text.times import format_time_with_age
from tui.transports import detail_lines as view

LOG_WORDS = "log | t | t | log | View +minor | log lines of this transport"
"""Words of the key, here and on the transports screen."""


class FailureParts(RowsParts):
    """The errors that the session has read, and the one under the cursor."""

    def __init__(
        self, session: PlaceSession, context: ConsoleContext, screen: RowsActions, transport: str
    ) -> None:
        """`transport` is its name."""
        super().__init__(session, context, screen)
        self.transport = transport

    @property
    def failures(self) -> dict[str, Failure]:
        """Errors by keys that stay the same when new errors arrive."""
        transports = self.session.readings.sending.transports
        failures = next(
            (each.failures for each in transports if each.name == self.transport),
            (),
        )
        keyed: dict[str, Failure] = {}
        for failure in reversed(failures):  # equal errors are numbered from the oldest
            same = f"{failure.when} {failure.word}"
            alike = sum(key.rpartition(" ")[0] == same for key in keyed)
            keyed[f"{same} {alike}"] = failure
        return dict(reversed(keyed.items()))

    @property
    def selected(self) -> Failure | None:
        """The error under the cursor."""
        return self.failures.get(self.screen.cursor.key)

    def open_refusal(self) -> str:
        """Why no line of the log can be opened."""
        if (selected := self.selected) is None:
            return self.no_row_reason("no error selected")
        return "time of this error unknown" if selected.when is None else ""

    def trail(self) -> tuple[str, ...]:
        """The place and the transport."""
        return (self.session.name, keys.TRANSPORTS, f"{safe_line(self.transport)}: errors")

    def rows(self, width: int) -> ShownRows:
        """One row per error."""
        now = self.context.clock()
        rows = [
            Choice(key, view.failure_row(each, now, width)) for key, each in self.failures.items()
        ]
        return ShownRows(view.failure_head(width), rows)

    def details(self, width: int) -> list[Line]:
        """The error under the cursor in full."""
        if (selected := self.selected) is None:
            return [((f" {self.no_row_reason('no errors known')}", "muted"),)]
        return view.failure_lines(selected, width)

    def rows_frame(self) -> Frame:
        """The errors that are kept, the latest first."""
        amount = f"{len(self.failures)}"
        return Frame(f"{safe_line(self.transport)}: latest errors", "", amount)

    def details_frame(self, below: int) -> Frame:
        """The time of the error under the cursor."""
        selected, now = self.selected, self.context.clock()
        when = None if selected is None else selected.when
        return Frame("time unknown" if when is None else format_time_with_age(when, now))

    def next_step(self, width: int) -> Line:
        """The next step for the error under the cursor."""
        key, does = "Enter", "shows its line in the log"
        if self.open_refusal():
            key, does = "", "no log line to open"
        return next_line(key, does, safe_line(self.transport), width)

    def copies(self) -> tuple[Copy, ...]:
        """Server reply and error under the cursor."""
        if (selected := self.selected) is None:
            return ()
        text = (Copy("t", "server reply", selected.text),) if selected.text else ()
        return (Copy("e", "error", selected.word), *text)


def open_line(parts: FailureParts) -> Change:
    """Open the log at the line of the error under the cursor."""
    if (selected := parts.selected) is not None:
        parts.screen.go(Target(keys.LOG, at=selected.when, line=selected.line))
    return Change.NOTHING


def open_log(parts: FailureParts) -> Change:
    """Open the log lines of the transport."""
    parts.screen.go(Target(keys.LOG, id=parts.transport))
    return Change.NOTHING


make = RowMaker[FailureParts, Change](keys.FAILURES, Change.NOTHING)
key = make.key

ROWS: tuple[KeyRow[FailureParts, Change], ...] = (
    *make.moves(lambda parts, how: parts.move(how)),
    make.own(
        "open | enter | Enter | log | View | the log at the time of this error",
        open_line,
        refusal=FailureParts.open_refusal,
    ),
    make.own(LOG_WORDS, open_log),
    *make.views(),
    make.goes(key("operations", keys.PROBLEMS), Target(keys.OPERATIONS)),
    *make.ends(),
)
"""All keys; pressing one is the Textual action `key` of the screen."""
