"""The command palette: find an action or a screen by typing part of its name."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.screens import palette_commands
from tui.screens.base import key_bindings
from tui.screens.palette_commands import PaletteCommand
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.lines import Line, cut_line, fit_text, heading_line
from tui.text.table import Choice
from tui.widgets.line_widgets import Lines
from tui.widgets.picker import Picker
from tui.widgets.text_input import Words


class PaletteInput(NamedTuple):
    """The chosen command and its typed argument."""

    command: PaletteCommand
    argument: str = ""


class PaletteScreen(SizedModalScreen[PaletteInput | None]):
    """Returns the chosen command, or None if closed."""

    BINDINGS = key_bindings(keys.PALETTE)

    def __init__(self, offered: Sequence[PaletteCommand]) -> None:
        super().__init__()
        self._offered = tuple(offered)

    def compose(self) -> ComposeResult:
        with Vertical(id="palette"):
            yield Lines(id="palette-title")
            with Horizontal(id="ask-line"):
                yield Lines(id="palette-label")
                yield Words(compact=True, select_on_focus=False)
            yield Picker(id="found", ghosts=False)
            yield Lines(id="palette-word")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()
        self.query_one(Picker).can_focus = False  # a click leaves the focus on the input
        self.query_one("#palette-label", Lines).show([((" : ", "key"),)])

    def on_resize(self) -> None:
        """Lay out for this width, once the parts have theirs."""
        self.call_after_refresh(self._update_matches)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._update_matches()

    def on_picker_cursor_moved(self) -> None:
        self._describe_selected()

    def _update_matches(self) -> None:
        width = self.size.width
        rows = [
            Choice(str(at), _command_line(self._offered[at], width))
            for at in self._matching_indexes()
        ]
        amount = f"{min(len(rows), self.query_one(Picker).size.height)} of {len(rows)}"
        self.query_one("#palette-title", Lines).show([heading_line(f"Command {amount}", width)])
        self.query_one(Picker).show_rows(rows)
        self.query_one(Picker).move("first")
        self._describe_selected()

    def _matching_indexes(self) -> list[int]:
        typed = self.query_one(Input).value
        return [
            self._offered.index(c) for c in palette_commands.match_commands(self._offered, typed)
        ]

    def _describe_selected(self) -> None:
        chosen = self._selected_input()
        words = "no such command; Esc closes"
        if chosen is not None:
            more = chosen.command.needs_argument and not chosen.argument
            then = f"then type {chosen.command.argument}"
            words = then if more else f"Enter: {_describe_input(chosen)}"
        line: Line = ((f" {words}", "warn" if chosen is None else ""),)
        self.query_one("#palette-word", Lines).show([cut_line(line, self.size.width)])

    def _selected_input(self) -> PaletteInput | None:
        key = self.query_one(Picker).key
        if not key:
            return None
        command = self._offered[int(key)]
        return PaletteInput(
            command, palette_commands.argument_of(command, self.query_one(Input).value)
        )

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the selected command; if its argument is missing, fill in its name."""
        event.stop()
        chosen = self._selected_input()
        if chosen is None:
            return
        if chosen.command.needs_argument and not chosen.argument:
            line = self.query_one(Input)
            line.value = f"{chosen.command.name} "
            line.cursor_position = len(line.value)
        else:
            self.dismiss(chosen)

    def action_move(self, how: str) -> None:
        self.query_one(Picker).move(how)

    def action_back(self) -> None:
        self.dismiss(None)


def _command_line(command: PaletteCommand, width: int) -> Line:
    name = safe_line(f"{command.name} {command.argument}".rstrip())
    return cut_line(
        (
            (f"  {fit_text(command.shown, 7)} ", "key"),
            (fit_text(name, 22), "strong"),
            (f" {command.description}", ""),
        ),
        width,
    )


def _describe_input(chosen: PaletteInput) -> str:
    words = f": {safe_line(chosen.argument)}" if chosen.argument else ""
    return f"{chosen.command.description}{words}"
