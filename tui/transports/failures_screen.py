"""The last errors of one transport, one by one, and the words that its server used."""

from __future__ import annotations

from engine.monitor.transport_health import Failure
from engine.text.safe import shown
from tui.format import keys
from tui.format.present import Line
from tui.screens.base import Copy, Target
from tui.screens.console_context import ConsoleContext
from tui.screens.page import ListScreen
from tui.session.place_session import PlaceSession
from tui.transports import lines as view
from tui.widgets.lines import LongText
from tui.widgets.picker import Choice, Picker


class FailuresScreen(ListScreen):
    """Kept up to date while it is looked at; Enter leads to the log at that moment."""

    KIND = keys.FAILURES
    BINDINGS = keys.bindings(keys.FAILURES)

    def __init__(self, live: PlaceSession, around: ConsoleContext, name: str) -> None:
        """`name` is the transport, as it was found."""
        super().__init__(live, around)
        self._way = name

    def trail(self) -> tuple[str, ...]:
        """The transport whose errors they are."""
        return (self.live.place.name, keys.TRANSPORTS, f"{shown(self._way)}: errors")

    @property
    def _failures(self) -> dict[str, Failure]:
        """By keys that stay theirs when others come."""
        ways = self.live.signs.sending.transports
        found = next((way.failures for way in ways if way.name == self._way), ())
        keyed: dict[str, Failure] = {}
        for failure in reversed(found):  # the same one twice: counted from the oldest on
            same = f"{failure.when} {failure.word}"
            alike = sum(key.rpartition(" ")[0] == same for key in keyed)
            keyed[f"{same} {alike}"] = failure
        return dict(reversed(keyed.items()))

    @property
    def _here(self) -> Failure | None:
        """The one under the cursor."""
        return self._failures.get(self.picked)

    def lay_out(self, width: int) -> None:
        """A row for each, and all the words of one."""
        now, failures = self.around.clock(), self._failures
        picker = self.query_one(Picker)
        rows = [Choice(key, view.failure_row(f, now, width)) for key, f in failures.items()]
        picker.offer(rows, [view.failure_head(width)])
        picker.styles.height = 1 + max(1, min(len(picker.rows), self.size.height // 2 - 2))
        here = self._here
        text: list[Line] = [((f" {self.missing('no error of it is known')}", "dim"),)]
        if here is not None:
            text = view.failure(here, now, width)
        self.query_one(LongText).show(text)

    def action_open(self) -> None:
        """The log, at the line of the one under the cursor."""
        here = self._here
        if here is None:
            self.say(self.missing("there is no error to look for"))
        elif here.when is None:
            self.say("nobody wrote down when that was")
        else:
            self.go(Target(keys.LOG, at=here.when, line=here.line))

    def copies(self) -> tuple[Copy, ...]:
        """What is said of the one under the cursor."""
        here = self._here
        if here is None:
            return ()
        text = (Copy("t", "the server's words", here.text),) if here.text else ()
        return (Copy("e", "error", here.word), *text)
