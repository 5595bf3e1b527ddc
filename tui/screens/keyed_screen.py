"""The base class of screens whose keys are rows (`tui.screens.key_rows`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from time import monotonic
from typing import Any

from textual.binding import Binding, BindingType

from engine.model import Edges
from engine.store import Unavailable
from tui.screens.base import QUIT_AGAIN, BaseScreen
from tui.screens.key_rows import KeyRow, absent_actions, press, refusals_of
from tui.session.place_session import PlaceSession
from tui.terminal.safe_app import SafeApp
from tui.widgets.background import run_in_background


def row_bindings(rows: Sequence[KeyRow[Any, Any]]) -> list[BindingType]:
    """The Textual bindings of a screen with key rows."""
    return [
        Binding(pressed, f"key({pressed!r})" if row.key.call else row.key.action, show=False)
        for row in rows
        for pressed in row.key.keys
    ]


class KeyedScreen(BaseScreen):
    """Passes keys to their rows, and paints what the action of a row has changed. What it can do
    for its parts is in `ScreenActions`. Textual calls `on_mount`, `on_resize`, `on_screen_resume`
    and other handlers of every class of a screen, that of the subclass first."""

    ROWS: Sequence[KeyRow[Any, Any]]
    parts: Any
    """What the screen shows and its keys act on; without Textual."""

    @property
    def session(self) -> PlaceSession:
        """The place; the overview has several, and no such attribute."""
        session: PlaceSession = self.parts.session
        return session

    def on_mount(self) -> None:
        self.set_interval(1.0, self.tick)

    def on_resize(self) -> None:
        """Paint for the current size, once the parts have theirs."""
        self.call_after_refresh(self.paint)

    def on_screen_resume(self) -> None:
        self.paint()

    def tick(self) -> None:
        """Once a second: what changes with the time alone."""
        if self.is_current and not self.parts.context.skips_repaint():
            self.paint()

    def paint(self) -> None:
        """Show the current data; unchanged lines are not repainted."""
        raise NotImplementedError

    def show_change(self, change: Any) -> None:
        """Paint what has changed."""
        raise NotImplementedError

    def say(self, text: str, style: str = "warn") -> None:
        self.show_change(self.parts.say(text, style))

    def without(self) -> set[str]:
        return absent_actions(self.ROWS, self.parts)

    def verb_help(self) -> tuple[Mapping[str, str], Edges]:
        return refusals_of(self.ROWS, self.parts), self.session.inspector.edges

    def action_key(self, pressed: str) -> None:
        self.show_change(press(self.ROWS, pressed, self.parts, self.parts.say))

    def action_back(self) -> None:
        self.action_key("escape")

    def quits(self) -> bool:
        """Ctrl-c had nothing to cancel: True the second time, while its message is visible."""
        again = self.parts.message.text == QUIT_AGAIN
        if not again:
            self.say(QUIT_AGAIN)
        return bool(again)

    def request(self, what: str) -> None:
        self.post_message(self.ActionRequest(self, what))

    def open(self, opener: Callable[[BaseScreen], object]) -> None:
        opener(self)

    def run(self, what: str, ask: Callable[[], Awaitable[object]]) -> None:

        async def answer() -> None:
            try:
                change = await ask()
                if isinstance(self.app, SafeApp):
                    self.app.picture.wake(monotonic())
                self.show_change(change)
            except Unavailable as error:  # for example while the console quits
                self.say(str(error))

        run_in_background(self, answer, name=what, exclusive=True, group=what)
