"""The base class of all full screens, and the messages by which they ask the app for something."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from textual.binding import Binding, BindingType
from textual.message import Message

from engine.values import NamedTuple
from tui.screens.target import SCREEN_TARGETS, Target
from tui.terminal.driver import repaint_terminal
from tui.terminal.render_cache import CachedLines
from tui.terminal.sized_screen import SizedScreen
from tui.text import keys
from tui.text.lines import Line

if TYPE_CHECKING:
    from engine.model import Edges
    from tui.screens.palette_commands import PaletteCommand
    from tui.terminal.key_queue import ConfirmGuard
    from tui.text.export import ExportTable

QUIT_AGAIN = "Ctrl-c again: quit"
"""Message of the first Ctrl-c; a second one quits while it is visible."""

PASTED = "pasted input ignored"
"""Message for keys that came as a pasted burst."""

TOO_EARLY = "too early: press again"
"""Message for a confirming key before its plan was on screen for 300 ms."""


def key_bindings(screen: str) -> list[BindingType]:
    """The Textual bindings of a screen, made from its rows of the key table."""
    return [
        Binding(pressed, f"{key.action}('{pressed}')" if key.passes_key else key.action, show=False)
        for key in keys.keys_on(screen)
        for pressed in key.keys
    ]


class Copy(NamedTuple):
    """A text that can be copied from a screen."""

    key: str
    """The letter that selects it."""
    name: str
    text: str


def _request(what: str) -> Callable[[BaseScreen], None]:

    def action(screen: BaseScreen) -> None:
        screen.post_message(BaseScreen.ActionRequest(screen, what))

    return action


class BaseScreen(SizedScreen[None]):
    """Base of all full screens; requests that only the app can fulfil are posted as messages."""

    KIND = ""
    """Name of the screen in the key table."""

    guard: ConfirmGuard | None = None
    """Of a screen on which keys confirm something: since when it shows what they confirm."""

    def __init__(self) -> None:
        super().__init__()
        self._styles_cache = CachedLines()

    class ActionRequest(Message):
        """Request for a global action: help, palette, plain text, copy, export."""

        def __init__(self, screen: BaseScreen, what: str) -> None:
            super().__init__()
            self.screen, self.what = screen, what

    class Go(Message):
        """Request to open another screen."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    @property
    def is_paintable(self) -> bool:
        """True while the screen's parts can be painted: composed and not being removed. A screen
        can be resumed before it has parts, and its workers end after them. The parts of an
        installed screen that is closed go in any order when the app ends, itself perhaps last."""
        return self.is_attached and self.display and self.app.is_running and bool(self.children)

    @property
    def is_pasted(self) -> bool:
        """True if the current key came in a burst too fast for typing."""
        return bool(getattr(self.app, "is_pasted", False))

    @property
    def badge(self) -> Line:
        """That the picture is frozen, or running operations: for a title of the screen's own."""
        context = getattr(self.app, "context", None)
        return () if context is None else context.frozen() or context.operations()

    def go(self, target: Target) -> None:
        """Ask the app to open another screen."""
        self.post_message(self.Go(target))

    def verb_help(self) -> tuple[Mapping[str, str], Edges]:
        """Why verbs are refused now, by the key, and the edges of the place; neither if it shows
        several places, or none."""
        return {}, {}

    def without(self) -> Collection[str]:
        """Actions that are not offered now; hints and help omit them."""
        return ()

    def copies(self) -> tuple[Copy, ...]:
        """What can be copied from the screen now."""
        return ()

    def commands(self) -> tuple[PaletteCommand, ...]:
        """Commands of the palette that have no key of their own."""
        return ()

    def export_table(self) -> ExportTable | None:
        """What can be exported from the screen now."""
        return None

    def say(self, text: str, style: str = "warn") -> None:
        """Show a message to the operator."""
        raise NotImplementedError

    def shows_operation(self, operation: object) -> bool:
        """True if the screen shows the progress of that running operation, and what it asks."""
        return False

    def neighbor(self, by: int) -> Target | None:
        """Move the cursor to the next row, or with -1 to the previous one; return what Enter opens
        there, None at the end of the rows and for screens without any."""
        return None

    def row_words(self, target: Target) -> str:
        """The position of an opened row: `row 12 of 75`; "" if the cursor is on another one."""
        return ""

    def action_neighbor(self, by: int) -> None:
        """Open the next row of the list below, or with -1 the previous one."""
        below = opened_from(self)
        if (target := below.neighbor(by) if below is not None else None) is not None:
            self.go(target)
        else:
            self.say(f"no {'next' if by > 0 else 'previous'} row in the list, or not read yet")

    def action_screen(self, digit: str) -> None:
        self.go(SCREEN_TARGETS[digit])

    def action_operations(self) -> None:
        self.go(Target(keys.OPERATIONS))

    action_help = _request("help")
    action_palette = _request("palette")
    action_plain = _request("plain")
    action_yank = _request("yank")
    action_export = _request("export")

    def action_repaint(self) -> None:
        repaint_terminal(self.app)


def opened_from(screen: BaseScreen) -> BaseScreen | None:
    """The screen below another one."""
    screens = screen.app.screen_stack
    at = screens.index(screen) if screen in screens else 0
    below = screens[at - 1] if at else None
    return below if isinstance(below, BaseScreen) else None
