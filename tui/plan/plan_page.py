"""The page of a plan: path, frame with the title, a bar with the confirmation, the next step."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from textual.app import ComposeResult

from engine.text.safe import safe_line
from tui.screens.console_context import ConsoleContext
from tui.screens.message import MESSAGE_SECONDS
from tui.screens.page import Page
from tui.screens.top_line import TopLine
from tui.session.place_session import PlaceSession
from tui.text.frames import frame_border
from tui.text.hints import next_line
from tui.text.lines import Line, cut_line
from tui.text.styles import confirmation_bar
from tui.widgets.line_widgets import Frame, Lines, LongText

NO_MESSAGE = ("", "", float("-inf"))
"""No message."""


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
    """The next step."""


class PlanPage(Page):
    """A page whose frame has the title of a plan, with a bar for the confirmation below it."""

    def __init__(self, session: PlaceSession, context: ConsoleContext) -> None:
        super().__init__()
        self._session, self._console_context = session, context
        self._arming, self._clock = context.arming, context.clock
        self._reason = ""
        self._title: Line = ()
        self._acts_on = ""
        self._bar: Line = ()
        self._message = NO_MESSAGE
        self._was_armed = False

    def compose(self) -> ComposeResult:
        """Path, plan, bar, next step, hints."""
        yield TopLine(id="title")
        yield LongText(id="text")
        yield Lines(id="word")
        yield Lines(id="next")
        yield Lines(id="hints")

    def on_mount(self) -> None:
        """Update every second how long it stays armed."""
        self.set_interval(1.0, self._tick)

    def _tick(self) -> None:
        if self._arming.is_armed is self._was_armed:
            self.show_title(self._title, self._acts_on)
        else:
            self.lay_out(self.size.width)

    def describe(self) -> PlanWords:
        """The words around the plan."""
        return PlanWords()

    # Painting

    def text_frame(self) -> Frame | None:
        """The frame of the plan; its words are those of `show_title`."""
        return Frame(self.KIND)

    def show(self, title: Line, text: Sequence[Line], word: Line) -> None:
        """Show the text, and `word` in the bar; `title` is for `show_title`."""
        self._bar = word
        part = self.query_one("#text", LongText)
        part.add_class("pane")
        part.show(text)
        self._show_foot()

    def show_title(self, title: Line, acts_on: str = "") -> None:
        """Show the title in the frame, its first words as capitals; these also end the path.

        `acts_on` is what the plan changes.
        """
        self._title, self._acts_on, self._was_armed = title, acts_on, self._arming.is_armed
        (verb, _), *title_runs = title or (("", ""),)
        step = verb.strip() if frame_border(*self.size) else _words(title)
        self.query_one("#title", TopLine).update_line(
            self._console_context, (self._session.name, step)
        )
        part, words = self.query_one("#text", LongText), self.describe()
        part.set_class(words.is_undoable, "-focused")
        part.set_class(not words.is_undoable, "-warn")
        style = "title" if words.is_undoable else "warn"
        first = (verb.strip().upper() + (" " if title_runs else ""), style)
        tail = (
            (text if at else text.lstrip(), style if it == "title" else it)
            for at, (text, it) in enumerate(title_runs)
        )
        part.set_frame((first, *tail), ((words.stage, "muted"),) if words.stage else ())
        self._show_foot()

    def _show_foot(self) -> None:
        """The bar, and the message or the next step below it; the bar has both if it is alone."""
        width, words = self.size.width, self.describe()
        text, style, when = self._message
        is_said = bool(text) and asyncio.get_running_loop().time() - when < MESSAGE_SECONDS
        message_line: Line = ((f" {safe_line(text)}", style),)
        has_next = frame_border(*self.size)  # the style follows a new size later
        bar = message_line if is_said and not has_next else self._bar
        note = words.note if bar is self._bar else ""
        self.query_one("#word", Lines).show([confirmation_bar(bar, note, width)])
        line = message_line if is_said else next_line(words.key, words.does, self._acts_on, width)
        self.query_one("#next", Lines).show([cut_line(line, width)])

    def say(self, text: str, look: str = "warn") -> None:
        """Show a message for `MESSAGE_SECONDS`, or until the next key."""
        self._message = (text, look, asyncio.get_running_loop().time())
        if self.is_paintable and self.query("#next"):
            self._show_foot()

    def clear_message(self) -> None:
        """Clear the message."""
        self._message = NO_MESSAGE

    def ask_reason(self, title: str) -> None:
        """Prompt for a reason; an empty answer keeps the present reason."""
        from tui.screens.text_prompt import AskScreen

        def take(answer: str | None) -> None:
            self._reason = (answer or self._reason).strip()
            self.lay_out(self.size.width)

        self.app.push_screen(AskScreen(title, self._reason, lambda _: ""), take)

    @property
    def reason_text(self) -> str:
        """The reason, or `none (Tab)`."""
        required = ", required" if self._console_context.require_reason else ""
        return safe_line(self._reason) or f"none{required} (Tab)"


def _words(line: Line) -> str:
    return " ".join("".join(text for text, _ in line).split())
