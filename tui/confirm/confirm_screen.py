"""The page on which something is confirmed: path, frame with a title, bar with the question, next
step, keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from textual.app import ComposeResult
from textual.widget import Widget

from engine.text.safe import safe_line
from engine.values import NamedTuple
from tui.confirm.confirmation import Confirmation, Press
from tui.screens.base import BaseScreen
from tui.screens.console_context import ConsoleContext
from tui.screens.dialogs import AskScreen
from tui.screens.edge_lines import TopLine
from tui.screens.message import Message
from tui.screens.place_foot import PlaceBox
from tui.session.place_session import PlaceSession
from tui.terminal.key_queue import ConfirmGuard
from tui.text import keys
from tui.text.frames import BOX, BOX_FRAME_CELLS, frame_border
from tui.text.hints import hint_lines, next_line, with_message
from tui.text.lines import Line, cut_line
from tui.text.styles import confirmation_bar
from tui.widgets.line_widgets import Lines, LongText

FIXED_LINES = 4
"""Lines of path, bar, next step and hints."""


class PlanWords(NamedTuple):
    """The words around the text of a plan."""

    stage: str = "plan, nothing written yet"
    """What has happened so far, at the right end of the frame."""
    is_undoable: bool = True
    """True if it can be undone completely: the frame is accent, else warn."""
    note: str = ""
    """How the confirmation works, at the right end of the bar."""
    key: str = ""
    """The key of the next step; "" if the bar has it."""
    does: str = ""


class ConfirmScreen(BaseScreen):
    """A plan is applied here by typing its digits, or by `y` if nothing is lost; never by Enter.
    Applying it needs an armed console; viewing does not."""

    digits_name = "count"
    focused_part = "#text"
    """What takes the keys that move."""
    reason_title = "reason (journal)"

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self.session, self.context = session, context
        self.confirmation = Confirmation(self, context)
        self.guard: ConfirmGuard = ConfirmGuard()
        self.message = Message(context.clock)
        self.step = self.KIND
        self.acts_on = ""
        """What the plan changes, at the right end of the next step."""
        self.text = LongText(id="text")
        self.body = PlaceBox(self.text)
        self.bar: Line = ()
        """The question, or the result in its place."""
        self._was_armed = False

    def compose(self) -> ComposeResult:
        yield TopLine(id="title")
        yield self.body
        yield Lines(id="word")
        yield Lines(id="next")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        """Focus the text; update every second how long it stays armed."""
        self.query_one(self.focused_part).focus()
        self.set_interval(1.0, self.tick)

    def on_screen_resume(self) -> None:
        """On screen again: a key confirms only after the next paint."""
        self.guard.plan_hidden()

    def on_resize(self) -> None:
        self.lay_out()

    def tick(self) -> None:
        """Once a second: the time that it stays armed."""
        if self.context.arming.is_armed is not self._was_armed:
            self.lay_out()
        else:
            self.show_path()
            self.show_foot()

    # What is confirmed (`Subject`), defined by the screens

    @property
    def expected_digits(self) -> str:
        raise NotImplementedError

    @property
    def takes_reason(self) -> bool:
        return False

    def why_not_applicable(self) -> str:
        raise NotImplementedError

    def why_wait(self) -> str:
        return ""

    def apply_plan(self) -> None:
        """Apply it: it was confirmed."""
        raise NotImplementedError

    def plan_changed(self) -> None:
        """Discard the typed digits: they were for the plan before the change."""
        self.confirmation.typed = ""
        self.guard.plan_changed(time.monotonic())

    # Painting

    def lay_out(self) -> None:
        """Paint everything for the current size; nothing if the screen is being removed."""
        raise NotImplementedError

    @property
    def text_width(self) -> int:
        """Cells for the text inside its frame."""
        is_box = frame_border(*self.size) == BOX
        return self.size.width - (BOX_FRAME_CELLS if is_box else 0)

    def describe(self) -> PlanWords:
        """The words around the plan; one that `y` confirms can be undone."""
        settled, digits = self.confirmation.settled, self.expected_digits
        is_armed = self.context.arming.is_armed
        is_open = is_armed and not settled
        note = "the last correct digit applies" if is_open and digits else ""
        if settled:
            return PlanWords("", not digits, note, "Esc", "goes back")
        words = PlanWords(is_undoable=not digits, note=note)
        if not is_armed:
            return words._replace(key="!", does="arms writes; the plan stays open")
        return words._replace(key=f"type {digits}" if digits else "y", does="applies it")

    def show_path(self) -> None:
        """Show the path to this screen."""
        self._was_armed = self.context.arming.is_armed
        path = (self.session.name, self.step)
        self.query_one("#title", TopLine).update_line(self.context, path)

    def show_text(
        self,
        title: Line,
        text: Sequence[Line],
        bar: Line,
        acts_on: str = "",
        needed: Mapping[Widget, int] | None = None,
    ) -> None:
        """Show the text in a frame with that title, its first words as capitals; the question or
        the result in the bar; and at the right what the plan changes. `needed`: lines that it and
        the panes below it need; the last one has what is left."""
        self.acts_on, self.bar = acts_on, bar
        part, words = self.text, self.describe()
        part.add_class("pane")
        part.show(text)
        part.set_class(words.is_undoable, "-focused")
        part.set_class(not words.is_undoable, "-warn")
        whole = "".join(run for run, _ in title)
        (verb, _), *runs = title
        self.step = verb if frame_border(*self.size) else " ".join(whole.split())
        style = "title" if words.is_undoable else "warn"
        first = (verb.upper() + (" " if runs else ""), style)
        tail = (
            (run if at else run.lstrip(), style if it == "title" else it)
            for at, (run, it) in enumerate(runs)
        )
        part.set_frame((first, *tail), ((words.stage, "muted"),) if words.stage else ())
        self.show_path()
        self.show_foot()
        border = frame_border(*self.size)
        lines: Mapping[Widget, int] = needed or {part: border + len(text)}
        fixed = FIXED_LINES if border else FIXED_LINES - 1  # the style shows no next step then
        self.body.stack(lines, [*lines][-1], self.session, fixed=fixed)

    def show_foot(self) -> None:
        """The bar, and the message or the next step below it; the bar has both if it is alone."""
        width, words = self.size.width, self.describe()
        self.message.ends()
        message = self.message.line
        has_next = frame_border(*self.size)  # the style follows a new size later
        bar = message if message and not has_next else self.bar
        note = words.note if bar is self.bar else ""
        self.query_one("#word", Lines).show([confirmation_bar(bar, note, width)])
        line = next_line(words.key, words.does, self.acts_on, width)
        line = with_message(message, line, width) if message else line
        self.query_one("#next", Lines).show([cut_line(line, width)])

    def show_hints(self, **words: str) -> None:
        """Show the hints; `words` replace those of the keys of these actions."""
        words["arm"] = keys.arm_hint(self.context.arming.is_armed)
        step = ((self.describe().key, "key"),)
        hints = hint_lines(self.hints(words), self.size.width, step=step)
        self.query_one("#hints", Lines).show(hints)

    def hints(self, words: Mapping[str, str]) -> Sequence[keys.Hint]:
        """The hints now; `words` replace those of the keys of these actions."""
        grey = self.confirmation.disabled_actions
        return keys.hints_of(self.KIND, grey, self.without(), words)

    def say(self, text: str, style: str = "warn") -> None:
        self.message.say(text, style)
        if self.is_paintable and self.query("#next"):
            self.show_foot()

    @property
    def reason_text(self) -> str:
        """The reason, or that there is none yet."""
        confirmation = self.confirmation
        return safe_line(confirmation.reason) or confirmation.missing_reason_words

    # Keys

    def without(self) -> set[str]:
        return self.confirmation.absent_actions

    def _confirm(self, take: Callable[[Press], str | None]) -> None:
        """Pass on a key that confirms, and show the answer; apply the plan if there is none."""
        arrived: float = getattr(self.app, "arrived", float("-inf"))
        message = take(Press(*self.size, self.is_pasted, self.guard.is_early(arrived)))
        if message is None:
            self.context.arming.extend()
            self.apply_plan()
        self.lay_out()
        if message:
            self.say(message)

    def action_arm(self) -> None:
        self.message.clear()
        self._confirm(self.confirmation.arm)

    def action_yes(self) -> None:
        self.message.clear()
        self._confirm(self.confirmation.yes)

    def action_digit(self, digit: str) -> None:
        self.message.clear()
        self._confirm(partial(self.confirmation.digit, digit))

    def action_rub_out(self) -> None:
        self.message.clear()
        self.confirmation.typed = self.confirmation.typed[:-1]
        self.lay_out()

    def action_reason(self) -> None:
        """Prompt for a reason; an empty answer keeps the present one."""
        if not self.takes_reason:
            return
        confirmation = self.confirmation

        def take(answer: str | None) -> None:
            confirmation.reason = (answer or confirmation.reason).strip()
            self.lay_out()

        prompt = AskScreen(self.reason_title, confirmation.reason, lambda _: "")
        self.app.push_screen(prompt, take)

    def action_move(self, how: str) -> None:
        self.query_one("#text", LongText).move(how)

    def action_back(self) -> None:
        self.dismiss()
