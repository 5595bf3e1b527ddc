"""What all screens that show something have in common, and what they ask of the console."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message
from textual.screen import Screen

from engine.model import State
from tui.format import keys, present
from tui.format.present import Line
from tui.widgets.render_cache import Keeps

if TYPE_CHECKING:
    from tui.format.export import ExportTable

HASTY = "pasted or typed too early: ignored"
"""What the screen says of refused keys: a burst, or a confirming key before its plan was seen."""

HERE = 0
"""The place that is looked at just now."""


class Target(NamedTuple):
    """Where the operator wants to go."""

    pane: str
    """The screen, as the key table names it."""
    place: int = HERE
    """Which place, from 1."""
    state: State | None = None
    """Which tab of the queue; None: as it was left."""
    filter: str | None = None
    """What the queue shows of it, in the filter language; None: as it was left."""
    id: str = ""
    """Which task, or operation, the cursor is put on, or the log is searched for."""
    at: float | None = None
    """At which moment the log begins, epoch seconds UTC; None: at its end."""
    line: str = ""
    """Text of the log line, from that moment on, that the cursor is put on."""
    problems: bool = False
    """Whether the queue's problems are wanted, not a state."""


PANES: Mapping[str, Target] = {
    "1": Target(keys.OVERVIEW),
    "2": Target(keys.LIST),
    "3": Target(keys.LIST, state=State.ACTIVE),
    "4": Target(keys.LIST, state=State.DEAD),
    "5": Target(keys.LOCKS),
    "6": Target(keys.TRANSPORTS),
    "7": Target(keys.LOG),
}
"""Where the digits lead on the boards."""


class Copy(NamedTuple):
    """Something that can be copied from a screen."""

    key: str
    """The letter that picks it."""
    name: str
    text: str


class BaseScreen(Keeps, Screen[None]):
    """A screen that shows something; what it cannot do itself goes up to the console."""

    KIND = ""
    """Which keys of the table it has."""

    class Wants(Message):
        """The operator asked for something that every screen has: help, palette, plain, yank."""

        def __init__(self, face: BaseScreen, what: str) -> None:
            super().__init__()
            self.face, self.what = face, what

    class Go(Message):
        """The operator wants to be somewhere else."""

        def __init__(self, target: Target) -> None:
            super().__init__()
            self.target = target

    @property
    def stands(self) -> bool:
        """Whether its parts are to be painted: not while it is taken away, part after part.

        A worker of a screen is ended after the screen's parts are, so it can wake in between.
        """
        return self.is_attached and self.display

    @property
    def hasty(self) -> bool:
        """Whether the key that acts now came in a burst that no hand types."""
        return bool(getattr(self.app, "hasty", False))

    @property
    def badge(self) -> Line:
        """That something is carried out just now, for screens with a title of their own."""
        around = getattr(self.app, "around", None)
        return () if around is None else present.badge(around.works())

    def go(self, target: Target) -> None:
        """Ask the console for another screen."""
        self.post_message(self.Go(target))

    def without(self) -> Collection[str]:
        """Actions that are not offered here now: neither hints nor help name them."""
        return ()

    def copies(self) -> tuple[Copy, ...]:
        """What can be copied here now."""
        return ()

    def sheet(self) -> ExportTable | None:
        """What can be exported here now."""
        return None

    def say(self, text: str, look: str = "warning") -> None:
        """Say something to the operator."""
        raise NotImplementedError

    def action_pane(self, digit: str) -> None:
        """To the screen of that digit."""
        self.go(PANES[digit])

    def action_undo(self) -> None:
        """What was done here, and how to take it back."""
        self.go(Target(keys.OPERATIONS))

    def action_help(self) -> None:
        """Every key."""
        self.post_message(self.Wants(self, "help"))

    def action_palette(self) -> None:
        """Say what to do or where to go."""
        self.post_message(self.Wants(self, "palette"))

    def action_plain(self) -> None:
        """This screen as plain text."""
        self.post_message(self.Wants(self, "plain"))

    def action_yank(self) -> None:
        """Copy something of what is shown."""
        self.post_message(self.Wants(self, "yank"))

    def action_export(self) -> None:
        """Write what is shown to a file."""
        self.post_message(self.Wants(self, "export"))

    def action_repaint(self) -> None:
        """Paint the whole screen again."""
        self.app.refresh(repaint=True, layout=True)
