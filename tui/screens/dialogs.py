"""Dialogs: a question that is answered by one letter or by a line of text, and the progress of a
long action, on the last lines of the screen below; and whether to quit while something runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.widgets import Input

from engine.model import State
from engine.text.figures import format_count
from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.screens.base import TOO_EARLY, key_bindings
from tui.terminal.key_queue import ConfirmGuard
from tui.terminal.sized_screen import SizedModalScreen
from tui.text import keys
from tui.text.hints import hint_lines
from tui.text.keys import Hint
from tui.text.lines import Line, cut_line, fold_text, heading_line
from tui.text.progress_bar import ProgressBar, bar_line
from tui.text.task_fields import states_name
from tui.widgets.line_widgets import Lines
from tui.widgets.text_input import Words

if TYPE_CHECKING:
    from tui.session.running_operations import RunningOperation


class Option(NamedTuple):
    """One of the answers."""

    key: str
    """The letter, by its Textual name."""
    text: str
    is_disabled: bool = False
    """Not available now, so painted grey."""


class MenuScreen(SizedModalScreen[str]):
    """Returns the pressed letter, or "" if closed."""

    BINDINGS = key_bindings(keys.MENU)

    def __init__(self, title: str, options: Sequence[Option]) -> None:
        super().__init__()
        self._title, self._options = title, tuple(options)

    def compose(self) -> ComposeResult:
        yield Lines(id="menu")

    def on_resize(self) -> None:
        width = self.size.width
        hints = [Hint(o.key, safe_line(o.text), o.is_disabled) for o in self._options]
        rows = hint_lines([*hints, *keys.hints_of(keys.MENU)], width, 9)
        used = [row for row in rows if "".join(text for text, _ in row).strip()]
        rule = heading_line(self._title, width)
        self.query_one(Lines).show([rule, *used])

    def on_key(self, event: events.Key) -> None:
        pressed = event.character if event.character and event.is_printable else event.key
        for option in self._options:
            if option.key == pressed and not option.is_disabled:
                event.stop()
                self.dismiss(option.key)

    def action_back(self) -> None:
        self.dismiss("")


class AskScreen(SizedModalScreen[str]):
    """Returns the typed text, or "" if closed."""

    BINDINGS = key_bindings(keys.MENU)

    def __init__(self, title: str, value: str, wrong: Callable[[str], str]) -> None:
        """`wrong` returns what is wrong with an answer, "" if nothing."""
        super().__init__()
        self._title, self._value, self._check = title, value, wrong

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Lines(id="ask-title")
            with Horizontal(id="ask-line"):
                yield Words(self._value, compact=True, select_on_focus=False)
            yield Lines(id="ask-word")

    def on_mount(self) -> None:
        self.query_one(Input).cursor_blink = False
        self.query_one(Input).focus()

    def on_resize(self) -> None:
        width = self.size.width
        self.query_one("#ask-title", Lines).show([heading_line(self._title, width)])
        self._show_error(self._check(self.query_one(Input).value))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._show_error(self._check(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if not self._check(event.value):
            self.dismiss(event.value)

    def _show_error(self, wrong: str) -> None:
        text = (f" {wrong}", "warn") if wrong else (" Enter OK  Esc cancel", "muted")
        self.query_one("#ask-word", Lines).show([cut_line((text,), self.size.width)])

    def action_back(self) -> None:
        self.dismiss("")


UPDATE_INTERVAL_SECONDS = 0.25


class ProgressScreen(SizedModalScreen[None]):
    """Stays until the action dismisses it or the operator stops the action."""

    BINDINGS = key_bindings(keys.PROGRESS)

    def __init__(
        self, title: str, unit: str, far: Callable[[], ProgressBar], stop: Callable[[], None]
    ) -> None:
        super().__init__()
        self._title, self._unit, self._read_progress, self._stop = title, unit, far, stop
        self._began = time.monotonic()

    def compose(self) -> ComposeResult:
        yield Lines(id="menu")

    def on_mount(self) -> None:
        self.set_interval(UPDATE_INTERVAL_SECONDS, self.paint)

    def on_resize(self) -> None:
        self.paint()

    def paint(self) -> None:
        width = self.size.width
        line = bar_line(self._read_progress(), time.monotonic() - self._began, self._unit, width)
        hints = hint_lines(keys.hints_of(keys.PROGRESS), width, 1)
        self.query_one(Lines).show([heading_line(self._title, width), line, *hints])

    def action_back(self) -> None:
        """Stop the action."""
        self._stop()


BOX_CELLS = 58


def describe_ending(work: RunningOperation, states: Mapping[State, str]) -> str:
    """What happens to a running operation on quit; `states`: the words of its store."""
    far = f"{work.words.name} is at {int(100 * work.share)}%"
    now = work.progress
    if now is None:
        return f"{far}: stops after the current batch; the rest stays."
    if not now.unsent or now.stopped:
        return f"{far}: all sent; results are no longer followed."
    tasks = format_count(now.unsent, "task")
    words = states_name(work.plan.states, states)
    return f"{far}: stops. {tasks} stay in {safe_line(words)}; the next start offers to resume."


class QuitScreen(SizedModalScreen[str]):
    """Returns "stop", "keep", or "" to stay."""

    BINDINGS = key_bindings(keys.QUIT)

    def __init__(
        self,
        workers: Mapping[int, str],
        works: Sequence[tuple[RunningOperation, Mapping[State, str]]] = (),
    ) -> None:
        """`workers`: the place of each, by its PID; `works`: operations, the store's words."""
        super().__init__()
        self.guard = ConfirmGuard()
        self._workers, self._works = workers, tuple(works)

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Lines(id="question")

    def on_mount(self) -> None:
        rows: list[Line] = []
        if self._workers:
            pids = ", ".join(f"{pid} of {safe_line(name)}" for pid, name in self._workers.items())
            rows += [((f"Worker PID {pids}, started here, is running.", "strong"),), ()]
        for work, states in self._works:
            pieces = fold_text(describe_ending(work, states), BOX_CELLS)
            rows += [*(((piece, "strong"),) for piece in pieces), ()]
        what = "the operation and the worker (SIGTERM)" if self._workers else "the operation"
        words = {"stop": f"stop {what} and quit"} if self._works else {}
        # The key that opened this dialog does nothing here: it may be pressed several times in a
        # row.
        for key in keys.keys_on(keys.QUIT, set() if self._workers else {"keep"}):
            rows.append(((f"{key.shown:<5}", "key"), (words.get(key.action, key.description), "")))
        running = "worker" if self._workers else "operation"
        self.query_one("#box").border_title = f"Quit with a running {running}"
        self._rows = [cut_line(row, BOX_CELLS) for row in rows]
        self.query_one(Lines).show(self._rows)

    def on_screen_resume(self) -> None:
        """On screen again: a key counts only after the next paint."""
        self.guard.plan_hidden()

    def _answer(self, answer: str) -> None:
        """Close with that answer, unless the key was typed before the question was on screen."""
        is_early = self.guard.is_early(getattr(self.app, "arrived", -math.inf))
        if is_early or getattr(self.app, "is_pasted", False):
            self.query_one(Lines).show([*self._rows, (), ((TOO_EARLY, "warn"),)])
        else:
            self.dismiss(answer)

    def action_stop(self) -> None:
        """Stop the operations and the worker, and quit."""
        self._answer("stop")

    def action_keep(self) -> None:
        """Quit; the worker keeps running."""
        if self._workers:
            self._answer("keep")

    def action_back(self) -> None:
        self.dismiss("")
