"""What a task, or several, are to say from now on: typed, checked while it is, and handed on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from engine.model import Edge, Task
from engine.text.safe import shown
from tui.format import keys, present
from tui.format.present import Line
from tui.plan.edit_lines import FIELDS, Wanted, offered, understood
from tui.widgets.lines import Lines
from tui.widgets.text_input import Words

LABEL = 13
"""Cells before a field."""


class EditScreen(ModalScreen[Mapping[str, object]]):
    """Answers with the values that are to change, or with None when it was closed.

    Nothing is written from here: they go into a plan.
    """

    BINDINGS = keys.bindings(keys.EDIT)

    def __init__(self, task: Task | None, edge: Edge, clock: Callable[[], float]) -> None:
        """`task` is the one that is edited; None: several, each of which keeps what is empty.

        `edge` is the way that they go, from where they stand to the same: it names what can change.
        """
        super().__init__()
        self._edited, self._edge, self._clock = task, edge, clock
        self._names = offered(edge)

    def compose(self) -> ComposeResult:
        """A field for all that the store lets change, below each what becomes of it, and what can
        be pressed."""
        with Vertical(id="edit"):
            yield Lines(id="edit-title")
            for name in self._names:
                value = FIELDS[name].text(self._edited) if self._edited else ""
                with Horizontal(classes="field"):
                    yield Lines(id=f"{name}-label", classes="label")
                    yield Words(value, id=name, compact=True, select_on_focus=False)
                yield Lines(id=f"{name}-word", classes="field-word")
            yield Lines(id="edit-word")

    def on_mount(self) -> None:
        """Nothing blinks; what is relative to now goes on with the clock."""
        for field in self.query(Words):
            field.cursor_blink = False
        for name in self._names:
            label: Line = ((f" {FIELDS[name].label}", "title"),)
            self.query_one(f"#{name}-label", Lines).show([present.cut(label, LABEL)])
        self.query(Words).first().focus()
        self.set_interval(1.0, self._say)

    def on_resize(self) -> None:
        """Everything for this width."""
        what = shown(self._edited.id) if self._edited else "several tasks"
        title = present.heading(f"edit {what}", self.size.width)
        self.query_one("#edit-title", Lines).show([title])
        self._say()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Say what becomes of it while it is typed."""
        event.stop()
        self._say()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter goes on to the plan, when there is something to change and nothing is wrong."""
        event.stop()
        wanted = self._wanted()
        if wanted.values and not wanted.wrong:
            self.dismiss(wanted.values)

    def _wanted(self) -> Wanted:
        typed = {name: self.query_one(f"#{name}", Words).value for name in self._names}
        return understood(self._edited, self._edge, typed, self._clock())

    def _say(self) -> None:
        wanted, width = self._wanted(), self.size.width
        for name, words in wanted.said.items():
            line: Line = ((" " * LABEL, ""), (shown(words), "dim"))
            self.query_one(f"#{name}-word", Lines).show([present.cut(line, width)])
        word: Line = ((f" {wanted.wrong}", "warning"),)
        if not wanted.wrong:
            enter = "Enter on to the plan" if wanted.values else "nothing is changed yet"
            other = "  Tab the other field" if len(self._names) > 1 else ""
            word = ((f" {enter}{other}  Esc closes", "dim"),)
        self.query_one("#edit-word", Lines).show([present.cut(word, width)])

    def cancels(self) -> bool:
        """Close it, and not the console."""
        self.action_back()
        return False

    def action_back(self) -> None:
        """Nothing is to change."""
        self.dismiss(None)

    def action_next(self) -> None:
        """The next field."""
        self.focus_next()

    def action_previous(self) -> None:
        """The field before."""
        self.focus_previous()
