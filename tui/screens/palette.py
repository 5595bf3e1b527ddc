"""The command line of the console: what to do or where to go, found by typing a part of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.screens import palette_commands
from tui.screens.palette_commands import PaletteCommand
from tui.widgets.lines import Lines
from tui.widgets.picker import Choice, Picker
from tui.widgets.text_input import Words


class PaletteInput(NamedTuple):
    """What the operator chose, and what was typed behind it."""

    command: PaletteCommand
    argument: str = ""


class PaletteScreen(ModalScreen[PaletteInput | None]):
    """Answers with what was chosen; None when it was closed."""

    BINDINGS = keys.bindings(keys.PALETTE)

    def __init__(self, offered: Sequence[PaletteCommand]) -> None:
        super().__init__()
        self._offered = tuple(offered)

    def compose(self) -> ComposeResult:
        """The line, what it finds, and what the first of it would do."""
        with Vertical(id="palette"):
            yield Lines(id="palette-title")
            with Horizontal(id="ask-line"):
                yield Lines(id="palette-label")
                yield Words(compact=True, select_on_focus=False)
            yield Picker(id="found", ghosts=False)
            yield Lines(id="palette-word")

    def on_mount(self) -> None:
        """Nothing blinks."""
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()
        self.query_one("#palette-label", Lines).show([((" : ", "key"),)])

    def on_resize(self) -> None:
        """Lay it out for this width, once the parts know theirs."""
        self.call_after_refresh(self._find)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show what is found while it is typed."""
        event.stop()
        self._find()

    def on_picker_moved(self) -> None:
        """Say what this one would do."""
        self._tell()

    def _find(self) -> None:
        width = self.size.width
        self.query_one("#palette-title", Lines).show([present.heading("command", width)])
        rows = [Choice(str(at), _row(self._offered[at], width)) for at in self._found()]
        self.query_one(Picker).offer(rows)
        self.query_one(Picker).move("first")
        self._tell()

    def _found(self) -> list[int]:
        typed = self.query_one(Input).value
        return [self._offered.index(c) for c in palette_commands.found(self._offered, typed)]

    def _tell(self) -> None:
        said = self._said()
        words = "nothing of that name; Esc closes"
        if said is not None:
            more = said.command.argument and not said.argument
            words = f"type {said.command.argument} behind it" if more else f"Enter: {_what(said)}"
        line: Line = ((f" {words}", "warning" if said is None else ""),)
        self.query_one("#palette-word", Lines).show([present.cut(line, self.size.width)])

    def _said(self) -> PaletteInput | None:
        key = self.query_one(Picker).key
        if not key:
            return None
        command = self._offered[int(key)]
        return PaletteInput(
            command, palette_commands.argument_of(command, self.query_one(Input).value)
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Do what the cursor is on; what lacks its words gets its beginning typed."""
        event.stop()
        said = self._said()
        if said is None:
            return
        if said.command.argument and not said.argument:
            line = self.query_one(Input)
            line.value = f"{said.command.words} "
            line.cursor_position = len(line.value)
        else:
            self.dismiss(said)

    def action_move(self, how: str) -> None:
        """Another of what was found."""
        self.query_one(Picker).move(how)

    def action_back(self) -> None:
        """Do nothing."""
        self.dismiss(None)


def _row(command: PaletteCommand, width: int) -> Line:
    name = shown(f"{command.words} {command.argument}".rstrip())
    return present.cut(
        (
            (f"  {present.fit(command.shown, 7)} ", "key"),
            (present.fit(name, 22), "strong"),
            (f" {command.about}", ""),
        ),
        width,
    )


def _what(said: PaletteInput) -> str:
    return f"{said.command.about}: {shown(said.argument)}" if said.argument else said.command.about
