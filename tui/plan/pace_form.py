"""Form for a replay's rate, canary and stop rules."""

from __future__ import annotations

from textual.app import ComposeResult

from engine.replay import estimate
from engine.replay.settings import ReplayPace
from tui.plan import pace_lines as view
from tui.screens.base import key_bindings
from tui.session.place_session import PlaceSession
from tui.session.running_operations import find_worker
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.hints import hint_lines
from tui.text.lines import cut_line
from tui.widgets.line_widgets import Lines


class PaceScreen(SizedModalScreen[ReplayPace | None]):
    """Return the pace that was typed, or None if cancelled."""

    BINDINGS = key_bindings(keys.PACE)

    def __init__(self, pace: ReplayPace, amount: int, session: PlaceSession) -> None:
        """`amount` is the number of tasks to replay."""
        super().__init__()
        self._pace, self._amount, self._session = pace, amount, session
        self._form = view.form_from_pace(pace)
        # Read once: the set of workers is not refreshed while the form is open.
        self._working = find_worker(
            session.readings.lock, session.readings.queue_figures, session.events(), session.clock()
        )

    def compose(self) -> ComposeResult:
        """The form, its first error, and the key hints."""
        yield Lines(id="menu")

    def on_resize(self) -> None:
        """Redraw for this width."""
        self._show()

    def _show(self) -> None:
        width = self.size.width
        _, wrong = self._form.first_error
        sentences: tuple[str, ...] = ()
        if not wrong:
            pace = view.pace_from_form(self._form, self._pace)
            sentences = estimate.estimate_replay(self._amount, pace, self._working).sentences
        form = view.form_lines(self._form, sentences, self._session.inspector.states, width)
        hints = hint_lines(keys.hints_of(keys.PACE), width, 1)
        # The error takes as many lines as the forecast, so that nothing jumps.
        errors = [((f" {wrong}", "warn"),)] if wrong else []
        self.query_one(Lines).show([*form, *(cut_line(row, width) for row in errors), *hints])

    def _change(self, form: view.PaceForm) -> None:
        self._form = form
        self._show()

    def action_next(self) -> None:
        """Go to the next field."""
        self._change(self._form.moved(1))

    def action_previous(self) -> None:
        """Go to the previous field."""
        self._change(self._form.moved(-1))

    def action_switch(self) -> None:
        """Toggle the rule under the cursor."""
        self._change(self._form.toggled())

    def action_type(self, pressed: str) -> None:
        """Append a character to the number."""
        self._change(self._form.typed("." if pressed == "full_stop" else pressed))

    def action_rub_out(self) -> None:
        """Delete the last character."""
        self._change(self._form.rubbed_out())

    def action_take(self) -> None:
        """Accept the form if it has no error."""
        if not self._form.first_error[1]:
            self.dismiss(view.pace_from_form(self._form, self._pace))

    def action_back(self) -> None:
        """Close without changes."""
        self.dismiss(None)
