"""Form to edit one or several tasks; checks the input while it is typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input, TextArea, text_area

from engine.model import Edge, Task
from engine.text.safe import safe_line
from tui.plan.edit_lines import FIELDS, EditResult, editable_fields, parse_fields
from tui.screens.base import key_bindings
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.lines import Line, cut_line, heading_line
from tui.widgets.line_widgets import Lines
from tui.widgets.text_input import Words

LABEL_CELLS = 13


class LongWords(TextArea):
    """An input of several lines that removes control characters, also from pasted text."""

    def __init__(self, text: str, id: str) -> None:
        super().__init__(text, id=id, compact=True, highlight_cursor_line=False)
        self.cursor_blink = False

    def edit(self, edit: text_area.Edit) -> text_area.EditResult:
        """Insert text, escaped."""
        edit.text = "\n".join(safe_line(line) for line in edit.text.splitlines() or [""])
        return super().edit(edit)


class EditScreen(SizedModalScreen[Mapping[str, object]]):
    """Return the changed values, or None if cancelled. The form writes nothing: the values go into
    a plan."""

    BINDINGS = key_bindings(keys.EDIT)

    def __init__(
        self, task: Task | None, edge: Edge, clock: Callable[[], float], no_data: str = ""
    ) -> None:
        """`task` is the edited task, with its data if that can be edited; None edits several, whose
        empty fields keep their values. `edge` is the store's edge from the state to itself; it
        names the editable fields. `no_data` is why the present data cannot be edited in the form;
        "" if it can."""
        super().__init__()
        self._edited, self._edge, self._clock = task, edge, clock
        self._no_data = no_data
        hidden = {"data"} if task is None or task.data is None else set()
        self._names = tuple(name for name in editable_fields(edge) if name not in hidden)

    def compose(self) -> ComposeResult:
        with Vertical(id="edit"):
            yield Lines(id="edit-title")
            for name in self._names:
                value = FIELDS[name].text(self._edited) if self._edited else ""
                with Horizontal(classes="field"):
                    yield Lines(id=f"{name}-label", classes="label")
                    if name == "data":
                        yield LongWords(value, id=name)
                    else:
                        yield Words(value, id=name, compact=True, select_on_focus=False)
                yield Lines(id=f"{name}-word", classes="field-word")
            if self._no_data:
                yield Lines(id="no-data", classes="field-word")
            yield Lines(id="edit-word")

    def on_mount(self) -> None:
        for field in self.query(Words):
            field.cursor_blink = False
        for name in self._names:
            label: Line = ((f" {FIELDS[name].label}", "title"),)
            self.query_one(f"#{name}-label", Lines).show([cut_line(label, LABEL_CELLS)])
        self.query(Words).first().focus()
        self.set_interval(1.0, self._show_preview)

    def on_resize(self) -> None:
        what = safe_line(self._edited.id) if self._edited else "several tasks"
        title = heading_line(f"Edit {what}", self.size.width)
        self.query_one("#edit-title", Lines).show([title])
        self._show_preview()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show_preview()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        event.stop()
        self._show_preview()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Continue to the plan if a value changed and all input is valid."""
        event.stop()
        parsed = self._parse_input()
        if parsed.values and not parsed.error:
            self.dismiss(parsed.values)

    def _parse_input(self) -> EditResult:
        typed = {field.id or "": field.value for field in self.query(Words)}
        typed |= {field.id or "": field.text for field in self.query(LongWords)}
        return parse_fields(self._edited, self._edge, typed, self._clock())

    def _show_preview(self) -> None:
        parsed, width = self._parse_input(), self.size.width
        for name in self._names:
            line: Line = ((" " * LABEL_CELLS, ""), (safe_line(parsed.previews[name]), "muted"))
            self.query_one(f"#{name}-word", Lines).show([cut_line(line, width)])
        if self._no_data:
            why: Line = ((f" {self._no_data}; edit --data replaces it", "muted"),)
            self.query_one("#no-data", Lines).show([cut_line(why, width)])
        word: Line = ((f" {parsed.error}", "warn"),)
        if not parsed.error:
            enter = "Enter plan" if parsed.values else "no changes yet"
            if parsed.values and isinstance(self.focused, LongWords):
                enter = "Tab, Enter plan"
            other = "  Tab next field" if len(self._names) > 1 else ""
            word = ((f" {enter}{other}  Esc cancel", "muted"),)
        self.query_one("#edit-word", Lines).show([cut_line(word, width)])

    def cancels(self) -> bool:
        """Close the form on Ctrl+C instead of quitting the console."""
        self.action_back()
        return False

    def action_back(self) -> None:
        self.dismiss(None)

    def action_next(self) -> None:
        self.focus_next()

    def action_previous(self) -> None:
        self.focus_previous()
