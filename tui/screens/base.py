"""The base class of all full screens, and the messages by which they ask the app for something."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen

from tui.format import keys, present
from tui.format.present import Line
from tui.screens.target import PANE_TARGETS, Target
from tui.terminal.driver import repaint_terminal
from tui.terminal.render_cache import CachedRender

if TYPE_CHECKING:
    from tui.format.export import ExportTable

TOO_EARLY = "pasted or typed too early: ignored"
"""Message for refused keys: a pasted burst, or a confirming key before its plan was on screen."""


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


class BaseScreen(CachedRender, Screen[None]):
    """Base of all full screens; requests that only the app can fulfil are posted as messages."""

    KIND = ""
    """Name of the screen in the key table."""

    class ActionRequest(Message):
        """Request for a global action: help, palette, plain text, copy, export."""

        def __init__(self, face: BaseScreen, what: str) -> None:
            super().__init__()
            self.face, self.what = face, what

    class Go(Message):
        """Request to open another screen."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    @property
    def is_paintable(self) -> bool:
        """True while the screen's parts can be painted: attached and not being removed.

        Textual ends a screen's workers after it removes the screen's parts, so a worker may still
        run.
        """
        return self.is_attached and self.display

    @property
    def hasty(self) -> bool:
        """True if the current key came in a burst too fast for typing."""
        return bool(getattr(self.app, "hasty", False))

    @property
    def badge(self) -> Line:
        """Badge of running operations, for screens with a title of their own."""
        around = getattr(self.app, "around", None)
        return () if around is None else present.badge_line(around.operations_badge())

    def frame_panes(self, border: int) -> None:
        """Draw the frames of the panes: `present.BOX`, `present.RULE`, or 0 for none."""
        self.set_class(border == present.BOX, "-boxed")
        self.set_class(border == present.RULE, "-ruled")

    def go(self, target: Target) -> None:
        """Ask the app to open another screen."""
        self.post_message(self.Go(target))

    def without(self) -> Collection[str]:
        """Actions that are not offered now; hints and help omit them."""
        return ()

    def copies(self) -> tuple[Copy, ...]:
        """What can be copied from the screen now."""
        return ()

    def export_table(self) -> ExportTable | None:
        """What can be exported from the screen now."""
        return None

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message to the operator."""
        raise NotImplementedError

    def action_pane(self, digit: str) -> None:
        """Open the main screen of that digit."""
        self.go(PANE_TARGETS[digit])

    def action_undo(self) -> None:
        """Open the list of operations, to see or undo them."""
        self.go(Target(keys.OPERATIONS))

    def action_help(self) -> None:
        """Open the help."""
        self.post_message(self.ActionRequest(self, "help"))

    def action_palette(self) -> None:
        """Open the command palette."""
        self.post_message(self.ActionRequest(self, "palette"))

    def action_plain(self) -> None:
        """Show this screen as plain text."""
        self.post_message(self.ActionRequest(self, "plain"))

    def action_yank(self) -> None:
        """Copy part of what is shown."""
        self.post_message(self.ActionRequest(self, "yank"))

    def action_export(self) -> None:
        """Export what is shown to a file."""
        self.post_message(self.ActionRequest(self, "export"))

    def action_repaint(self) -> None:
        """Repaint the whole screen."""
        repaint_terminal(self.app)
