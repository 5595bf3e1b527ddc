"""How a replay is to go: how fast, what is tried first, what stops it, as a form."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import ModalScreen

from engine.replay import estimate
from engine.replay.settings import ReplayPace
from tui.format import keys, present
from tui.plan import pace_lines as view
from tui.session.place_session import PlaceSession
from tui.session.running_operations import working
from tui.widgets.lines import Lines


class PaceScreen(ModalScreen[ReplayPace | None]):
    """Answers with the pace that was typed, or with None when it was closed."""

    BINDINGS = keys.bindings(keys.PACE)

    def __init__(self, pace: ReplayPace, amount: int, live: PlaceSession) -> None:
        """`amount` is how many tasks it is for."""
        super().__init__()
        self._pace, self._amount, self._live = pace, amount, live
        self._form = view.form_of(pace)
        # Who works the queue does not change while somebody types.
        self._working = working(live.signs.lock, live.events(), live.clock())

    def compose(self) -> ComposeResult:
        """The form, what is wrong with it, and its keys."""
        yield Lines(id="menu")

    def on_resize(self) -> None:
        """For this width."""
        self._show()

    def _show(self) -> None:
        width = self.size.width
        _, wrong = self._form.wrong
        sentences: tuple[str, ...] = ()
        if not wrong:
            pace = view.pace_of(self._form, self._pace)
            sentences = estimate.forecast(self._amount, pace, self._working).sentences
        form = view.lines(self._form, sentences, self._live.inspector.states, width)
        hints = present.hint_lines(keys.hints(keys.PACE), width, 1)
        # What is wrong takes no more lines than what is said when nothing is: nothing jumps.
        said = [((f" {wrong}", "warning"),)] if wrong else []
        self.query_one(Lines).show([*form, *(present.cut(row, width) for row in said), *hints])

    def _change(self, form: view.PaceForm) -> None:
        self._form = form
        self._show()

    def action_next(self) -> None:
        """The next field."""
        self._change(self._form.moved(1))

    def action_previous(self) -> None:
        """The field before."""
        self._change(self._form.moved(-1))

    def action_switch(self) -> None:
        """Switch the rule under the cursor on or off."""
        self._change(self._form.toggled())

    def action_type(self, pressed: str) -> None:
        """One more character of a number."""
        self._change(self._form.typed("." if pressed == "full_stop" else pressed))

    def action_rub_out(self) -> None:
        """One character less."""
        self._change(self._form.rubbed_out())

    def action_take(self) -> None:
        """So it is to go, unless something is wrong."""
        if not self._form.wrong[1]:
            self.dismiss(view.pace_of(self._form, self._pace))

    def action_back(self) -> None:
        """As it was."""
        self.dismiss(None)
